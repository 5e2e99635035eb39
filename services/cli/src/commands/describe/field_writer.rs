//! Fields in the layout of `kubectl describe`.

use std::fmt::Write;

use crate::render::plain;
use crate::table::Table;

/// The column of values.
const VALUES_AT: usize = 18;

/// Spaces before the fields of a part.
const INDENT: usize = 2;

/// Writes fields. Values come from objects: control characters are escaped.
#[derive(Default)]
pub(super) struct FieldWriter {
    text: String,
    depth: usize,
}

impl FieldWriter {
    /// Writes `Name:   value`.
    pub(super) fn field(&mut self, name: &str, value: impl AsRef<str>) {
        let name = format!("{}: ", plain(name));
        let indent = self.depth * INDENT;
        let width = VALUES_AT.saturating_sub(indent);
        let line = format!("{:indent$}{name:<width$}{}", "", plain(value.as_ref()));
        self.line(line.trim_end());
    }

    /// Writes a field, unless its value is empty.
    pub(super) fn field_if(&mut self, name: &str, value: impl AsRef<str>) {
        if !value.as_ref().is_empty() {
            self.field(name, value);
        }
    }

    /// Writes a field of several values, one a line.
    pub(super) fn lines(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        let mut values = values.into_iter();
        self.field(name, values.next().unwrap_or_else(|| "<none>".to_owned()));
        for value in values {
            let line = format!("{:VALUES_AT$}{}", "", plain(&value));
            self.line(line.trim_end());
        }
    }

    /// Writes `Name:`, and below it the output of `write`.
    pub(super) fn part(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        let line = format!("{:indent$}{}:", "", plain(name), indent = self.depth * INDENT);
        self.line(&line);
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// Writes `Name:`, and below it a table, or `<none>`.
    pub(super) fn table(&mut self, name: &str, table: &Table) {
        if table.is_empty() {
            return self.field(name, "<none>");
        }
        self.part(name, |writer| writer.block(&table.to_string()));
    }

    /// Writes a sentence.
    fn sentence(&mut self, text: &str) {
        let line = format!("{:indent$}{}", "", plain(text), indent = self.depth * INDENT);
        self.line(&line);
    }

    /// Writes lines that have their layout already.
    pub(super) fn block(&mut self, text: &str) {
        text.lines().for_each(|line| self.sentence(line));
    }

    /// Returns the text.
    pub(super) fn text(self) -> String {
        self.text
    }

    fn line(&mut self, line: &str) {
        // A write into a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}
