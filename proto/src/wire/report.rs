//! Reports and their bodies.

use headwater_event::report::SnapshotClosed;
use headwater_event::{Report, ReportBody, ReportId, ResourceKey};

use super::position::{hash, hash_bytes};
use super::{WireError, WireFault, optional, required, resource_key};
use crate::replication as wire;
use wire::report::Body;

impl From<Report> for wire::Report {
    fn from(report: Report) -> Self {
        Self {
            id: Some(report.id.into()),
            traceparent: report.traceparent.unwrap_or_default(),
            body: Some(body_to_wire(report.body)),
            keep: 0,
            base: 0,
        }
    }
}

impl TryFrom<wire::Report> for Report {
    type Error = WireError;

    fn try_from(report: wire::Report) -> Result<Self, WireError> {
        Ok(Self {
            id: required(report.id, "Report.id")?.into(),
            body: body_from_wire(required(report.body, "Report.body")?)?,
            traceparent: optional(report.traceparent),
        })
    }
}

pub(super) fn body_to_wire(body: ReportBody) -> Body {
    match body {
        ReportBody::PodStatus { pod, uid, status } => {
            Body::PodStatus(wire::PodStatus { pod: Some(pod_ref(pod, uid)), status })
        }
        ReportBody::PodStatusRemoved { pod, uid } => Body::PodStatusRemoved(pod_ref(pod, uid)),
        ReportBody::SnapshotClosed(closed) => Body::SnapshotClosed(wire::SnapshotClosed {
            hash: hash_bytes(closed.hash),
            pods: closed.pods,
            full: closed.full,
            first: (closed.first != ReportId::default()).then(|| closed.first.into()),
        }),
        ReportBody::Node { object } => Body::Node(object),
        ReportBody::PodTerminated { pod, uid } => Body::PodTerminated(pod_ref(pod, uid)),
        ReportBody::Message { key, content } => {
            Body::Message(wire::Message { key: key.into(), content })
        }
        ReportBody::Event { key, object } => {
            Body::Event(wire::Message { key: key.into(), content: object })
        }
    }
}

pub(super) fn body_from_wire(body: Body) -> Result<ReportBody, WireError> {
    Ok(match body {
        Body::PodStatus(status) => {
            let (pod, uid) = pod_of(required(status.pod, "PodStatus.pod")?)?;
            ReportBody::PodStatus { pod, uid, status: status.status }
        }
        Body::PodStatusRemoved(pod) => {
            let (pod, uid) = pod_of(pod)?;
            ReportBody::PodStatusRemoved { pod, uid }
        }
        Body::SnapshotClosed(closed) => ReportBody::SnapshotClosed(SnapshotClosed {
            hash: hash(&closed.hash, "SnapshotClosed.hash")?,
            pods: closed.pods,
            full: closed.full,
            first: closed.first.map(Into::into).unwrap_or_default(),
        }),
        Body::Node(object) => ReportBody::Node { object },
        Body::PodTerminated(pod) => {
            let (pod, uid) = pod_of(pod)?;
            ReportBody::PodTerminated { pod, uid }
        }
        Body::Message(message) => {
            let key = resource_key(&message.key, "Message.key")?;
            ReportBody::Message { key, content: message.content }
        }
        Body::Event(event) => {
            // The type of its key is that of Events, whatever the edge names.
            let key = resource_key(&event.key, "Report.event")?.with_kind("event");
            ReportBody::Event { key, object: event.content }
        }
        Body::Packed(_) | Body::Patch(_) => {
            return Err(WireFault::OutOfSession.of("Report.body"));
        }
    })
}

fn pod_ref(pod: ResourceKey, uid: String) -> wire::PodRef {
    wire::PodRef { pod: pod.into(), uid }
}

fn pod_of(pod: wire::PodRef) -> Result<(ResourceKey, String), WireError> {
    Ok((resource_key(&pod.pod, "PodRef.pod")?, pod.uid))
}
