//! Tables in the form of kubectl: columns of text, without lines, three spaces apart.

pub(crate) mod columns;

use std::borrow::Cow;
use std::fmt;

use comfy_table::ContentArrangement;
use comfy_table::presets::NOTHING;

use crate::render;

/// A table with a header and rows of the same width.
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    headers_shown: bool,
}

impl Table {
    /// Creates a table with these column names.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self { header, rows: Vec::new(), headers_shown: true }
    }

    /// Omits the header line.
    pub fn without_headers(mut self, without: bool) -> Self {
        self.headers_shown = !without;
        self
    }

    /// Adds a row. Cells come from objects, so their control characters are escaped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let plain = |cell: String| match render::plain(&cell) {
            Cow::Borrowed(_) => cell,
            Cow::Owned(escaped) => escaped,
        };
        self.rows.push(cells.into_iter().map(plain).collect());
    }

    /// The column names.
    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A table that is printed in parts. Its columns stay while they are wide enough.
#[derive(Default)]
pub struct StreamedTable {
    widths: Vec<usize>,
    header_printed: bool,
}

impl StreamedTable {
    /// Creates a table whose first columns are at least this wide.
    pub(crate) fn with_widths(widths: impl Into<Vec<usize>>) -> Self {
        Self { widths: widths.into(), header_printed: false }
    }

    /// Formats the rows of `table` below the earlier ones; the first time with the header.
    pub fn continued(&mut self, mut table: Table) -> Table {
        table.headers_shown &= !std::mem::replace(&mut self.header_printed, true);
        self.widths.resize(table.header.len(), 0);
        let lines = || std::iter::once(&table.header).chain(&table.rows);
        for (column, width) in self.widths.iter_mut().enumerate() {
            let cells = lines().filter_map(|line| line.get(column));
            *width = cells.map(|cell| cell.chars().count()).fold(*width, usize::max);
        }
        for row in &mut table.rows {
            for (cell, width) in row.iter_mut().zip(&self.widths) {
                *cell = format!("{cell:<width$}");
            }
        }
        table
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_table_keeps_its_columns() {
        let table = |rows: &[[&str; 2]]| {
            let mut table = Table::new(["NAME", "AGE"]);
            rows.iter().for_each(|row| table.row(row.map(str::to_owned)));
            table
        };
        let mut growing = StreamedTable::default();
        let first = growing.continued(table(&[["a-long-name", "1s"], ["b", "2s"]])).to_string();
        assert_eq!(first, "NAME          AGE\na-long-name   1s\nb             2s\n");
        let second = growing.continued(table(&[["c", "3s"]])).to_string();
        assert_eq!(second, "c             3s\n");
    }

    #[test]
    fn a_cell_stays_on_its_line() {
        let mut table = Table::new(["NAME", "STATUS"]);
        table.row(["a\nb".to_owned(), "\u{1b}[2J".to_owned()]);
        assert_eq!(table.to_string(), "NAME   STATUS\na\\nb   \\u{1b}[2J\n");
    }
}
