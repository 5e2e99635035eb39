//! Tells the edge of pod statuses and asks it for deletes: at once, latest first, until it has
//! taken them.
//!
//! One task owns what is to be told. A report that fails in passing is tried again; after every
//! new listing all that is known is told again, for the edge may have lost its disk.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use headwater_event::ResourceKey;
use headwater_proto::local::operation::Verb;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::json;
use tokio::sync::mpsc;

use crate::backoff::Wait;
use crate::config::Settings;
use crate::local::{Edge, EdgeError};
use crate::metrics::{EdgedCounts, Reported};
use crate::packed::Packed;
use crate::pod::PodUid;

/// A cheap handle on the task.
#[derive(Clone, Debug)]
pub(crate) struct Reporter(mpsc::Sender<Message>);

/// Many pods may change at once; past this, workers wait.
const QUEUE_MAX: usize = 256;

/// Reports that are on their way at once: the edge syncs its outbox once for all that wait, and the
/// cloud gets one snapshot of them.
const AT_ONCE: usize = 32;

#[derive(Debug)]
enum Message {
    Status { key: ResourceKey, uid: PodUid, status: Packed<PodStatus>, trace: Option<String> },
    Delete { key: ResourceKey, uid: PodUid, trace: Option<String> },
    Forget { uid: PodUid },
    Again,
}

/// What the edge is to know of a pod.
#[derive(Debug)]
struct Told {
    key: ResourceKey,
    status: Option<Packed<PodStatus>>,
    delete: bool,
    /// Where the trace of the pod's last change stands.
    trace: Option<String>,
    status_is_due: bool,
    delete_is_due: bool,
}

impl Told {
    fn is_due(&self) -> bool {
        self.status_is_due || self.delete_is_due
    }

    /// What [`send`] sends need not be sent again.
    fn settled(&mut self) {
        let settled =
            if self.status_is_due { &mut self.status_is_due } else { &mut self.delete_is_due };
        *settled = false;
    }
}

impl Reporter {
    /// Starts the task; it ends when the last handle is dropped.
    pub(crate) fn start(edge: Edge, settings: &Settings, metrics: EdgedCounts) -> Self {
        let (messages, inbox) = mpsc::channel(QUEUE_MAX);
        let wait = Wait::new(settings.reconnect_base, settings.reconnect_cap);
        tokio::spawn(run(edge, inbox, wait, metrics));
        Self(messages)
    }

    /// The pod's status is this now.
    pub(crate) async fn status(
        &self,
        key: &ResourceKey,
        uid: &PodUid,
        status: Packed<PodStatus>,
        trace: Option<String>,
    ) {
        let (key, uid) = (key.clone(), uid.clone());
        self.tell(Message::Status { key, uid, status, trace }).await;
    }

    /// Nothing of the pod runs; its object may go.
    pub(crate) async fn delete(&self, key: &ResourceKey, uid: &PodUid, trace: Option<String>) {
        self.tell(Message::Delete { key: key.clone(), uid: uid.clone(), trace }).await;
    }

    /// The pod is gone.
    pub(crate) async fn forget(&self, uid: &PodUid) {
        self.tell(Message::Forget { uid: uid.clone() }).await;
    }

    /// Everything is to be told again.
    pub(crate) async fn again(&self) {
        self.tell(Message::Again).await;
    }

    async fn tell(&self, message: Message) {
        // The task ends only with its last handle, or with the runtime: nobody is left to tell.
        let _ = self.0.send(message).await;
    }
}

async fn run(edge: Edge, mut inbox: mpsc::Receiver<Message>, mut wait: Wait, metrics: EdgedCounts) {
    let mut told: BTreeMap<PodUid, Told> = BTreeMap::new();
    // Pods whose report the edge could not take just now: they hold up no other.
    let mut later: BTreeSet<PodUid> = BTreeSet::new();
    loop {
        // Take in all there is, so that only the latest status of a pod is sent.
        while let Ok(message) = inbox.try_recv() {
            take(&mut told, message);
        }
        let due = told.iter().filter(|(uid, told)| told.is_due() && !later.contains(*uid));
        let sends = due.take(AT_ONCE).map(|(uid, due)| async {
            let (sent, counted) = send(&edge, uid, due).await;
            (uid.clone(), sent, counted)
        });
        let sent = join_all(sends).await;
        if sent.is_empty() && later.is_empty() {
            match inbox.recv().await {
                Some(message) => take(&mut told, message),
                None => return,
            }
            continue;
        }
        let mut go_on = !sent.is_empty();
        for (uid, sent, counted) in sent {
            metrics.reported(counted);
            match sent {
                Sent::Settled => {
                    wait.reset();
                    told.entry(uid).and_modify(Told::settled);
                }
                Sent::PodLater => {
                    later.insert(uid);
                }
                Sent::AllLater => go_on = false,
            }
        }
        if go_on {
            continue;
        }
        later.clear();
        tokio::select! {
            () = tokio::time::sleep(wait.next()) => {}
            message = inbox.recv() => match message {
                Some(message) => take(&mut told, message),
                None => return,
            },
        }
    }
}

fn take(told: &mut BTreeMap<PodUid, Told>, message: Message) {
    let entry = |key| Told {
        key,
        status: None,
        delete: false,
        trace: None,
        status_is_due: false,
        delete_is_due: false,
    };
    match message {
        Message::Status { key, uid, status, trace } => {
            let pod = told.entry(uid).or_insert_with(|| entry(key));
            pod.status = Some(status);
            pod.trace = trace;
            pod.status_is_due = true;
        }
        Message::Delete { key, uid, trace } => {
            let pod = told.entry(uid).or_insert_with(|| entry(key));
            if !pod.delete {
                pod.delete = true;
                pod.trace = trace;
                pod.delete_is_due = true;
            }
        }
        Message::Forget { uid } => {
            told.remove(&uid);
        }
        Message::Again => {
            for pod in told.values_mut() {
                pod.status_is_due = pod.status.is_some();
                pod.delete_is_due = pod.delete;
            }
        }
    }
}

/// What became of a report.
enum Sent {
    /// It was taken, or never will be.
    Settled,
    /// The edge could not take this one now.
    PodLater,
    /// The edge is not there.
    AllLater,
}

/// Sends one report of the pod, the status before the delete.
async fn send(edge: &Edge, uid: &PodUid, due: &Told) -> (Sent, Reported) {
    let (verb, key, content) = if due.status_is_due {
        let content = json!({"uid": uid.as_str(), "status": due.status.as_ref().map(Packed::open)});
        (Verb::Update, due.key.with_kind("podstatus"), content)
    } else {
        (Verb::Delete, due.key.clone(), json!({"uid": uid.as_str()}))
    };
    let (resource, content) = (key.to_string(), content.to_string().into_bytes());
    let counted = match edge.operate(verb, resource, content, due.trace.as_deref()).await {
        Ok(()) => Reported::Taken,
        Err(error) if error.is_passing() => {
            tracing::debug!(%key, %uid, %error, "a report was not taken yet");
            let is_answer = matches!(error, EdgeError::Refused { .. });
            let sent = if is_answer { Sent::PodLater } else { Sent::AllLater };
            return (sent, Reported::Later);
        }
        // The pod is gone, or was never this one's: saying it again changes nothing.
        Err(error) => {
            tracing::info!(%key, %uid, %error, "a report was refused");
            Reported::Refused
        }
    };
    (Sent::Settled, counted)
}
