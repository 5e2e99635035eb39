//! What is measured, in the form in which it is printed.

use std::fmt;

/// Samples of one quantity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

/// One line of the table.
pub(crate) struct Row {
    pub(crate) figure: &'static str,
    /// What the value is compared with, measured in the same run.
    pub(crate) limit: String,
    pub(crate) value: String,
    pub(crate) ratio: String,
    /// Of how many.
    pub(crate) count: usize,
}

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The middle one.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The smallest and the largest.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let min = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let max = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (min, max)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl fmt::Display for Samples {
    /// The median, and from where to where they go.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let (min, max) = self.spread();
        write!(f, "{:.digits$} [{min:.digits$}, {max:.digits$}]", self.median())
    }
}

/// Prints rows under a heading. What is in brackets is the smallest and the largest.
pub(crate) fn print(heading: &str, rows: &[Row]) {
    println!("\n{heading}");
    println!("{:<34} {:>30} {:>30} {:>20} {:>6}", "figure", "limit", "value", "ratio", "N");
    for Row { figure, limit, value, ratio, count } in rows {
        println!("{figure:<34} {limit:>30} {value:>30} {ratio:>20} {count:>6}");
    }
}
