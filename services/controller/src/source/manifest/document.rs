//! Documents: splits the text of a file at YAML's document markers.
//!
//! Splitting before parsing keeps the documents of a file apart: one that does not parse does
//! not affect the next. A line that begins with `---` is a marker at any place (YAML 1.2, production
//! 206), so no parsing is needed to find it.

/// A part of a file that holds one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    /// Number of its first line in the file, from 1.
    pub(crate) first_line: u64,
    /// Number of the first line that is not a comment, a marker or blank.
    pub(crate) content_line: u64,
    /// Its text.
    pub(crate) text: &'a str,
}

/// The documents in `text` that are not empty.
pub(crate) fn split(text: &str) -> Vec<Chunk<'_>> {
    let mut chunks = Vec::new();
    let mut open = Open { start: 0, first_line: 1, content_line: None };
    let (mut at, mut line_number) = (0, 0);
    for line in text.split_inclusive('\n') {
        line_number += 1;
        if is_marker(line) && open.content_line.is_some() {
            chunks.extend(open.close(&text[..at]));
            open = Open { start: at, first_line: line_number, content_line: None };
        }
        if open.content_line.is_none() && has_content(line) {
            open.content_line = Some(line_number);
        }
        at += line.len();
    }
    chunks.extend(open.close(text));
    chunks
}

/// A chunk whose end is not found yet.
struct Open {
    start: usize,
    first_line: u64,
    content_line: Option<u64>,
}

impl Open {
    fn close<'a>(&self, text_up_to_end: &'a str) -> Option<Chunk<'a>> {
        Some(Chunk {
            first_line: self.first_line,
            content_line: self.content_line?,
            text: &text_up_to_end[self.start..],
        })
    }
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn has_content(line: &str) -> bool {
    let line = if is_marker(line) { &line[3..] } else { line }.trim();
    !line.is_empty() && !line.starts_with('#') && !line.starts_with('%') && line != "..."
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<(u64, u64, &str)> {
        split(text).into_iter().map(|c| (c.first_line, c.content_line, c.text)).collect()
    }

    #[test]
    fn markers_separate_and_lines_are_counted_in_the_file() {
        assert_eq!(lines("a: 1\n---\nb: 2\n"), [(1, 1, "a: 1\n"), (2, 3, "---\nb: 2\n")]);
        assert_eq!(
            lines("---\r\na: 1\r\n--- # c\r\nb: 2"),
            [(1, 2, "---\r\na: 1\r\n"), (3, 4, "--- # c\r\nb: 2")]
        );
        assert_eq!(
            lines("--- {a: 1}\n--- {b: 2}\n"),
            [(1, 1, "--- {a: 1}\n"), (2, 2, "--- {b: 2}\n")]
        );
    }

    #[test]
    fn empty_documents_are_none() {
        assert_eq!(lines(""), []);
        assert_eq!(lines("# only a comment\n---\n\n---\n"), []);
        assert_eq!(lines("---\n---\na: 1\n---\n").len(), 1);
    }

    #[test]
    fn what_only_looks_like_a_marker_is_content() {
        let text = "a: |\n  ---\n  b\n----\n";
        assert_eq!(lines(text), [(1, 1, text)]);
    }

    #[test]
    fn a_directive_belongs_to_the_document_after_it() {
        let text = "%YAML 1.1\n# licence\n---\na: 1\n";
        assert_eq!(lines(text), [(1, 4, text)]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(---|\n|\r|[a-z é:#%. ]){0,40}") {
            for chunk in split(&text) {
                prop_assert!(chunk.first_line <= chunk.content_line);
                prop_assert!(!chunk.text.is_empty());
            }
        }
    }
}
