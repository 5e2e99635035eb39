//! Reports pod statuses to the edge, asks it for deletes, and reports the end of removed pods:
//! immediately, and the latest status only, until the edge has accepted the report.
//!
//! A static pod has no object in the cloud. Its status is reported for the pod that mirrors it there, once there is one,
//! and no delete of it is asked for.
//!
//! One task owns the latest report of every pod. It retries a report that failed for a moment.
//! After every new listing it sends all reports again, because the edge may have lost its disk.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use headwater_event::ResourceKey;
use headwater_proto::local::operation::Verb;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::json;
use tokio::sync::mpsc;

use super::client::{EdgeClient, EdgeError};
use crate::backoff::Backoff;
use crate::config::Settings;
use crate::desired::compressed_object::CompressedObject;
use crate::metrics::{EdgedCounts, ReportOutcome};
use crate::pod::{PodRecord, PodUid};

/// A handle of the task. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct PodReporter(mpsc::Sender<Message>);

/// Messages that may wait for the task, for many pods may change at once; past this, workers wait.
const QUEUE_MAX: usize = 256;

/// Reports in flight: the edge syncs its outbox once for all that wait, and the cloud receives one
/// snapshot of them.
const IN_FLIGHT_MAX: usize = 32;

#[derive(Debug)]
enum Message {
    Status {
        key: ResourceKey,
        uid: PodUid,
        is_static: bool,
        status: CompressedObject<PodStatus>,
        trace: Option<String>,
    },
    Delete {
        key: ResourceKey,
        uid: PodUid,
        trace: Option<String>,
    },
    Removed {
        key: ResourceKey,
        uid: PodUid,
        is_static: bool,
    },
    Mirrors(BTreeMap<PodUid, PodUid>),
    ResendAll,
}

/// The latest report of a pod.
#[derive(Debug)]
struct PodReport {
    key: ResourceKey,
    /// The UID by which the cloud knows the pod; `None`: it does not know it yet.
    uid: Option<PodUid>,
    is_static: bool,
    status: Option<CompressedObject<PodStatus>>,
    delete: bool,
    /// The trace context of the pod's last change.
    trace: Option<String>,
    status_is_due: bool,
    delete_is_due: bool,
    /// Nothing of the pod is left on this node. The edge removes the status, and is sent nothing else
    /// of the pod.
    is_removed: bool,
}

/// The latest report of every pod.
#[derive(Debug, Default)]
struct PodReports {
    /// By the UIDs of this node.
    pods: BTreeMap<PodUid, PodReport>,
    /// The UIDs of the pods by which the cloud shows static pods.
    mirrors: BTreeMap<PodUid, PodUid>,
}

/// The result of sending a report.
enum SendResult {
    /// The edge accepted the report, or will never accept it.
    Settled,
    /// The edge could not accept this report now.
    RetryPod,
    /// The edge cannot be reached.
    RetryAll,
}

impl PodReporter {
    /// Starts the task; it ends when the last handle is dropped.
    pub(crate) fn start(edge: EdgeClient, settings: &Settings, metrics: EdgedCounts) -> Self {
        let (messages, inbox) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(
            edge,
            inbox,
            Backoff::new(settings.reconnect_base, settings.reconnect_cap),
            metrics,
        ));
        Self(messages)
    }

    /// Reports the pod's status. It supersedes an earlier one that was not sent yet.
    pub(crate) async fn status(
        &self,
        pod: &PodRecord,
        status: CompressedObject<PodStatus>,
        trace: Option<String>,
    ) {
        let (key, uid, is_static) = (pod.key.clone(), pod.uid.clone(), pod.is_static);
        self.send(Message::Status { key, uid, is_static, status, trace }).await;
    }

    /// Asks for the delete of the pod's object: nothing of the pod is left on the machine but its record.
    pub(crate) async fn delete(&self, pod: &PodRecord, trace: Option<String>) {
        if !pod.is_static {
            let (key, uid) = (pod.key.clone(), pod.uid.clone());
            self.send(Message::Delete { key, uid, trace }).await;
        }
    }

    /// Reports that the pod is removed from this node. No other report of it follows.
    pub(crate) async fn removed(&self, pod: &PodRecord) {
        let (key, uid, is_static) = (pod.key.clone(), pod.uid.clone(), pod.is_static);
        self.send(Message::Removed { key, uid, is_static }).await;
    }

    /// Takes the pods by which the cloud shows static pods, instead of those of before: by the UID of the static pod, that
    /// of its mirror.
    pub(crate) async fn mirrors(&self, mirrors: BTreeMap<PodUid, PodUid>) {
        self.send(Message::Mirrors(mirrors)).await;
    }

    /// Sends the latest report of every pod again.
    pub(crate) async fn resend_all(&self) {
        self.send(Message::ResendAll).await;
    }

    async fn send(&self, message: Message) {
        // The task ends only with its last handle, or with the async runtime.
        let _ = self.0.send(message).await;
    }
}

impl PodReport {
    fn new(key: ResourceKey, uid: Option<PodUid>, is_static: bool) -> Self {
        Self {
            key,
            uid,
            is_static,
            status: None,
            delete: false,
            trace: None,
            status_is_due: false,
            delete_is_due: false,
            is_removed: false,
        }
    }

    fn is_due(&self) -> bool {
        self.status_is_due || self.delete_is_due || self.is_removed
    }

    /// Marks the report that [`send`] sends as settled.
    fn settle(&mut self) {
        if self.status_is_due {
            self.status_is_due = false;
        } else {
            self.delete_is_due = false;
        }
    }
}

