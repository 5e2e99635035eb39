//! Which Events of the nodes the sink writes.

use serde::{Deserialize, Serialize};

/// Which Events of the nodes the sink writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventLevel {
    /// None.
    None,
    /// Warnings.
    #[default]
    Warnings,
    /// Warnings, and what goes as it should.
    All,
}

impl EventLevel {
    /// Whether the sink writes Events of this `type`.
    pub(crate) fn has(self, severity: &str) -> bool {
        match self {
            Self::None => false,
            Self::Warnings => severity == "Warning",
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_the_types_that_its_name_states() {
        let types = ["Normal", "Warning"];
        for (level, expected) in [
            (EventLevel::None, [false, false]),
            (EventLevel::Warnings, [false, true]),
            (EventLevel::All, [true, true]),
        ] {
            assert_eq!(types.map(|severity| level.has(severity)), expected, "{level:?}");
        }
    }
}
