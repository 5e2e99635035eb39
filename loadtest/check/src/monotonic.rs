//! I4: what counts of a node's reports only ever gets newer, key by key.

use std::collections::BTreeMap;

use headwater_event::{NodeName, ReportId, ReportKey};

/// The newest report that counted, per node and key.
#[derive(Clone, Debug, Default)]
pub struct Monotonic {
    counted: BTreeMap<(NodeName, ReportKey), ReportId>,
}

/// An older report that counted after a newer one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I4 node {node}: {key} took report {found} after {before}")]
pub struct WentBack {
    /// The node.
    pub node: NodeName,
    /// The key.
    pub key: ReportKey,
    /// What counted before.
    pub before: ReportId,
    /// What counts now.
    pub found: ReportId,
}

impl Monotonic {
    /// A report counts now. The same one twice is no step back.
    ///
    /// # Errors
    /// When a newer one counted before.
    pub fn counted(
        &mut self,
        node: &NodeName,
        key: &ReportKey,
        found: ReportId,
    ) -> Result<(), WentBack> {
        let before = self.counted.entry((node.clone(), key.clone())).or_insert(found);
        if found < *before {
            let (node, key, before) = (node.clone(), key.clone(), *before);
            return Err(WentBack { node, key, before, found });
        }
        *before = found;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;

    use super::*;

    #[test]
    fn a_status_never_goes_back() {
        let node: NodeName = "a".parse().expect("well-formed");
        let id = |boot, seq| ReportId { incarnation: Incarnation(1), boot, seq };
        let mut monotonic = Monotonic::default();
        assert!(monotonic.counted(&node, &ReportKey::Snapshot, id(1, 9)).is_ok());
        assert!(monotonic.counted(&node, &ReportKey::Snapshot, id(2, 1)).is_ok());
        assert!(monotonic.counted(&node, &ReportKey::Snapshot, id(1, 10)).is_err());
        assert!(monotonic.counted(&node, &ReportKey::Position, id(1, 10)).is_ok());
    }
}
