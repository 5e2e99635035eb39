//! The materializer: nothing is let out from above the durable position.

use headwater_event::{Cursor, Envelope, LeaderEpoch, Offset, Partition, TopicId};
use headwater_store::position::CURSORS;
use headwater_store::{Failure, MemoryEngine, Survival};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::stream::ACCEPTANCE;
use crate::stream::Continuity;
use crate::stream::Refusal;
use crate::stream::history::{History, log_id, steps};
use crate::stream::{Effect, EffectKind};

/// The fold of a whole log: its streams, and how far the partition was read.
#[derive(Debug)]
struct Fold;

impl Projection for Fold {
    type Input = (Offset, Envelope);
    type Effect = Effect;
    type Refusal = Refusal;

    fn fold(
        &mut self,
        (offset, envelope): Self::Input,
        state: &mut StreamState,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FoldError<Refusal>> {
        state.apply_event(log_id(1), envelope, Continuity::Dense, effects)?;
        state.read_up_to(cursor(offset.next()), "accepted".into());
        Ok(())
    }
}

fn cursor(next: Offset) -> Cursor {
    let topic = TopicId(Uuid::from_u128(1));
    Cursor { topic, partition: Partition(0), next, leader_epoch: LeaderEpoch(1) }
}

fn open(engine: &Arc<MemoryEngine>, bounds: CommitBounds) -> Materializer<Fold> {
    Materializer::open(engine.clone(), Fold, bounds).expect("opens")
}

/// What the caller of a materializer does next.
#[derive(Clone, Copy, Debug)]
enum Call {
    Fold,
    Commit,
    CommitSynced,
    Sync,
    SyncElsewhere,
    HearOfSync,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => Just(Call::Fold),
        3 => Just(Call::Commit),
        1 => Just(Call::CommitSynced),
        1 => Just(Call::Sync),
        1 => Just(Call::SyncElsewhere),
        1 => Just(Call::HearOfSync),
    ]
}

proptest! {
    /// I8: power fails after any call, and what was released is still there.
    #[test]
    fn no_effect_is_released_from_above_what_survives(
        steps in steps(40),
        calls in proptest::collection::vec(call(), 1..60),
        waiting_effects_max in 0usize..12,
    ) {
        let history = History::new(log_id(1), "node/gw-1", &steps);
        let engine = Arc::new(MemoryEngine::new());
        let mut materializer = open(&engine, CommitBounds { waiting_effects_max, ..CommitBounds::default() });
        let mut inputs = history.events.iter().cloned().zip(0u64..);
        let mut ticket = None;
        let mut released: Vec<Effect> = Vec::new();
        for call in calls {
            let now = match call {
                Call::Fold => {
                    if let Some((envelope, offset)) = inputs.next() {
                        materializer.fold((Offset(offset), envelope)).expect("continues");
                    }
                    continue;
                }
                Call::Commit => {
                    materializer.commit().expect("commits");
                    continue;
                }
                Call::SyncElsewhere => {
                    // The other thread is quick; we hear of it when more is committed.
                    ticket = Some(materializer.ticket());
                    engine.sync().expect("syncs");
                    continue;
                }
                Call::HearOfSync => {
                    let Some(ticket) = ticket.take() else { continue };
                    materializer.synced(ticket)
                }
                Call::CommitSynced => materializer.commit_synced().expect("commits"),
                Call::Sync => materializer.sync().expect("syncs"),
            };
            for (stream, position) in &now.moved {
                prop_assert_eq!(materializer.durable_position(stream), *position);
            }
            released.extend(now.effects);
        }
        let durable = materializer.durable_position(&history.stream);
        let survivor = Arc::new(engine.crash(Survival::Synced));
        let at = history.assert_prefix(&*survivor);
        for effect in &released {
            prop_assert!(effect.seq.0 as usize <= at, "{effect:?} is above what survives, {at}");
        }
        let durable = durable.map_or(0, |(checkpoint, _)| checkpoint.seq.0 as usize);
        prop_assert!(durable <= at, "durable {durable} is above what survives, {at}");
        let read = CURSORS.get(&*survivor, &Partition(0)).expect("reads");
        prop_assert_eq!(read.map_or(0, |cursor| cursor.next.0 as usize), at);

        // In order, each once, none left out below what is durable.
        let mut all = Vec::new();
        let mut replay = open(&Arc::new(MemoryEngine::new()), CommitBounds::default());
        for (envelope, offset) in history.events.iter().cloned().zip(0u64..) {
            replay.fold((Offset(offset), envelope)).expect("continues");
        }
        all.extend(replay.commit_synced().expect("commits").effects);
        let expected = all.iter().filter(|effect| effect.seq.0 as usize <= durable).count();
        prop_assert_eq!(&released[..], &all[..expected]);
    }
}

