//! Notices: messages of a source to a person, each sent once. They name the place and the reason.

use std::fmt;
use std::path::PathBuf;

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeKind {
    /// A document that does not parse, or a file or folder that cannot be read. What it described
    /// before stays in place.
    Unreadable,
    /// A document that is no valid Kubernetes object. What it described before stays in place.
    Invalid,
    /// A document that is accepted, though it hardly means what it says.
    Doubtful,
    /// An object that an earlier document describes already; this one has no effect.
    Duplicate,
    /// A kind that is not replicated; one notice for each kind.
    NotReplicated,
    /// A pod that no node fits.
    Unplaced,
    /// A rollout that made no progress within its deadline.
    Stalled,
    /// A file or folder that is not read, on purpose.
    Skipped,
    /// The state of the source itself.
    Source,
    /// An earlier notice does not hold any more.
    Repaired,
}

impl NoticeKind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Unreadable,
        Self::Invalid,
        Self::Doubtful,
        Self::Duplicate,
        Self::NotReplicated,
        Self::Unplaced,
        Self::Stalled,
        Self::Skipped,
        Self::Source,
        Self::Repaired,
    ];

    /// The kinds of notices that hold until what they name is repaired, the gravest first.
    pub(crate) const TROUBLES: [Self; 7] = [
        Self::Unreadable,
        Self::Invalid,
        Self::Duplicate,
        Self::Unplaced,
        Self::Stalled,
        Self::Source,
        Self::Doubtful,
    ];

    /// Its name in the metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Invalid => "invalid",
            Self::Doubtful => "doubtful",
            Self::Duplicate => "duplicate",
            Self::NotReplicated => "not_replicated",
            Self::Unplaced => "unplaced",
            Self::Stalled => "stalled",
            Self::Skipped => "skipped",
            Self::Source => "source",
            Self::Repaired => "repaired",
        }
    }
}

/// A message to a person, sent once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notice {
    /// The file, relative to the folder.
    pub file: Option<PathBuf>,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// What it is about.
    pub kind: NoticeKind,
    /// The reason, in words.
    pub text: String,
}

impl Notice {
    /// Whether it holds until what it names is repaired.
    pub(crate) fn is_trouble(&self) -> bool {
        NoticeKind::TROUBLES.contains(&self.kind)
    }

    /// Whether `other` is about the same thing, moved to another line or worded in another way.
    pub(crate) fn is_succeeded_by(&self, other: &Self) -> bool {
        self.file == other.file
            && self.kind == other.kind
            && (self.line == other.line || self.text == other.text)
    }

    /// The notice that this one does not hold any more.
    pub(crate) fn repaired(&self) -> Self {
        let text = format!("repaired: {}", self.text);
        Self { kind: NoticeKind::Repaired, text, ..self.clone() }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_looks_like_a_compiler_message() {
        let mut notice = Notice {
            file: Some("web/pod.yaml".into()),
            line: Some(3),
            kind: NoticeKind::Invalid,
            text: "no kind".to_owned(),
        };
        assert_eq!(notice.to_string(), "web/pod.yaml:3: no kind");
        notice.line = None;
        assert_eq!(notice.to_string(), "web/pod.yaml: no kind");
        notice.file = None;
        assert_eq!(notice.to_string(), "no kind");
    }
}
