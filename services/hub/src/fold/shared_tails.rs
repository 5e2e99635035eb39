//! The pushes of a shared stream that its sessions send alike.
//!
//! Sessions that keep up are at one position, and each sends the events behind it. The first makes the
//! push, the others send the same one. They last until the next event of the stream.

use std::sync::{Arc, Mutex, PoisonError};

use headwater_event::Seq;
use headwater_session::message::Push;
use headwater_session::{SharedPush, SourceError};

/// Pushes of one stream, each up to 1 MiB: sessions are at a few positions at most while a batch of
/// events is sent. Beyond them the oldest one goes, and sessions make it once more.
const PUSHES_MAX: usize = 4;

/// The pushes that lead to one end of a stream.
#[derive(Debug, Default)]
pub(super) struct SharedTails {
    pushes: Mutex<Vec<Arc<SharedPush>>>,
}

impl SharedTails {
    /// The push behind `from` of at most `bytes_max`: the one that another session sends, else the
    /// result of `make`. A push of one event may be larger.
    ///
    /// # Errors
    /// As `make`.
    pub(super) fn behind(
        &self,
        from: Seq,
        bytes_max: u64,
        make: impl FnOnce() -> Result<Option<Push>, SourceError>,
    ) -> Result<Option<Arc<SharedPush>>, SourceError> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fit = |shared: &&Arc<SharedPush>| {
            let push = shared.push();
            push.from == from && (shared.bytes() <= bytes_max || push.to.seq == from.next())
        };
        if let Some(shared) = pushes.iter().find(is_fit) {
            return Ok(Some(shared.clone()));
        }
        // The lock is held meanwhile, so that a crowd of sessions makes one push.
        let Some(push) = make()? else { return Ok(None) };
        let shared = Arc::new(SharedPush::new(push));
        if pushes.len() == PUSHES_MAX {
            pushes.remove(0);
        }
        pushes.push(shared.clone());
        Ok(Some(shared))
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{
        Change, Checkpoint, LogId, RemovalRuns, Removed, StateHash, StreamId, WriterEpoch,
    };
    use headwater_session::message::PushMode;
    use uuid::Uuid;

    use super::*;

    fn push(from: u64, to: u64) -> Push {
        let removed = |n| {
            let key = format!("d/service/s{n}").parse().expect("a key");
            Change::Removed(Removed { key, uid: "u".to_owned() }).into()
        };
        let log_id = LogId { number: 1, uuid: Uuid::nil() };
        Push {
            stream: StreamId::Cluster,
            mode: PushMode::Tail,
            from: Seq(from),
            to: Checkpoint { log_id, epoch: WriterEpoch(1), seq: Seq(to) },
            gone: RemovalRuns::default(),
            changes: (from..to).map(removed).collect(),
            hash: StateHash::EMPTY,
            part: 0,
            last_part: true,
        }
    }

    #[test]
    fn a_push_is_made_once_for_all_sessions_at_a_position() {
        let tails = SharedTails::default();
        let bytes = push(3, 5).bytes();
        let first = tails.behind(Seq(3), bytes, || Ok(Some(push(3, 5)))).expect("made");
        let first = first.expect("there are events");
        for room in [bytes, u64::MAX] {
            let again = tails.behind(Seq(3), room, || unreachable!("it is made"));
            assert!(Arc::ptr_eq(&first, &again.expect("known").expect("known")));
        }
        let other = tails.behind(Seq(4), bytes, || Ok(Some(push(4, 5)))).expect("made");
        assert_eq!(other.expect("there are events").push().from, Seq(4));
    }

    #[test]
    fn a_push_beyond_the_room_of_a_session_is_not_taken() {
        let tails = SharedTails::default();
        let whole = || tails.behind(Seq(3), u64::MAX, || Ok(Some(push(3, 5))));
        whole().expect("made");
        let small = tails.behind(Seq(3), push(3, 5).bytes() - 1, || Ok(Some(push(3, 4))));
        assert_eq!(small.expect("made").expect("there is one").push().to.seq, Seq(4));
        assert_eq!(whole().expect("known").expect("known").push().to.seq, Seq(5));
        let one = tails.behind(Seq(3), 1, || unreachable!("one event passes always"));
        assert_eq!(one.expect("known").expect("known").push().to.seq, Seq(4));
    }

    #[test]
    fn few_pushes_are_kept() {
        let tails = SharedTails::default();
        for from in 0..10 {
            tails.behind(Seq(from), u64::MAX, || Ok(Some(push(from, 20)))).expect("made");
        }
        assert_eq!(tails.pushes.lock().expect("whole").len(), PUSHES_MAX);
        assert_eq!(tails.behind(Seq(0), u64::MAX, || Ok(None)), Ok(None), "it is gone");
    }
}