fn five() -> History {
    let steps: Vec<_> =
        (1..6).map(|n| crate::stream::history::Step::Apply { key: n, object: 0 }).collect();
    History::new(log_id(1), "node/gw-1", &steps)
}

#[test]
fn a_refused_input_leaves_the_batch_as_it_was() {
    let (history, engine) = (five(), Arc::new(MemoryEngine::new()));
    let mut materializer = open(&engine, CommitBounds { inputs_max: 2, ..CommitBounds::default() });
    let input = |at: usize| (Offset(at as u64), history.events[at].clone());
    materializer.fold(input(0)).expect("continues");
    let gap = materializer.fold(input(3)).expect_err("a gap means stop");
    assert!(gap.is_deterministic(), "{gap}");
    assert!(!materializer.is_full());
    materializer.fold(input(1)).expect("continues");
    assert!(materializer.is_full());
    materializer.commit().expect("commits");
    assert!(materializer.is_ahead_of_durable() && !materializer.is_full());
    assert_eq!(materializer.waiting_effects(), 2);
    assert_eq!(history.assert_prefix(&*engine), 2);
    let released = materializer.sync().expect("syncs");
    assert!(matches!(released.effects[..], [Effect { kind: EffectKind::Added(_), .. }, _]));
    assert_eq!(ACCEPTANCE.get(&*engine, &Partition(0)).expect("reads"), Some("accepted".into()));
    let syncs = engine.counts().syncs;
    materializer.sync().expect("nothing to sync");
    assert_eq!(engine.counts().syncs, syncs);
}

#[test]
fn nothing_is_taken_or_released_after_a_failed_write() {
    let (history, engine) = (five(), Arc::new(MemoryEngine::new()));
    let mut materializer = open(&engine, CommitBounds::default());
    let input = |at: usize| (Offset(at as u64), history.events[at].clone());
    materializer.fold(input(0)).expect("continues");
    materializer.commit().expect("commits");
    engine.fail_write(1, Failure { disk_full: true, took_effect: true });
    materializer.fold(input(1)).expect("continues");
    materializer.commit().expect_err("the disk is full");
    assert!(matches!(materializer.fold(input(2)), Err(FoldError::Engine(_))));
    assert!(materializer.sync().is_err());
    assert_eq!(materializer.synced(SyncTicket(9)).effects.len(), 0);
    let engine = Arc::new(engine.reopen());
    assert_eq!(history.assert_prefix(&*engine), 2, "the write took effect after all");
    let mut materializer = open(&engine, CommitBounds::default());
    materializer.fold(input(2)).expect("goes on where the state is");
}

#[test]
fn effects_do_not_wait_without_bound() {
    let (history, engine) = (five(), Arc::new(MemoryEngine::new()));
    let mut materializer =
        open(&engine, CommitBounds { waiting_effects_max: 4, ..CommitBounds::default() });
    let mut synced = Vec::new();
    for (envelope, offset) in history.events.iter().cloned().zip(0u64..) {
        materializer.fold((Offset(offset), envelope)).expect("continues");
        materializer.commit().expect("commits");
        synced.push(!materializer.is_ahead_of_durable());
    }
    assert_eq!(synced, [false, false, true, true, true], "effects and commits count");
    assert_eq!(materializer.sync().expect("nothing to sync").effects.len(), 5);
}
