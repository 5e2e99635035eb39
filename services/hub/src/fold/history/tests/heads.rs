//! The heads in memory agree with the store, at every moment.

use headwater_event::{Assignment, NodeName};
use headwater_session::{FoldStatus, tail_push};

use super::*;
use crate::fold::heads::{HeadBounds, StreamHeads};

/// What happens to a fold.
#[derive(Clone, Debug)]
enum Step {
    /// An event of the node's stream, or of the one of all.
    Event {
        of_node: bool,
        key: Option<u8>,
        object: Option<u8>,
        is_dense: bool,
    },
    /// The node has one stream or two.
    Assign {
        both: bool,
    },
    Commit,
    Load,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let key = proptest::option::weighted(0.95, 0..6u8);
    let object = proptest::option::of(0..20u8);
    let dense = proptest::bool::weighted(0.9);
    prop_oneof![
        8 => (any::<bool>(), key, object, dense).prop_map(|(of_node, key, object, is_dense)| {
            Step::Event { of_node, key, object, is_dense }
        }),
        1 => any::<bool>().prop_map(|both| Step::Assign { both }),
        6 => Just(Step::Commit),
        1 => Just(Step::Load),
        1 => Just(Step::Clear),
    ]
}

fn bounds() -> impl Strategy<Value = HeadBounds> {
    (1..4usize, 0..2_000u64, 0..12usize).prop_map(|(streams_max, bytes_max, events_max)| {
        HeadBounds { streams_max, bytes_max, events_max }
    })
}

/// Checks that a session reads the same from memory as from the store.
fn agrees(fold: &Fold, node: &NodeName) {
    let streams = [StreamId::node(node), StreamId::Cluster];
    // The second round reads what the first one cached.
    for _ in 0..2 {
        let (remembered, stored) = (fold.source().with_heads_of(&streams), fold.source());
        assert_eq!(remembered.streams(node).ok(), stored.streams(node).ok());
        for stream in &streams {
            let status = stored.status(stream).expect("readable");
            assert_eq!(remembered.status(stream).as_ref(), Ok(&status));
            let tail = status.checkpoint.seq;
            let epoch = WriterEpoch(0);
            let next = |source: &dyn StreamSource| {
                source.next_epoch_from(stream, epoch).expect("readable")
            };
            assert_eq!(next(&remembered), next(&stored));
            for (from, to) in (status.raw_from.0..=tail.0)
                .flat_map(|from| [(from, tail.0), (from, from.midpoint(tail.0))])
            {
                for bytes_max in [1, 300, u64::MAX] {
                    let of = |source: &dyn StreamSource| {
                        source.events(stream, Seq(from), Seq(to), bytes_max)
                    };
                    assert_eq!(of(&remembered), of(&stored), "({from}, {to}] of {stream}");
                }
                if from < tail.0 {
                    shares_tail(&remembered, &stored, stream, (Seq(from), &status));
                }
            }
        }
    }
}

/// Checks that sessions share the events of a shared stream, and no others.
fn shares_tail(
    remembered: &dyn StreamSource,
    stored: &dyn StreamSource,
    stream: &StreamId,
    (from, status): (Seq, &FoldStatus),
) {
    let shared = remembered.shared_tail(stream, from, status, u64::MAX).expect("readable");
    let own = tail_push(stored, stream, from, status, u64::MAX).expect("readable");
    match (shared, stream) {
        (Some(shared), StreamId::Cluster) => {
            assert_eq!(Some(shared.push()), own.as_ref(), "behind {from}");
            let again = remembered.shared_tail(stream, from, status, u64::MAX).expect("readable");
            assert!(again.is_some_and(|again| Arc::ptr_eq(&again, &shared)), "behind {from}");
        }
        (shared, _) => assert_eq!(shared, None, "a stream without a head, or of one node"),
    }
}

proptest! {
    #[test]
    fn heads_in_memory_agree_with_the_store(
        steps in proptest::collection::vec(step(), 1..60), limits in limits(), bounds in bounds(),
    ) {
        let node: NodeName = "a".parse().expect("a name");
        let engine = Arc::new(MemoryEngine::new());
        let heads = Arc::new(StreamHeads::within(bounds));
        let fold = Fold::new(engine.clone());
        let fold = fold.with_heads(heads.clone());
        fold.assume_log(LOG);
        let mut rows = History { limits, ..History::with_heads(heads.clone()) };
        let mut state = StreamState::open(engine.clone(), FoldBounds::default()).expect("opens");
        let mut models = [StreamId::node(&node), StreamId::Cluster]
            .map(|stream| Model { stream, ..Model::new() });
        for step in steps {
            let (model, continuity) = match step {
                Step::Event { of_node, key, object, is_dense } => {
                    let model = &mut models[usize::from(!of_node)];
                    model.append(key, object);
                    (model, if is_dense { Continuity::Dense } else { Continuity::Sparse })
                }
                Step::Assign { both } => {
                    let streams = both.then_some(StreamId::Cluster);
                    let model = &mut models[0];
                    model.append_event(Event::Applied(Applied {
                        key: EntryKey::Streams,
                        uid: String::new(),
                        resource_version: String::new(),
                        object: Assignment::new(&node, streams).encode(),
                    }));
                    (model, Continuity::Dense)
                }
                Step::Commit => {
                    rows.before_commit(&mut state);
                    rows.after_commit(&state.commit(Durability::Buffered).expect("commits"));
                    agrees(&fold, &node);
                    continue;
                }
                // Where nothing is open.
                Step::Load => {
                    rows.before_commit(&mut state);
                    rows.after_commit(&state.commit(Durability::Buffered).expect("commits"));
                    heads.load(&*engine).expect("readable");
                    continue;
                }
                Step::Clear => {
                    heads.clear();
                    continue;
                }
            };
            let envelope = model.events.last().expect("it was appended").clone();
            rows.derive(&envelope, continuity, &mut state).expect("readable");
            let folded = state.apply_event(LOG, envelope, continuity, &mut Vec::new());
            folded.expect("continues");
            agrees(&fold, &node);
        }
    }
}
