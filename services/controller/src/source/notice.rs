//! Notices: what a source tells a person, once, where to look and what is the matter.

use std::fmt;
use std::path::PathBuf;

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeKind {
    /// A document that does not parse. What it described before stays in place.
    Unreadable,
    /// A document that is no Kubernetes object, or an invalid one. As before, it stays in place.
    Invalid,
    /// A document that is taken, though hardly meant as it stands.
    Doubtful,
    /// An object that an earlier document describes already; this one has no effect.
    Duplicate,
    /// A kind that is not replicated; told once for each kind.
    NotReplicated,
    /// A pod that no node fits.
    Unplaced,
    /// A file or folder that is not looked into.
    Skipped,
    /// The state of the source itself.
    Source,
}

impl NoticeKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Unreadable,
        Self::Invalid,
        Self::Doubtful,
        Self::Duplicate,
        Self::NotReplicated,
        Self::Unplaced,
        Self::Skipped,
        Self::Source,
    ];

    /// Its name, as metrics say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Invalid => "invalid",
            Self::Doubtful => "doubtful",
            Self::Duplicate => "duplicate",
            Self::NotReplicated => "not_replicated",
            Self::Unplaced => "unplaced",
            Self::Skipped => "skipped",
            Self::Source => "source",
        }
    }
}

/// Something a person should be told, once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notice {
    /// The file concerned, relative to the folder.
    pub file: Option<PathBuf>,
    /// The line in it, from 1.
    pub line: Option<u64>,
    /// What it is about.
    pub kind: NoticeKind,
    /// The reason, in words.
    pub text: String,
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
    fn a_notice_reads_as_compilers_speak() {
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
