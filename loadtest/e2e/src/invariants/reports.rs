//! What nodes report: nothing that was acknowledged is lost, nothing older counts after newer.

use std::collections::{BTreeMap, BTreeSet};

use headwater_check::acknowledged;
use headwater_check::monotonic::Monotonic;
use headwater_event::{NodeName, Report, ReportBody, ReportId, ReportKey};
use headwater_view::{NodeStatuses, PodStatusSnapshot, StatusDigest};

use super::Broken;
use crate::evidence::{Evidence, NodeEvidence};

/// What is known from the looks so far.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// By the name of the controller whose picture it is.
    counted: BTreeMap<String, Monotonic>,
    /// What waited in each outbox at the look before.
    waited: BTreeMap<NodeName, Vec<Report>>,
}

impl Reports {
    pub(super) fn lost_outbox(&mut self, node: &NodeName) {
        self.waited.remove(node);
    }

    pub(super) fn lost_picture(&mut self, controller: &str) {
        self.counted.remove(controller);
    }

    pub(super) fn look(
        &mut self,
        node: &NodeName,
        found: &NodeEvidence,
        evidence: &Evidence,
    ) -> Result<(), Broken> {
        let logged = evidence.reports.get(node).map_or(&[][..], Vec::as_slice);
        let waiting = found.outbox.as_ref().map_or(&[][..], |outbox| &outbox.reports);
        check_ids(node, logged.iter().chain(waiting))?;
        self.check_forgotten(node, waiting, logged)?;
        self.waited.insert(node.clone(), waiting.to_vec());
        if let Some(reported) = found.outbox.as_ref().and_then(|outbox| outbox.reported.as_ref()) {
            check_reported(node, reported, logged, waiting)?;
        }
        for (whose, picture) in &evidence.pictures {
            let counted = self.counted.entry(whose.clone()).or_default();
            for ((_, pod), status) in picture.iter().filter(|((of, _), _)| of == node) {
                let key = ReportKey::Resource(pod.with_kind("podstatus"));
                counted.counted(node, &key, status.id)?;
                let is_logged_as = |report: &Report| {
                    report.id == status.id
                        && matches!(&report.body, ReportBody::PodStatus { status: reported, .. }
                            if *reported == status.status)
                };
                if !logged.iter().any(is_logged_as) {
                    let id = status.id;
                    let what = format!("I2 {node}: {pod} shows report {id} at {whose}");
                    return Err(format!("{what}, which is not in the log").into());
                }
            }
        }
        Ok(())
    }

    /// A report that waited and waits no more is in the log, unless a newer one took its place.
    fn check_forgotten(
        &self,
        node: &NodeName,
        waiting: &[Report],
        logged: &[Report],
    ) -> Result<(), Broken> {
        let ids: BTreeSet<ReportId> = logged.iter().map(|report| report.id).collect();
        let now = || waiting.iter().chain(logged);
        let is_replaced = |before: &Report| {
            now().any(|now| {
                let takes_its_place = now.body.key(node).ok() == before.body.key(node).ok()
                    || matches!(now.body, ReportBody::SnapshotClosed(closed) if closed.full);
                now.id > before.id && takes_its_place
            })
        };
        let waited = self.waited.get(node).into_iter().flatten();
        let forgotten: Vec<ReportId> = waited
            .filter(|before| !waiting.contains(before) && !is_replaced(before))
            .map(|before| before.id)
            .collect();
        Ok(acknowledged::check(node, &forgotten, &ids)?)
    }
}

