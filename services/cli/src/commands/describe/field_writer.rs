//! Fields, laid out as `kubectl describe` does.

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
    /// `Name:   value`.
    pub(super) fn field(&mut self, name: &str, value: impl AsRef<str>) {
        let name = format!("{}: ", plain(name));
        let indent = self.depth * INDENT;
        let width = VALUES_AT.saturating_sub(indent);
        let line = format!("{:indent$}{name:<width$}{}", "", plain(value.as_ref()));
        self.line(line.trim_end());
    }

    /// A field, unless there is nothing to say.
    pub(super) fn field_if(&mut self, name: &str, value: impl AsRef<str>) {
        if !value.as_ref().is_empty() {
            self.field(name, value);
        }
    }

    /// A field of several values, one a line.
    pub(super) fn lines(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        let mut values = values.into_iter();
        self.field(name, values.next().unwrap_or_else(|| "<none>".to_owned()));
        for value in values {
            let line = format!("{:VALUES_AT$}{}", "", plain(&value));
            self.line(line.trim_end());
        }
    }

    /// `Name:`, and below it what `write` writes.
    pub(super) fn part(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        let line = format!("{:indent$}{}:", "", plain(name), indent = self.depth * INDENT);
        self.line(&line);
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// `Name:`, and below it a table, or `<none>`.
    pub(super) fn table(&mut self, name: &str, table: &Table) {
        if table.is_empty() {
            return self.field(name, "<none>");
        }
        self.part(name, |writer| writer.block(&table.to_string()));
    }

    /// A sentence.
    pub(super) fn say(&mut self, text: &str) {
        let line = format!("{:indent$}{}", "", plain(text), indent = self.depth * INDENT);
        self.line(&line);
    }

    /// Lines that are laid out already.
    pub(super) fn block(&mut self, text: &str) {
        text.lines().for_each(|line| self.say(line));
    }

    /// What was written.
    pub(super) fn text(self) -> String {
        self.text
    }

    fn line(&mut self, line: &str) {
        // A string takes everything.
        let _ = writeln!(self.text, "{line}");
    }
}
