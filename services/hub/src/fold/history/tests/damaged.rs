//! A fold with damaged rows: a session reads it or gets an error, and the fold continues.

use headwater_session::TransferReader;
use headwater_store::damage::{apply_damage, damage};

use super::*;

/// More parts than the few changes of one fold make.
const PARTS_MAX: usize = 1_000;

/// Reads everything that a session may read.
fn read(engine: &Arc<MemoryEngine>, to: Seq) {
    let fold = Fold::new(engine.clone());
    fold.assume_log(LOG);
    let source = fold.source();
    let stream = &StreamId::Cluster;
    let _ = source.status(stream);
    let _ = source.streams(&"a".parse().expect("a name"));
    let node = "a".parse().expect("a name");
    let _ = source.has_object(&node, &"d/service/s1".parse().expect("a key"));
    let _ = source.references(&node);
    for epoch in [0, 1, u64::MAX] {
        let _ = source.next_epoch_from(stream, WriterEpoch(epoch));
    }
    for since in [Seq(0), Seq(to.0 / 2), to] {
        let _ = source.events(stream, since, to, 100);
        end(source.delta(stream, since).ok());
    }
    end(source.snapshot(stream).ok());
}

fn end(reader: Option<Box<dyn TransferReader>>) {
    let Some(mut reader) = reader else { return };
    for part in 0.. {
        assert!(part < PARTS_MAX, "it does not end");
        match reader.next(100) {
            Ok(part) if !part.last => {}
            Ok(_) | Err(_) => return,
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_fold_is_read_or_refused(
        changes in changes(), more in changes(), limits in limits(), damages in damage(),
    ) {
        let mut model = Model::new();
        changes.iter().for_each(|(key, object)| model.append(*key, *object));
        let engine = Arc::new(MemoryEngine::new());
        fold(&engine, &model.events, Continuity::Dense, 7, limits);
        apply_damage(&*engine, &damages).expect("memory takes it");
        let tail = model.events.len();
        read(&engine, Seq(tail as u64));
        more.iter().for_each(|(key, object)| model.append(*key, *object));
        if let Ok(mut state) = StreamState::open(engine.clone(), FoldBounds::default()) {
            let (mut rows, mut effects) = (History { limits, ..History::default() }, Vec::new());
            for envelope in &model.events[tail..] {
                let noted = rows.derive(envelope, Continuity::Sparse, &mut state);
                let folded = noted.is_ok().then(|| {
                    state.apply_event(LOG, envelope.clone(), Continuity::Sparse, &mut effects)
                });
                if !matches!(folded, Some(Ok(()))) {
                    break;
                }
            }
            rows.before_commit(&mut state);
            let _ = state.commit(Durability::Buffered);
        }
        read(&engine, Seq(model.events.len() as u64));
    }
}
