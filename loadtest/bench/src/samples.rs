//! Samples of one quantity: the middle, and from where to where they go.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Samples in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// The middle one, or the mean of the two in the middle; NaN of none.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0
    }

    pub(crate) fn min(&self) -> f64 {
        self.iter().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.iter().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Each of these divided by the one of `others` that was taken beside it.
    pub(crate) fn over(&self, others: &Self) -> Self {
        self.iter().zip(others.iter()).map(|(ours, limit)| ours / limit).collect()
    }

    /// What each of these has more than the one of `others` that was taken beside it.
    pub(crate) fn beyond(&self, others: &Self) -> Self {
        self.iter().zip(others.iter()).map(|(ours, limit)| ours - limit).collect()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl From<f64> for Samples {
    /// A quantity that is counted and not sampled.
    fn from(one: f64) -> Self {
        Self(vec![one])
    }
}

impl fmt::Display for Samples {
    /// `0.82 [0.79, 0.85]`; a single one has no spread.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, min, max) = (self.median(), self.min(), self.max());
        if self.0.len() < 2 {
            return f.write_str(&digits(median));
        }
        write!(f, "{} [{}, {}]", digits(median), digits(min), digits(max))
    }
}

/// Three digits that say something; no more is known on a shared machine.
pub(crate) fn digits(number: f64) -> String {
    if number.is_nan() {
        return "-".to_owned();
    }
    let decimals = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Samples::from_iter([3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Samples::from_iter([4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn what_was_taken_together_is_compared() {
        let ours = Samples::from_iter([8.0, 5.0]);
        let limit = Samples::from_iter([10.0, 5.0]);
        assert_eq!(ours.over(&limit), Samples::from_iter([0.8, 1.0]));
        assert_eq!(ours.beyond(&limit), Samples::from_iter([-2.0, 0.0]));
    }

    #[test]
    fn three_digits_are_shown() {
        let shown = Samples::from_iter([0.8234, 12.345, 1234.5]).to_string();
        assert_eq!(shown, "12.3 [0.823, 1234]");
        assert_eq!(Samples::from(2.5).to_string(), "2.50");
    }
}
