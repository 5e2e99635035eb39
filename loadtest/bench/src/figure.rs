//! What a row of the table measured.

use headwater_loadtest::latency::Quantiles;
use serde::{Deserialize, Serialize};

use crate::bound::{Bound, Verdict};
use crate::samples::Samples;

/// One line: what ours took, what the limit took beside it, and what is judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// With its unit: `events/s, synced`.
    pub(crate) what: String,
    pub(crate) ours: Samples,
    /// What it is compared with, by name, measured in the same run.
    pub(crate) limit: Option<(String, Samples)>,
    /// What is held to the bound: a ratio of each pair, or what ours took itself.
    pub(crate) judged: Samples,
    /// None: shown, and held to nothing.
    pub(crate) bound: Option<Bound>,
    /// Whether time on a processor decides it, so that a saturated core makes it worth little.
    pub(crate) is_latency: bool,
    /// Whether the load was not what it was to be: it is worth nothing.
    #[serde(default)]
    pub(crate) is_void: bool,
}

/// All that a run of a row has to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowResult {
    pub(crate) figures: Vec<Figure>,
    /// How it was set up: name and value.
    pub(crate) settings: Vec<(String, String)>,
    /// What else was seen, sentence by sentence.
    pub(crate) notes: Vec<String>,
    /// How busy the busiest core was while it was measured, from 0 to 1.
    pub(crate) busiest_core: f64,
}

/// Beyond it, a latency is that of a queue for the processor.
const SATURATED: f64 = 0.85;

impl Figure {
    /// Ours as a part of the limit, pair by pair.
    pub(crate) fn ratio(what: &str, ours: Samples, limit: &str, theirs: Samples) -> Self {
        let judged = ours.over(&theirs);
        let limit = Some((limit.to_owned(), theirs));
        Self { what: what.to_owned(), ours, limit, judged, ..Self::default() }
    }

    /// What ours takes more than the limit, pair by pair.
    pub(crate) fn excess(what: &str, ours: Samples, limit: &str, theirs: Samples) -> Self {
        let judged = ours.beyond(&theirs);
        let limit = Some((limit.to_owned(), theirs));
        Self { what: what.to_owned(), ours, limit, judged, ..Self::default() }
    }

    /// Ours in bytes, which are counted and judged as they are, beside a limit.
    pub(crate) fn bytes(what: &str, ours: f64, limit: &str, theirs: f64) -> Self {
        let limit = Some((limit.to_owned(), theirs.into()));
        let judged = ours.into();
        Self { what: what.to_owned(), ours: ours.into(), limit, judged, ..Self::default() }
    }

    /// Ours by itself.
    pub(crate) fn alone(what: &str, ours: Samples) -> Self {
        let judged = ours.clone();
        Self { what: what.to_owned(), ours, limit: None, judged, ..Self::default() }
    }

    /// Something else than its ratio is held to the bound.
    pub(crate) fn judged_by(mut self, judged: Samples) -> Self {
        self.judged = judged;
        self
    }

    /// Holds it to a bound.
    pub(crate) fn held_to(mut self, bound: Bound) -> Self {
        self.bound = Some(bound);
        self
    }

    /// A time that a busy processor makes longer.
    pub(crate) fn latency(mut self) -> Self {
        self.is_latency = true;
        self
    }

    /// The load was not what it was to be.
    pub(crate) fn void(mut self) -> Self {
        self.is_void = true;
        self
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.bound.map(|bound| bound.judge(&self.judged))
    }
}

impl RowResult {
    pub(crate) fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Shows a latency; its p99 only where enough lies behind it. `bounds` are those of the p50 and the p99, floor and
    /// target.
    pub(crate) fn push_latency(
        &mut self,
        what: &str,
        latency: &Quantiles,
        bounds: [(f64, f64); 2],
    ) {
        let quantiles = [("p50", latency.p50_ms), ("p99", latency.p99_ms)];
        for ((name, ms), (floor, target)) in quantiles.into_iter().zip(bounds) {
            if let Some(ms) = ms {
                let figure = Figure::alone(&format!("{what}: ms, {name}"), ms.into());
                self.push(figure.held_to(Bound::at_most(floor, target)).latency());
            }
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.push((name.to_owned(), value.to_string()));
    }

    pub(crate) fn note(&mut self, sentence: impl Into<String>) {
        self.notes.push(sentence.into());
    }

    /// Whether a latency of it is that of a queue for the processor.
    pub(crate) fn is_saturated(&self) -> bool {
        self.busiest_core > SATURATED && self.figures.iter().any(|figure| figure.is_latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_judged_is_the_ratio_of_each_pair() {
        let (ours, limit) = ([8.0, 9.0], [10.0, 10.0]);
        let figure = Figure::ratio("x", Samples::from_iter(ours), "y", Samples::from_iter(limit))
            .held_to(Bound::at_least(0.7, 0.8));
        assert_eq!(figure.judged, Samples::from_iter([0.8, 0.9]));
        assert_eq!(figure.verdict(), Some(Verdict::Target));
        assert_eq!(Figure::alone("x", 1.0.into()).verdict(), None);
    }

    #[test]
    fn only_a_latency_can_be_saturated() {
        let mut measured = RowResult { busiest_core: 0.9, ..RowResult::default() };
        measured.push(Figure::alone("bytes", 1.0.into()));
        assert!(!measured.is_saturated());
        measured.push(Figure::alone("ms", 1.0.into()).latency());
        assert!(measured.is_saturated());
    }
}
