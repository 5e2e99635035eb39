//! Equal warnings of one pod: counted, and repeated only at every doubling of their number.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Different warnings that are counted: a pod has a few things that can fail at the same time. With more
/// of them, the oldest one is forgotten and counts from one again.
const WARNINGS_MAX: usize = 8;

/// The latest warnings of a pod, by their hashes: their texts can be long.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    latest: Vec<(u64, u64)>,
}

impl Warnings {
    /// Counts a warning about a container, or about the pod. Returns how often it was given if it
    /// should be logged: 1, 2, 4, 8 and so on.
    pub(super) fn count(
        &mut self,
        container: Option<&str>,
        what: &str,
        message: &str,
    ) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        (container, what, message).hash(&mut hasher);
        let hash = hasher.finish();
        let times = match self.latest.iter().position(|(known, _)| *known == hash) {
            Some(at) => self.latest.remove(at).1.saturating_add(1),
            None => 1,
        };
        if self.latest.len() == WARNINGS_MAX {
            self.latest.remove(0);
        }
        self.latest.push((hash, times));
        times.is_power_of_two().then_some(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_warnings_are_logged_at_every_doubling_of_their_number() {
        let mut warnings = Warnings::default();
        let logged: Vec<u64> = (0..100)
            .filter_map(|_| warnings.count(Some("main"), "a start failed", "no disk"))
            .collect();
        assert_eq!(logged, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(warnings.count(Some("main"), "a start failed", "no room"), Some(1));
        assert_eq!(warnings.count(Some("side"), "a start failed", "no disk"), Some(1));
        assert_eq!(warnings.count(Some("main"), "a start failed", "no disk"), None);
    }

    #[test]
    fn the_number_of_warnings_in_memory_is_bounded() {
        let mut warnings = Warnings::default();
        for number in 0..1000 {
            let message = number.to_string();
            assert_eq!(warnings.count(None, "a pod cannot be set up", &message), Some(1));
        }
        assert_eq!(warnings.latest.len(), WARNINGS_MAX);
    }
}