async fn run(
    edge: EdgeClient,
    mut inbox: mpsc::Receiver<Message>,
    mut backoff: Backoff,
    metrics: EdgedCounts,
) {
    let mut reports = PodReports::default();
    // Pods whose report the edge could not accept now: they delay no other pod.
    let mut postponed: BTreeSet<PodUid> = BTreeSet::new();
    loop {
        // All waiting messages are applied first, so that only the latest status of a pod is sent.
        while let Ok(message) = inbox.try_recv() {
            reports.apply(message);
        }
        let due = reports
            .pods
            .iter()
            .filter(|(uid, report)| report.is_due() && !postponed.contains(*uid));
        // What the cloud does not know is reported once it does.
        let due = due.filter_map(|(own, report)| Some((own, report.uid.as_ref()?, report)));
        let sends = due.take(IN_FLIGHT_MAX).map(|(own, uid, report)| async {
            let (result, outcome) = send(&edge, uid, report).await;
            (own.clone(), result, outcome)
        });
        let results = join_all(sends).await;
        if results.is_empty() && postponed.is_empty() {
            match inbox.recv().await {
                Some(message) => reports.apply(message),
                None => return,
            }
            continue;
        }
        let mut edge_responds = !results.is_empty();
        for (uid, result, outcome) in results {
            metrics.reported(outcome);
            match result {
                SendResult::Settled => {
                    backoff.reset();
                    if reports.pods.get(&uid).is_some_and(|report| report.is_removed) {
                        reports.pods.remove(&uid);
                    } else {
                        reports.pods.entry(uid).and_modify(PodReport::settle);
                    }
                }
                SendResult::RetryPod => {
                    postponed.insert(uid);
                }
                SendResult::RetryAll => edge_responds = false,
            }
        }
        if edge_responds {
            continue;
        }
        postponed.clear();
        tokio::select! {
            () = tokio::time::sleep(backoff.next_wait()) => {}
            message = inbox.recv() => match message {
                Some(message) => reports.apply(message),
                None => return,
            },
        }
    }
}

impl PodReports {
    fn apply(&mut self, message: Message) {
        match message {
            Message::Status { key, uid, is_static, status, trace } => {
                let report = self.of(key, uid, is_static);
                report.status = Some(status);
                report.trace = trace;
                report.status_is_due = true;
            }
            Message::Delete { key, uid, trace } => {
                let report = self.of(key, uid, false);
                if !report.delete {
                    report.delete = true;
                    report.trace = trace;
                    report.delete_is_due = true;
                }
            }
            Message::Removed { key, uid, is_static } => self.remove(key, uid, is_static),
            Message::Mirrors(mirrors) => self.set_mirrors(mirrors),
            Message::ResendAll => {
                for report in self.pods.values_mut() {
                    report.status_is_due = report.status.is_some();
                    report.delete_is_due = report.delete;
                }
            }
        }
    }

    /// The UID by which the cloud knows a pod.
    fn known(&self, uid: &PodUid, is_static: bool) -> Option<PodUid> {
        if is_static { self.mirrors.get(uid).cloned() } else { Some(uid.clone()) }
    }

    /// The report of a pod of this node.
    fn of(&mut self, key: ResourceKey, uid: PodUid, is_static: bool) -> &mut PodReport {
        let known = self.known(&uid, is_static);
        self.pods.entry(uid).or_insert_with(|| PodReport::new(key, known, is_static))
    }

    fn remove(&mut self, key: ResourceKey, uid: PodUid, is_static: bool) {
        let before = self.pods.remove(&uid).and_then(|report| report.uid);
        let known = before.or_else(|| self.known(&uid, is_static));
        if known.is_some() {
            let report = PodReport::new(key, known, is_static);
            self.pods.insert(uid, PodReport { is_removed: true, ..report });
        }
    }

    /// The status of a static pod is due for a mirror that is new. A mirror that has gone keeps its place: the edge
    /// refuses what is reported for it.
    fn set_mirrors(&mut self, mirrors: BTreeMap<PodUid, PodUid>) {
        self.mirrors = mirrors;
        let of_files = self.pods.iter_mut().filter(|(_, report)| report.is_static);
        for (uid, report) in of_files.filter(|(_, report)| !report.is_removed) {
            let Some(mirror) = self.mirrors.get(uid) else { continue };
            if report.uid.as_ref() != Some(mirror) {
                report.uid = Some(mirror.clone());
                report.status_is_due = report.status.is_some();
            }
        }
    }
}

/// Sends one report of the pod, the status before the delete.
async fn send(edge: &EdgeClient, uid: &PodUid, report: &PodReport) -> (SendResult, ReportOutcome) {
    let (verb, key, content) = if report.is_removed {
        (Verb::Delete, report.key.with_kind("podstatus"), json!({"uid": uid.as_str()}))
    } else if report.status_is_due {
        let status = report.status.as_ref().map(CompressedObject::decode);
        let content = json!({"uid": uid.as_str(), "status": status});
        (Verb::Update, report.key.with_kind("podstatus"), content)
    } else {
        (Verb::Delete, report.key.clone(), json!({"uid": uid.as_str()}))
    };
    let (resource, content) = (key.to_string(), content.to_string().into_bytes());
    let outcome = match edge.operate(verb, resource, content, report.trace.as_deref()).await {
        Ok(()) => ReportOutcome::Accepted,
        Err(error) if error.is_transient() => {
            tracing::debug!(%key, %uid, %error, "the edge did not accept a report yet");
            let is_response = matches!(error, EdgeError::Refused { .. });
            let result = if is_response { SendResult::RetryPod } else { SendResult::RetryAll };
            return (result, ReportOutcome::Postponed);
        }
        // The pod is removed, or has another UID: a retry changes nothing.
        Err(error) => {
            tracing::info!(%key, %uid, %error, "the edge refused a report");
            ReportOutcome::Refused
        }
    };
    (SendResult::Settled, outcome)
}
