//! A delta or snapshot, read whole when it is asked for and given out in parts.
//!
//! It is held in memory until it is sent: as much as one node's state, which its session's
//! window may have in flight anyway. Objects share the bytes that were read.

use std::collections::VecDeque;

use headwater_session::message::{PushedChange, change_bytes};
use headwater_session::{CatchUp, CatchUpPart, SourceError};

/// Changes not yet given out.
pub(super) struct Changes {
    rest: VecDeque<PushedChange>,
}

impl Changes {
    pub(super) fn new(changes: impl IntoIterator<Item = PushedChange>) -> Self {
        Self { rest: changes.into_iter().collect() }
    }
}

impl CatchUp for Changes {
    fn next(&mut self, bytes_max: u64) -> Result<CatchUpPart, SourceError> {
        let mut changes = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.rest.front() {
            bytes += change_bytes(&next.change);
            if bytes > bytes_max && !changes.is_empty() {
                break;
            }
            changes.extend(self.rest.pop_front());
        }
        Ok(CatchUpPart { changes, last: self.rest.is_empty() })
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{Change, Removed};

    use super::*;

    #[test]
    fn parts_are_cut_at_the_bound_but_never_empty_before_the_end() {
        let change = |n: u8| PushedChange {
            change: Change::Removed(Removed {
                key: format!("d/pod/p{n}").parse().expect("a key"),
                uid: "u".to_owned(),
            }),
            traceparent: None,
        };
        let one = change_bytes(&change(1).change);
        let mut changes = Changes::new((1..=5).map(change));
        let sizes: Vec<_> = std::iter::from_fn(|| {
            let part = changes.next(2 * one).expect("readable");
            (!part.changes.is_empty()).then_some((part.changes.len(), part.last))
        })
        .collect();
        assert_eq!(sizes, [(2, false), (2, false), (1, true)]);
        let mut tiny = Changes::new([change(1)]);
        assert_eq!(tiny.next(1).expect("readable").changes.len(), 1);
        assert!(Changes::new([]).next(1).expect("readable").last);
    }
}
