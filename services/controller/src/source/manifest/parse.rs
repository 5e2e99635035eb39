//! Parsing: the text of a file to the values in it, each with its line.
//!
//! YAML is read as Kubernetes reads it: 1.1's booleans and octal numbers. Of two equal keys in a map,
//! of YAML or JSON, the last one counts, with a notice. Under strict validation the document is refused.
//! A text that begins with `{` is tried as JSON first, as kubectl does.

use std::path::Path;

use headwater_object::fields::FieldPath;
use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::distinct_keys::duplicate_key;
use super::document::{Chunk, split};
use super::field_line::FieldLines;
use super::validation::Validation;
use crate::source::{Notice, NoticeKind};

/// The most documents of one file: a thousand times what people write, and a bound.
const DOCUMENTS_MAX: usize = 10_000;

/// The most nodes (maps, lists, scalars) of one document, aliases expanded: some ten times what
/// fits in the largest object that is replicated, so that a YAML bomb ends here.
const NODES_MAX: usize = 500_000;

/// The deepest nesting of one document.
const DEPTH_MAX: usize = 64;

/// What is most often the matter with a document that holds `{{`.
const UNFILLED_TEMPLATE: &str = " (a template whose {{...}} are not filled in?)";

/// A value in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document<'a> {
    /// Where it begins, from 1.
    pub(crate) line: u64,
    /// Its content.
    pub(crate) value: Value,
    /// The text that it was read from.
    pub(crate) text: DocumentText<'a>,
}

/// The text of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DocumentText<'a> {
    text: &'a str,
    /// The number of its first line in the file, from 1.
    first_line: u64,
    /// Which of the documents in the text is meant, from 0.
    at: usize,
}

/// A finding about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where.
    pub(crate) line: Option<u64>,
    /// What it is about.
    pub(crate) kind: NoticeKind,
    /// In words.
    pub(crate) text: String,
}

impl Finding {
    /// A document that does not parse.
    pub(crate) fn unreadable(line: Option<u64>, text: impl Into<String>) -> Self {
        Self { line, kind: NoticeKind::Unreadable, text: text.into() }
    }

    /// Whether the finding leaves something out: a document, or a file.
    pub(crate) fn leaves_out(&self) -> bool {
        self.kind != NoticeKind::Doubtful
    }

    /// The notice of this finding in `file`.
    pub(crate) fn in_file(&self, file: &Path) -> Notice {
        let Self { line, kind, text } = self.clone();
        Notice { file: Some(file.to_owned()), line, kind, text }
    }
}

impl DocumentText<'_> {
    /// Returns the lines in the file of the fields at `paths`; where a path has none, `line`.
    pub(crate) fn lines<'p>(
        &self,
        paths: impl Iterator<Item = &'p FieldPath>,
        line: u64,
    ) -> Vec<u64> {
        let lines = FieldLines::of(self.text, self.first_line);
        paths.map(|path| lines.line(self.at, path).unwrap_or(line)).collect()
    }
}

/// The documents of a file, and what of it is none.
pub(crate) fn parse(text: &str, validation: Validation) -> (Vec<Document<'_>>, Vec<Finding>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut documents, mut findings) = (Vec::new(), Vec::new());
    if text.trim_start().starts_with('{')
        && let Ok(values) = parse_json(text)
    {
        documents.extend(values.into_iter().filter(|document| {
            let found = duplicate_key(document.text.text);
            let finding = found.map(|found| {
                let line = document.line + found.line - 1;
                duplicate_key_finding(line, &found.text, validation)
            });
            let is_refused = finding.as_ref().is_some_and(Finding::leaves_out);
            findings.extend(finding);
            !is_refused
        }));
        return (documents, findings);
    }
    let chunks = split(text);
    if let Some(first_left_out) = chunks.get(DOCUMENTS_MAX) {
        findings.push(Finding::unreadable(
            Some(first_left_out.first_line),
            format!("more than {DOCUMENTS_MAX} documents: split the file"),
        ));
    }
    for chunk in chunks.into_iter().take(DOCUMENTS_MAX) {
        documents.extend(parse_yaml(&chunk, validation, &mut findings));
    }
    (documents, findings)
}

