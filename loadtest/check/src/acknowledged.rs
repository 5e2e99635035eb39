//! I2: a report that an edge forgot is in the log.

use std::collections::BTreeSet;

use headwater_event::{NodeName, ReportId};

/// A report that was forgotten and is not in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I2 node {node} forgot report {lost}, which the log does not have")]
pub struct LostReport {
    /// The node.
    pub node: NodeName,
    /// The report.
    pub lost: ReportId,
}

/// Checks that everything in `forgotten` is in `logged`.
///
/// # Errors
/// Names the first report that is lost.
pub fn check<'a>(
    node: &NodeName,
    forgotten: impl IntoIterator<Item = &'a ReportId>,
    logged: &BTreeSet<ReportId>,
) -> Result<(), LostReport> {
    match forgotten.into_iter().find(|id| !logged.contains(id)) {
        None => Ok(()),
        Some(lost) => Err(LostReport { node: node.clone(), lost: *lost }),
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;

    use super::*;

    #[test]
    fn a_forgotten_report_must_be_logged() {
        let node: NodeName = "a".parse().expect("well-formed");
        let id = |seq| ReportId { incarnation: Incarnation(1), boot: 1, seq };
        let logged = BTreeSet::from([id(1), id(3)]);
        assert_eq!(check(&node, &[id(1), id(3)], &logged), Ok(()));
        assert_eq!(check(&node, &[id(1), id(2)], &logged), Err(LostReport { node, lost: id(2) }));
    }
}
