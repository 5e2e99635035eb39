//! `RESULTS.md`: every row as it was measured last.
//!
//! The page is the only place where rows are kept. A row that a run does not measure stays as it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::machine::{BUILD, Machine, commit};

use crate::bound::Verdict;
use crate::figure::{Figure, RowResult};
use crate::samples::digits;

/// The page, below the top of the clone.
const PAGE: &str = "loadtest/RESULTS.md";

const HEAD: &str = "\
# Benchmark results

Written by `cargo xtask bench`, never by hand. Every figure is shown beside its limit, measured in the
same run, by turns and in random order; a number is the median with [smallest, largest] over N pairs.
What is judged is the ratio to the limit unless the figure says otherwise.
**target** and **floor**: every pair reaches it. **unclear**: the spread reaches across the floor,
and nothing is concluded. **MISSED**: no pair reaches the floor. **saturated**: a core was busy for
more than 85 % of the time, so the latency is that of a queue for the processor. **void**: the load
was not what it was to be. The line *machine* of a row has what the machine itself did before the row and
after it: absolute figures of two days compare only as far as these do. Rows of earlier versions lack it.

";

const BOUNDS: &str = "\
| row | figure | floor | target | measured | N | |
|---|---|---|---|---|---|---|
";

/// What begins the section of a row.
const SECTION: &str = "\n## ";

/// Every row that was measured, by its number.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results(BTreeMap<u8, Entry>);

/// A row on the page.
#[derive(Debug, Default, PartialEq)]
struct Entry {
    /// Its lines in the table of bounds.
    bounds: String,
    /// Its section.
    section: String,
}

/// A row as it was measured now.
pub(crate) struct Section<'a> {
    pub(crate) number: u8,
    pub(crate) name: &'a str,
    pub(crate) about: &'a str,
    /// Of the last minute, when it began.
    pub(crate) load: f64,
    pub(crate) full: bool,
    pub(crate) seed: u64,
    pub(crate) measured: &'a RowResult,
}

impl Results {
    /// What was measured before; nothing, where nothing was.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        match fs::read_to_string(root.join(PAGE)) {
            Ok(page) => Ok(Self::parse(&page)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).tried(PAGE),
        }
    }

    fn parse(page: &str) -> Self {
        let mut results = Self::default();
        let mut parts = page.split(SECTION);
        for line in parts.next().unwrap_or_default().lines() {
            if let Some(number) = line.strip_prefix("| ").and_then(number) {
                results.0.entry(number).or_default().bounds += &format!("{line}\n");
            }
        }
        for part in parts {
            if let Some(number) = number(part) {
                results.0.entry(number).or_default().section = format!("{SECTION}{part}");
            }
        }
        results
    }

    /// Puts a row in the place of what was measured of it before; gives its section.
    pub(crate) fn put(&mut self, section: &Section<'_>, root: &Path) -> &str {
        let entry = Entry { bounds: section.bounds(), section: section.page(root) };
        let entry = self.0.entry(section.number).insert_entry(entry);
        &entry.into_mut().section
    }

    /// Writes the page.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, root: &Path) -> Result<(), Failure> {
        fs::write(root.join(PAGE), self.page()).tried(PAGE)
    }

    /// What is held to a bound, of every row.
    pub(crate) fn bounds(&self) -> String {
        let lines = self.0.values().map(|entry| entry.bounds.as_str());
        [BOUNDS].into_iter().chain(lines).collect()
    }

    fn page(&self) -> String {
        let sections = self.0.values().map(|entry| entry.section.as_str());
        [HEAD, &self.bounds()].into_iter().chain(sections).collect()
    }
}

