//! What is kept: every row as it was measured last, as data and as the page made of it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bound::Verdict;
use crate::failure::{Attempt, Failure};
use crate::figure::{Figure, RowResult};
use crate::machine::Machine;
use crate::row::Row;
use crate::samples::digits;

/// The data, and the page, below the top of the clone.
const DATA: &str = "loadtest/results.json";
const PAGE: &str = "loadtest/RESULTS.md";

/// Every row that was measured, in the order of their numbers.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results(Vec<Section>);

/// A row as it was measured last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) number: u8,
    pub(crate) name: String,
    about: String,
    date: String,
    machine: Machine,
    /// Of the last minute, when it began.
    load: f64,
    full: bool,
    seed: u64,
    #[serde(flatten)]
    pub(crate) measured: RowResult,
}

impl Section {
    pub(crate) fn of(
        row: &Row,
        machine: &Machine,
        load: f64,
        full: bool,
        seed: u64,
        measured: RowResult,
    ) -> Self {
        Self {
            number: row.number,
            name: row.name.to_owned(),
            about: row.about.to_owned(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            machine: machine.clone(),
            load,
            full,
            seed,
            measured,
        }
    }

    /// What a figure is worth, in a word or two.
    pub(crate) fn verdict(&self, figure: &Figure) -> String {
        let Some(verdict) = figure.verdict() else { return String::new() };
        if figure.is_void {
            return "void".to_owned();
        }
        let is_saturated = figure.is_latency && self.measured.is_saturated();
        if is_saturated { format!("{verdict}, saturated") } else { verdict.to_string() }
    }
}

impl Results {
    /// What was measured before; nothing, where nothing was.
    ///
    /// # Errors
    /// When what is there cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let path = root.join(DATA);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).tried(&path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).tried(&path.display().to_string()),
        }
    }

    /// Puts a row in the place of what was measured of it before.
    pub(crate) fn put(&mut self, section: Section) {
        self.0.retain(|before| before.number != section.number);
        let place = self.0.partition_point(|before| before.number < section.number);
        self.0.insert(place, section);
    }

    pub(crate) fn sections(&self) -> &[Section] {
        &self.0
    }

    /// Writes the data and the page.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn write(&self, root: &Path) -> Result<(), Failure> {
        let data = serde_json::to_string_pretty(self).tried("writing the results")?;
        fs::write(root.join(DATA), data + "\n").tried(DATA)?;
        fs::write(root.join(PAGE), self.page()).tried(PAGE)
    }

    /// The page.
    fn page(&self) -> String {
        let mut page = HEAD.to_owned();
        page.push_str("| row | figure | floor | target | measured | N | |\n");
        page.push_str("|---|---|---|---|---|---|---|\n");
        for section in &self.0 {
            for figure in section.measured.figures.iter().filter(|one| one.bound.is_some()) {
                page.push_str(&bound_line(section, figure));
            }
        }
        for section in &self.0 {
            page.push_str(&section.page());
        }
        page
    }
}

const HEAD: &str = "\
# Benchmark results

Written by `cargo xtask bench`, never by hand. Every figure is shown beside its limit, measured in the
same run, by turns and in random order; a number is the median with [smallest, largest] over N pairs.
What is judged is the ratio to the limit unless the figure says otherwise.
**target** and **floor**: every pair reaches it. **unclear**: the spread reaches across the floor,
and nothing is concluded. **MISSED**: no pair reaches the floor. **saturated**: a core was busy for
more than 85 % of the time, so the latency is that of a queue for the processor. **void**: the load
was not what it was to be.

";

fn bound_line(section: &Section, figure: &Figure) -> String {
    let Some(bound) = figure.bound else { return String::new() };
    let verdict = section.verdict(figure);
    let is_bad = matches!(figure.verdict(), Some(Verdict::Missed));
    let verdict = if is_bad { format!("**{verdict}**") } else { verdict };
    format!(
        "| {} {} | {} | {} | {} | {} | {} | {verdict} |\n",
        section.number,
        section.name,
        figure.what,
        bound.show(bound.floor),
        bound.show(bound.target),
        figure.judged,
        figure.judged.count(),
    )
}

impl Section {
    fn page(&self) -> String {
        let mut page = format!("\n## {}. {}\n\n{}\n\n", self.number, self.name, self.about);
        page.push_str("| figure | ours | limit | | judged | N |\n|---|---|---|---|---|---|\n");
        for figure in &self.measured.figures {
            let (limit, theirs) = match &figure.limit {
                Some((name, samples)) => (name.as_str(), samples.to_string()),
                None => ("", "-".to_owned()),
            };
            page.push_str(&format!(
                "| {} | {} | {theirs} | {limit} | {} | {} |\n",
                figure.what,
                figure.ours,
                figure.judged,
                figure.judged.count(),
            ));
        }
        page.push('\n');
        for note in &self.measured.notes {
            page.push_str(&format!("- {note}\n"));
        }
        for (name, value) in &self.measured.settings {
            page.push_str(&format!("- {name}: {value}\n"));
        }
        let Machine { processor, cores, memory_gib, kernel, commit, build } = &self.machine;
        let form = if self.full { "long" } else { "short" };
        page.push_str(&format!(
            "- {}, {form} form, seed {}; commit {commit}, built for {build}; \
             {cores} cores of {processor}, {memory_gib} GiB, Linux {kernel}; load {} when it \
             began, busiest core {:.0} % in the turn in the middle\n",
            self.date,
            self.seed,
            digits(self.load),
            self.measured.busiest_core * 100.0,
        ));
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Bound;
    use crate::samples::Samples;

    fn section(number: u8, ratio: f64, busiest_core: f64) -> Section {
        let mut measured = RowResult { busiest_core, ..RowResult::default() };
        let ours = Samples::from_iter([ratio, ratio]);
        let limit = Samples::from_iter([1.0, 1.0]);
        let figure = Figure::ratio("ms, p99", ours, "a bare pipe", limit).latency();
        measured.push(figure.held_to(Bound::at_most(3.0, 2.0)));
        measured.set("payload", "2 KiB");
        let machine = Machine {
            processor: "a processor".to_owned(),
            cores: 2,
            memory_gib: 4,
            kernel: "6.1".to_owned(),
            commit: "abc".to_owned(),
            build: "release".to_owned(),
        };
        Section {
            number,
            name: "wire".to_owned(),
            about: "What it is about.".to_owned(),
            date: "2026-01-01".to_owned(),
            machine,
            load: 0.5,
            full: false,
            seed: 7,
            measured,
        }
    }

    #[test]
    fn a_row_takes_the_place_of_what_was_measured_before() {
        let mut results = Results::default();
        for (number, ratio) in [(4, 1.0), (2, 1.0), (4, 2.5)] {
            results.put(section(number, ratio, 0.1));
        }
        let numbers: Vec<_> = results.sections().iter().map(|one| one.number).collect();
        assert_eq!(numbers, [2, 4]);
        assert_eq!(results.sections()[1].measured.figures[0].verdict(), Some(Verdict::Floor));
    }

    #[test]
    fn the_page_says_what_is_concluded() {
        let mut results = Results::default();
        results.put(section(2, 4.0, 0.1));
        results.put(section(4, 1.5, 0.95));
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
        results.put(section(2, 1.5, 0.1));
        results.write(folder.path()).expect("written");
        assert_eq!(Results::read(folder.path()).expect("read"), results);
    }
}
