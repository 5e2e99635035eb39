//! The bounds of a figure, and the verdict on it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::samples::{Samples, digits};

/// Below its floor a release fails; at its target it is as good as it was meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) floor: f64,
    pub(crate) target: f64,
    sense: Sense,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sense {
    AtLeast,
    AtMost,
}

/// What the samples say. A claim holds only where every pair supports it: where the spread
/// reaches across the bound, nothing is concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Every sample reaches the target.
    Target,
    /// Every sample reaches the floor, and not every one the target.
    Floor,
    /// The spread reaches across the floor.
    Unclear,
    /// No sample reaches the floor.
    Missed,
}

impl Bound {
    /// More is better.
    pub(crate) const fn at_least(floor: f64, target: f64) -> Self {
        Self { floor, target, sense: Sense::AtLeast }
    }

    /// Less is better.
    pub(crate) const fn at_most(floor: f64, target: f64) -> Self {
        Self { floor, target, sense: Sense::AtMost }
    }

    /// The verdict on `samples`; none without samples.
    pub(crate) fn judge(&self, samples: &Samples) -> Verdict {
        let reaches = |bound: f64, sample: f64| match self.sense {
            Sense::AtLeast => sample >= bound,
            Sense::AtMost => sample <= bound,
        };
        let reaching = |bound| samples.iter().filter(|sample| reaches(bound, *sample)).count();
        let count = samples.count();
        match (reaching(self.floor), reaching(self.target)) {
            _ if count == 0 => Verdict::Unclear,
            (_, target) if target == count => Verdict::Target,
            (floor, _) if floor == count => Verdict::Floor,
            (0, _) => Verdict::Missed,
            _ => Verdict::Unclear,
        }
    }

    /// A bound as it is printed: `>= 0.70`.
    pub(crate) fn show(&self, bound: f64) -> String {
        let sign = match self.sense {
            Sense::AtLeast => ">=",
            Sense::AtMost => "<=",
        };
        format!("{sign} {}", digits(bound))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Target => "target",
            Self::Floor => "floor",
            Self::Unclear => "unclear",
            Self::Missed => "MISSED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(bound: Bound, samples: &[f64]) -> Verdict {
        bound.judge(&samples.iter().copied().collect())
    }

    #[test]
    fn a_claim_needs_every_pair() {
        let bound = Bound::at_least(0.7, 0.9);
        assert_eq!(judge(bound, &[0.91, 0.95, 0.9]), Verdict::Target);
        assert_eq!(judge(bound, &[0.91, 0.95, 0.8]), Verdict::Floor);
        assert_eq!(judge(bound, &[0.6, 0.5]), Verdict::Missed);
    }

    #[test]
    fn a_spread_across_the_floor_concludes_nothing() {
        let bound = Bound::at_least(0.7, 0.9);
        assert_eq!(judge(bound, &[0.95, 0.95, 0.69]), Verdict::Unclear);
        assert_eq!(judge(bound, &[]), Verdict::Unclear);
        assert_eq!(judge(bound, &[f64::NAN]), Verdict::Missed);
    }

    #[test]
    fn less_can_be_better() {
        let bound = Bound::at_most(3.0, 2.0);
        assert_eq!(judge(bound, &[1.9, 2.0]), Verdict::Target);
        assert_eq!(judge(bound, &[1.9, 2.5]), Verdict::Floor);
        assert_eq!(judge(bound, &[3.5, 4.0]), Verdict::Missed);
        assert_eq!(bound.show(bound.floor), "<= 3.00");
    }
}