/// The number that a line of the table or a section begins with.
fn number(text: &str) -> Option<u8> {
    let digits = text.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

impl Section<'_> {
    /// What a figure is worth, in a word or two.
    fn verdict(&self, figure: &Figure) -> String {
        let Some(verdict) = figure.verdict() else { return String::new() };
        let said = match verdict {
            _ if figure.is_void => return "void".to_owned(),
            _ if figure.is_latency && self.measured.is_saturated() => {
                format!("{verdict}, saturated")
            }
            _ => verdict.to_string(),
        };
        if verdict == Verdict::Missed { format!("**{said}**") } else { said }
    }

    /// The lines of what is held to a bound.
    fn bounds(&self) -> String {
        let mut lines = String::new();
        for figure in &self.measured.figures {
            let Some(bound) = figure.bound else { continue };
            let _ = writeln!(
                lines,
                "| {} {} | {} | {} | {} | {} | {} | {} |",
                self.number,
                self.name,
                figure.what,
                bound.show(bound.floor),
                bound.show(bound.target),
                figure.judged,
                figure.judged.count(),
                self.verdict(figure),
            );
        }
        lines
    }

    fn page(&self, root: &Path) -> String {
        let mut page = format!("{SECTION}{}. {}\n\n{}\n\n", self.number, self.name, self.about);
        page.push_str("| figure | ours | limit | | judged | N |\n|---|---|---|---|---|---|\n");
        for figure in &self.measured.figures {
            let (limit, theirs) = match &figure.limit {
                Some((name, samples)) => (name.as_str(), samples.to_string()),
                None => ("", "-".to_owned()),
            };
            let (what, ours, judged) = (&figure.what, &figure.ours, &figure.judged);
            let count = judged.count();
            let _ = writeln!(page, "| {what} | {ours} | {theirs} | {limit} | {judged} | {count} |");
        }
        page.push('\n');
        for note in &self.measured.notes {
            let _ = writeln!(page, "- {note}");
        }
        for (name, value) in &self.measured.settings {
            let _ = writeln!(page, "- {name}: {value}");
        }
        let Machine { cpu, cores, memory_bytes, kernel } = Machine::here();
        let _ = writeln!(
            page,
            "- {}, {} form, seed {}; commit {}, built for {BUILD}; \
             {cores} cores of {cpu}, {} GiB, Linux {kernel}; load {} when it \
             began, busiest core {:.0} % in the turn in the middle",
            jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC"),
            if self.full { "long" } else { "short" },
            self.seed,
            commit(root).unwrap_or_else(|| "unknown".to_owned()),
            memory_bytes >> 30,
            digits(self.load),
            self.measured.busiest_core * 100.0,
        );
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Bound;
    use crate::samples::Samples;

    fn put(results: &mut Results, number: u8, ratio: f64, busiest_core: f64) {
        let mut measured = RowResult { busiest_core, ..RowResult::default() };
        let ours = Samples::from_iter([ratio, ratio]);
        let limit = Samples::from_iter([1.0, 1.0]);
        let figure = Figure::ratio("ms, p99", ours, "a bare pipe", limit).latency();
        measured.push(figure.held_to(Bound::at_most(3.0, 2.0)));
        measured.set("payload", "2 KiB");
        let (name, about, measured) = ("wire", "What it is about.", &measured);
        let section = Section { number, name, about, load: 0.5, full: false, seed: 7, measured };
        results.put(&section, Path::new("."));
    }

    #[test]
    fn a_row_takes_the_place_of_what_was_measured_before() {
        let mut results = Results::default();
        for (number, ratio) in [(14, 1.0), (2, 1.0), (14, 2.5)] {
            put(&mut results, number, ratio, 0.1);
        }
        let bounds = results.bounds();
        let rows: Vec<_> = bounds.lines().skip(2).map(|line| &line[2..9]).collect();
        assert_eq!(rows, ["2 wire ", "14 wire"]);
        assert!(bounds.ends_with("| floor |\n"), "{bounds}");
    }

    #[test]
    fn the_page_has_the_conclusions() {
        let mut results = Results::default();
        put(&mut results, 2, 4.0, 0.1);
        put(&mut results, 4, 1.5, 0.95);
        let page = results.page();
        for line in [
            "| 2 wire | ms, p99 | <= 3.00 | <= 2.00 | 4.00 [4.00, 4.00] | 2 | **MISSED** |",
            "| 4 wire | ms, p99 | <= 3.00 | <= 2.00 | 1.50 [1.50, 1.50] | 2 | target, saturated |",
            "- payload: 2 KiB",
            "a bare pipe",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("loadtest")).expect("a folder");
        assert_eq!(Results::read(folder.path()).expect("nothing yet"), Results::default());
        let mut results = Results::default();
        put(&mut results, 2, 1.5, 0.1);
        put(&mut results, 11, 1.5, 0.1);
        results.write(folder.path()).expect("written");
        assert_eq!(Results::read(folder.path()).expect("read"), results);
    }

    #[test]
    fn the_page_of_this_clone_is_read_whole() {
        let page = include_str!("../../RESULTS.md");
        assert_eq!(Results::parse(page).page(), page);
    }
}