fn parse_json(text: &str) -> Result<Vec<Document<'_>>, serde_json::Error> {
    let mut documents = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (mut start, mut line) = (0, 1);
    while let Some(value) = {
        let next = text.len() - text[values.byte_offset()..].trim_start().len();
        line += newlines(&text[start..next]);
        start = next;
        values.next()
    } {
        let value = value?;
        let of = &text[start..values.byte_offset()];
        let text = DocumentText { text: of, first_line: line, at: 0 };
        documents.push(Document { line, value, text });
    }
    Ok(documents)
}

fn newlines(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

fn parse_yaml<'a>(
    chunk: &Chunk<'a>,
    validation: Validation,
    findings: &mut Vec<Finding>,
) -> Vec<Document<'a>> {
    let mut read = read_yaml(chunk.text, DuplicateKeyPolicy::Error);
    if let Err(error @ serde_saphyr::Error::DuplicateMappingKey { .. }) = &read {
        let again = read_yaml(chunk.text, DuplicateKeyPolicy::LastWins);
        if again.is_ok() {
            let line = line_of(error, chunk);
            let finding = duplicate_key_finding(line, &reason(error), validation);
            let is_refused = finding.leaves_out();
            findings.push(finding);
            if is_refused {
                return Vec::new();
            }
            read = again;
        }
    }
    let values = match read {
        Ok(values) => values,
        Err(error) => {
            let hint = if chunk.text.contains("{{") { UNFILLED_TEMPLATE } else { "" };
            let text = format!("not YAML: {}{hint}", reason(&error));
            findings.push(Finding::unreadable(Some(line_of(&error, chunk)), text));
            return Vec::new();
        }
    };
    let documents = values.into_iter().filter(|value| !value.is_null());
    let document = |(at, value)| Document {
        line: chunk.content_line,
        value,
        text: DocumentText { text: chunk.text, first_line: chunk.first_line, at },
    };
    documents.enumerate().map(document).collect()
}

/// The finding about a key that a map has twice.
fn duplicate_key_finding(line: u64, text: &str, validation: Validation) -> Finding {
    let (kind, rest) = match validation {
        Validation::Strict => (NoticeKind::Invalid, "remove one of the two (--strict)"),
        Validation::Warn => (NoticeKind::Doubtful, "the last one counts"),
    };
    Finding { line: Some(line), kind, text: format!("{text}: {rest}") }
}

fn read_yaml(
    text: &str,
    duplicate_keys: DuplicateKeyPolicy,
) -> Result<Vec<Value>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, options(duplicate_keys))
}

/// How YAML is read.
pub(crate) fn options(duplicate_keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: NODES_MAX, max_depth: DEPTH_MAX },
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn line_of(error: &serde_saphyr::Error, chunk: &Chunk<'_>) -> u64 {
    error.location().map_or(chunk.content_line, |at| chunk.first_line + at.line().saturating_sub(1))
}

