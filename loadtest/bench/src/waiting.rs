//! What of a pace has not been seen yet.

use crate::pace::{Latency, Pace};

/// The turns that were not seen yet, by object: turn `n` changes object `n` modulo their number, and an
/// observer that sees the object of one turn has seen all earlier turns of it.
pub(crate) struct Waiting {
    base: u64,
    pace: Pace,
    /// Of each object, the first turn that was not seen.
    next: Vec<u64>,
    left: u64,
    pub(crate) latency: Latency,
}

impl Waiting {
    /// Waits for the turns of `pace` about `objects`, counted from behind `base`.
    pub(crate) fn new(base: u64, pace: Pace, objects: u64) -> Self {
        let first = |object: u64| match (object + objects - base % objects) % objects {
            0 => objects,
            turn => turn,
        };
        let next = (0..objects).map(first).collect();
        Self { base, pace, next, left: pace.count, latency: Latency::new() }
    }

    /// Whether all are seen.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// How many objects there are.
    pub(crate) fn objects(&self) -> u64 {
        self.next.len() as u64
    }

    /// Whether no turn of one object, up to `last`, is missing.
    pub(crate) fn has_seen_all_of(&self, object: u64, last: u64) -> bool {
        let next = usize::try_from(object).ok().and_then(|object| self.next.get(object));
        next.is_none_or(|next| self.base + next > last)
    }

    /// An object is seen as `turn`, counted from the very first, made it.
    pub(crate) fn see(&mut self, turn: u64) {
        let Some(seen) = turn.checked_sub(self.base) else { return };
        let objects = self.objects();
        let Ok(object) = usize::try_from(turn % objects.max(1)) else { return };
        let Some(next) = self.next.get_mut(object) else { return };
        while *next <= seen.min(self.pace.count) {
            if *next > self.pace.warm_up {
                self.latency.record(self.pace.since(*next));
            }
            self.left -= 1;
            *next += objects;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sees_a_turn_has_seen_those_before_of_the_same_object() {
        let mut waiting = Waiting::new(7, Pace::new(1_000, 5, 1), 2);
        waiting.see(6);
        assert!(!waiting.is_over(), "that was before");
        waiting.see(12);
        assert_eq!((waiting.left, waiting.latency.count()), (3, 2), "8, 10, 12; 8 shows the way");
        waiting.see(13);
        waiting.see(13);
        assert!(waiting.is_over() && waiting.latency.count() == 5);
        waiting.see(15);
        assert!(waiting.is_over(), "there is no such turn");
    }
}
