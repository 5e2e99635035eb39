//! Tables as kubectl prints them: columns of text, no lines, three spaces between.

pub(crate) mod columns;

use std::fmt;

use comfy_table::ContentArrangement;
use comfy_table::presets::NOTHING;

/// A table with a header and rows of the same width.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    headers_shown: bool,
}

impl Table {
    /// A table with these column names.
    pub(crate) fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self { header, rows: Vec::new(), headers_shown: true }
    }

    /// Leaves out the header line.
    pub(crate) fn without_headers(mut self, without: bool) -> Self {
        self.headers_shown = !without;
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.headers_shown {
            table.set_header(&self.header);
        }
        table.add_rows(&self.rows);
        for column in table.column_iter_mut() {
            column.set_padding((0, 3));
        }
        for line in table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