/// The error without its place, which counts from the document's start instead of the file's.
fn reason(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let ends = [" at line ", ", set DuplicateKeyPolicy"].iter().filter_map(|end| text.find(end));
    text[..ends.min().unwrap_or(text.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> (Vec<Document<'_>>, Vec<Finding>) {
        super::parse(text, Validation::Warn)
    }

    fn values(text: &str) -> Vec<Value> {
        let (documents, findings) = parse(text);
        assert_eq!(findings, [], "{text}");
        documents.into_iter().map(|document| document.value).collect()
    }

    #[test]
    fn yaml_is_read_as_kubernetes_reads_it() {
        assert_eq!(
            values("a: 0644\nb: yes\nc: \"no\"\nd: 1.5\ne: ~\nf: 0o17\n"),
            [json!({"a": 0o644, "b": true, "c": "no", "d": 1.5, "e": null, "f": 0o17})]
        );
        assert_eq!(
            values("x: &a {k: 1}\ny: *a\nz: {<<: *a, l: 2}"),
            [json!({"x": {"k": 1}, "y": {"k": 1}, "z": {"k": 1, "l": 2}})]
        );
        assert_eq!(values("1: a\ntrue: b\n"), [json!({"1": "a", "true": "b"})]);
    }

    #[test]
    fn json_is_read_too_and_several_to_a_file() {
        let (documents, findings) = parse("\n{\"a\":\t1}\n\n{\"b\": 2}\n");
        assert_eq!(findings, []);
        let found: Vec<_> =
            documents.iter().map(|d| (d.line, d.value.clone(), d.text.text)).collect();
        assert_eq!(
            found,
            [(2, json!({"a": 1}), "{\"a\":\t1}"), (4, json!({"b": 2}), "{\"b\": 2}")]
        );
        assert_eq!(values("{a: 1}"), [json!({"a": 1})], "flow YAML is no JSON, and fine");
        assert_eq!(values("\u{feff}a: 1"), [json!({"a": 1})]);
    }

    #[test]
    fn a_broken_document_leaves_its_neighbours_and_is_named_by_its_line_in_the_file() {
        let (documents, findings) = parse("a: 1\n---\nb: [\n---\nc: 3\n---\nd: 4\n d: 5\n");
        assert_eq!(documents.iter().map(|d| d.line).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(findings.len(), 2);
        assert!((3..=4).contains(&findings[0].line.expect("a line")), "{findings:?}");
        assert!((7..=8).contains(&findings[1].line.expect("a line")), "{findings:?}");
        for finding in findings {
            assert_eq!(finding.kind, NoticeKind::Unreadable);
            assert!(!finding.text.contains("line "), "{}", finding.text);
        }
    }

    #[test]
    fn of_a_key_that_occurs_twice_the_last_counts_and_a_finding_names_it() {
        let (documents, findings) = parse("x: 0\n---\nd: 4\nd: 5\n");
        assert_eq!(documents[1].value, json!({"d": 5}));
        assert_eq!(
            findings,
            [Finding {
                line: Some(4),
                kind: NoticeKind::Doubtful,
                text: "duplicate mapping key: d: the last one counts".to_owned(),
            }]
        );
        let (documents, findings) = super::parse("x: 0\n---\nd: 4\nd: 5\n", Validation::Strict);
        assert_eq!(documents.len(), 1, "under strict validation it is refused");
        let text = "duplicate mapping key: d: remove one of the two (--strict)".to_owned();
        assert_eq!(findings, [Finding { line: Some(4), kind: NoticeKind::Invalid, text }]);
    }

    #[test]
    fn a_key_twice_in_json_is_found_as_in_yaml() {
        let text = "{\"x\": 0}\n{\"d\": 4,\n \"d\": 5}\n{\"y\": 1}\n";
        let (documents, findings) = parse(text);
        let values: Vec<Value> = documents.into_iter().map(|document| document.value).collect();
        assert_eq!(values, [json!({"x": 0}), json!({"d": 5}), json!({"y": 1})]);
        let text_of = |rest: &str| format!("duplicate mapping key: d: {rest}");
        let (kind, line) = (NoticeKind::Doubtful, Some(3));
        assert_eq!(findings, [Finding { line, kind, text: text_of("the last one counts") }]);
        let (documents, findings) = super::parse(text, Validation::Strict);
        assert_eq!(documents.len(), 2, "under strict validation it is refused");
        let (kind, text) = (NoticeKind::Invalid, text_of("remove one of the two (--strict)"));
        assert_eq!(findings, [Finding { line, kind, text }]);
    }

    #[test]
    fn a_template_that_is_no_yaml_is_named() {
        let (documents, findings) = parse("data:\n  config: {{config_data}}\n");
        assert_eq!(documents, []);
        assert_eq!(findings[0].line, Some(2), "{findings:?}");
        assert!(findings[0].text.contains("a template"), "{findings:?}");
    }

    #[test]
    fn a_bomb_goes_off_small() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let alias = format!("*a{}", n - 1);
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![alias; 10].join(", ")));
        }
        assert_eq!(parse(&bomb).1.len(), 1);
        assert_eq!(parse(&"[".repeat(100_000)).1.len(), 1);
        let deep = format!("{}{}", "{\"a\":".repeat(100_000), "1");
        assert_eq!(parse(&deep).1.len(), 1);
    }
}