/// No report waits, and every picture shows the node's last reports.
pub(super) fn converged(
    node: &NodeName,
    found: &NodeEvidence,
    evidence: &Evidence,
) -> Result<(), Broken> {
    let Some(outbox) = &found.outbox else { return Ok(()) };
    if let [first, ..] = outbox.reports.as_slice() {
        let waiting = outbox.reports.len();
        return Err(format!("I10 {node}: {waiting} reports wait, {} first", first.id).into());
    }
    let Some(reported) = &outbox.reported else {
        return Err(format!("I10 {node}: a full snapshot is due").into());
    };
    let reported: BTreeMap<_, _> =
        reported.pods().map(|(pod, digest)| (pod.clone(), digest.clone())).collect();
    for (whose, picture) in &evidence.pictures {
        let shown: BTreeMap<_, _> = picture
            .iter()
            .filter(|((of, _), _)| of == node)
            .map(|((_, pod), shown)| (pod.clone(), StatusDigest::of(&shown.uid, &shown.status)))
            .collect();
        if shown != reported {
            let what = format!(
                "I10 {node} has reported {reported:#?}, the picture of {whose} shows {shown:#?}"
            );
            return Err(what.into());
        }
    }
    Ok(())
}

/// An id is never issued twice with other content.
fn check_ids<'r>(node: &NodeName, reports: impl Iterator<Item = &'r Report>) -> Result<(), Broken> {
    let mut bodies: BTreeMap<ReportId, &ReportBody> = BTreeMap::new();
    for report in reports {
        let before = *bodies.entry(report.id).or_insert(&report.body);
        if before != &report.body && !takes_back(before, &report.body) {
            return Err(format!("I3 {node}: report {} has two contents", report.id).into());
        }
    }
    Ok(())
}

/// Whether one is a status and the other its removal: a controller takes back, under its own id, an
/// old status that was appended after the last record of a pod long gone.
fn takes_back(one: &ReportBody, other: &ReportBody) -> bool {
    use ReportBody::{PodStatus, PodStatusRemoved};
    matches!(
        (one, other),
        (PodStatus { pod, .. }, PodStatusRemoved { pod: gone, .. })
            | (PodStatusRemoved { pod: gone, .. }, PodStatus { pod, .. }) if pod == gone
    )
}

/// What the node takes the cloud to know is what the log and the outbox together say.
fn check_reported(
    node: &NodeName,
    reported: &PodStatusSnapshot,
    logged: &[Report],
    waiting: &[Report],
) -> Result<(), Broken> {
    let mut cloud = NodeStatuses::new(node);
    for report in logged.iter().chain(waiting) {
        cloud.fold(report.id, &report.body);
    }
    let cloud: Vec<_> = cloud.snapshot().pods().collect();
    let reported: Vec<_> = reported.pods().collect();
    if cloud != reported {
        return Err(format!(
            "I2 {node}: it has reported {reported:#?}, log and outbox have {cloud:#?}"
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use headwater_event::ResourceKey;
    use headwater_event::report::Incarnation;

    use super::*;

    fn report(seq: u64, body: ReportBody) -> Report {
        let id = ReportId { incarnation: Incarnation(1), boot: 1, seq };
        Report { id, body, traceparent: None }
    }

    fn pod(name: &str) -> ResourceKey {
        ResourceKey::new(Some("d"), "pod", name).expect("a key")
    }

    fn status(name: &str, status: &'static str) -> ReportBody {
        ReportBody::PodStatus { pod: pod(name), uid: "u".to_owned(), status: status.into() }
    }

    fn removed(name: &str, uid: &str) -> ReportBody {
        ReportBody::PodStatusRemoved { pod: pod(name), uid: uid.to_owned() }
    }

    fn check(bodies: [ReportBody; 2]) -> Result<(), String> {
        let node = "a".parse().expect("a name");
        let reports = bodies.map(|body| report(1, body));
        check_ids(&node, reports.iter()).map_err(|broken| broken.to_string())
    }

    #[test]
    fn an_id_has_one_status_or_removes_it() {
        assert_eq!(check([status("p", "{}"), status("p", "{}")]), Ok(()));
        for uid in ["u", ""] {
            assert_eq!(check([status("p", "{}"), removed("p", uid)]), Ok(()));
            assert_eq!(check([removed("p", uid), status("p", "{}")]), Ok(()));
        }
        for other in [status("p", "[]"), status("q", "{}"), removed("q", "u")] {
            let broken = check([status("p", "{}"), other]).expect_err("two things");
            assert_eq!(broken, "I3 a: report 1.1.1 has two contents");
        }
    }
}
