//! A takeover that is not answered yet: the kinds that have still to catch up with the API. Pure. It does not wait for a
//! kind whose refusals last.

use std::collections::BTreeSet;

use crate::kind::Kind;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatchUp {
    epoch: u64,
    /// The kinds whose watches have not caught up.
    behind: BTreeSet<Kind>,
}

impl CatchUp {
    /// The takeover of `epoch`, in which all of the `followed` kinds are behind.
    pub(crate) fn new(epoch: u64, followed: BTreeSet<Kind>) -> Self {
        Self { epoch, behind: followed }
    }

    /// The epoch of the takeover.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether no kind is behind: the takeover is answered.
    pub(crate) fn is_over(&self) -> bool {
        self.behind.is_empty()
    }

    /// Notes that a kind has caught up in the takeover of `epoch`.
    pub(crate) fn note_caught_up(&mut self, kind: Kind, epoch: u64) {
        if epoch == self.epoch {
            self.behind.remove(&kind);
        }
    }

    /// Notes that the server refuses a kind for good. One that may not be read any more holds up no takeover.
    pub(crate) fn note_lasting_refusal(&mut self, kind: Kind) {
        self.behind.remove(&kind);
    }

    /// Notes that the history of the API is another one: the `followed` kinds are listed anew.
    pub(crate) fn list_anew(&mut self, followed: BTreeSet<Kind>) {
        *self = Self::new(self.epoch, followed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_is_answered_when_each_kind_has_caught_up_or_stays_refused() {
        let followed: BTreeSet<Kind> = [Kind::Pod, Kind::Secret].into();
        let mut catch_up = CatchUp::new(7, followed.clone());
        catch_up.note_caught_up(Kind::Pod, 6);
        catch_up.note_caught_up(Kind::Pod, 7);
        catch_up.list_anew(followed);
        catch_up.note_caught_up(Kind::Pod, 7);
        assert!(!catch_up.is_over());
        catch_up.note_lasting_refusal(Kind::Secret);
        assert!(catch_up.is_over());
        assert!(CatchUp::new(1, BTreeSet::new()).is_over(), "nothing is followed");
    }
}
