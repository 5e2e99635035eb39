//! The troubles of a source's documents, for as long as they hold.
//!
//! A notice is sent once; what it names may be wrong for weeks. The source therefore reports the set
//! of notices that hold after each look, and `status` and metrics read it.

use std::collections::BTreeSet;

use super::{Notice, NoticeKind};

/// The most troubles that are kept as text. The others are counted.
pub(super) const DOCUMENT_TROUBLES_MAX: usize = 20;

/// What is wrong with the documents of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DocumentTroubles {
    /// The gravest ones, in words.
    first: Vec<String>,
    /// How many there are of each of [`NoticeKind::TROUBLES`].
    counts: [usize; NoticeKind::TROUBLES.len()],
}

impl DocumentTroubles {
    /// The troubles among `notices`.
    pub(super) fn of<'n>(notices: impl Iterator<Item = &'n Notice>) -> Self {
        let mut sorted = BTreeSet::new();
        let mut counts = [0; NoticeKind::TROUBLES.len()];
        for notice in notices {
            let gravity = NoticeKind::TROUBLES.iter().position(|kind| *kind == notice.kind);
            let Some(gravity) = gravity else { continue };
            counts[gravity] += 1;
            sorted.insert((gravity, notice));
            if sorted.len() > DOCUMENT_TROUBLES_MAX {
                sorted.pop_last();
            }
        }
        Self { first: sorted.into_iter().map(|(_, notice)| notice.to_string()).collect(), counts }
    }

    /// How many troubles of each kind there are in all of them.
    pub(super) fn totals<'t>(
        all: impl Iterator<Item = &'t Self>,
    ) -> impl Iterator<Item = (NoticeKind, usize)> {
        let mut totals = [0; NoticeKind::TROUBLES.len()];
        for troubles in all {
            totals.iter_mut().zip(troubles.counts).for_each(|(total, count)| *total += count);
        }
        NoticeKind::TROUBLES.into_iter().zip(totals)
    }

    /// The sentences for `status`: the first [`DOCUMENT_TROUBLES_MAX`], and the number of the others.
    pub(super) fn sentences(&self) -> impl Iterator<Item = String> {
        let more = self.counts.iter().sum::<usize>().saturating_sub(self.first.len());
        let rest =
            (more > 0).then(|| format!("{more} more documents have troubles; the log has them"));
        self.first.iter().cloned().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(file: &str, line: u64, kind: NoticeKind) -> Notice {
        Notice { file: Some(file.into()), line: Some(line), kind, text: "wrong".to_owned() }
    }

    #[test]
    fn the_gravest_troubles_come_first_and_the_others_are_counted() {
        let doubts = (1..=30).map(|line| notice("a.yaml", line, NoticeKind::Doubtful));
        let others = [
            notice("z.yaml", 1, NoticeKind::Unreadable),
            notice("b.yaml", 1, NoticeKind::Skipped),
            notice("c.yaml", 1, NoticeKind::NotReplicated),
        ];
        let notices: Vec<Notice> = doubts.chain(others).collect();
        let troubles = DocumentTroubles::of(notices.iter());
        let sentences: Vec<String> = troubles.sentences().collect();
        assert_eq!(sentences.len(), DOCUMENT_TROUBLES_MAX + 1);
        assert_eq!(sentences[0], "z.yaml:1: wrong");
        assert_eq!(sentences[1], "a.yaml:1: wrong");
        assert_eq!(sentences[20], "11 more documents have troubles; the log has them");
        let other = DocumentTroubles::of([notice("a", 1, NoticeKind::Unreadable)].iter());
        let totals: Vec<_> = DocumentTroubles::totals([&troubles, &other].into_iter()).collect();
        let count = |kind| totals.iter().find(|(of, _)| *of == kind).map(|(_, count)| *count);
        assert_eq!(count(NoticeKind::Doubtful), Some(30));
        assert_eq!(count(NoticeKind::Unreadable), Some(2));
        assert_eq!(count(NoticeKind::Skipped), None, "nothing is wrong there");
        assert_eq!(DocumentTroubles::default().sentences().count(), 0);
    }
}
