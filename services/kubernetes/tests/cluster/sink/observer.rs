//! What a cluster shows of the pods of a node, by a watch of its own, and what their edge reports: a history
//! for the checker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt as _, StreamExt as _};
use headwater_check::cluster::{Change, Observation, check};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::edge::{Edge, running_status};
use super::{Api, SOON};
use crate::world::POLL;

/// An older status stays for 10 s, the period in which a sink puts right what others overwrote. A look comes every
/// second, a request that fails is sent again after another one, and a busy machine takes its time.
const STALE_MAX: Duration = Duration::from_secs(20);

/// The statuses of a test have their number in the address of the pod.
const ADDRESSES: &str = "10.9.";

/// See the module.
pub(super) struct Observer {
    history: Arc<History>,
    watching: JoinHandle<()>,
}

struct History {
    began: Instant,
    seen: Mutex<Vec<Observation>>,
}

impl Observer {
    /// Watches the pods of a node in the namespace `default`.
    pub(super) async fn start(api: &Api, node: &str) -> Self {
        let path = format!(
            "/api/v1/namespaces/default/pods?watch=1&timeoutSeconds=3600&fieldSelector=spec.nodeName%3D{node}"
        );
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let stream = api.0.request_stream(request).await.expect("a watch");
        let history = Arc::new(History { began: Instant::now(), seen: Mutex::default() });
        let seen = history.clone();
        let watching = tokio::spawn(async move {
            let mut lines = Box::pin(stream.lines());
            while let Some(Ok(line)) = lines.next().await {
                let event: Value = serde_json::from_str(&line).expect("JSON");
                let pod = &event["object"];
                let uid = pod["metadata"]["uid"].as_str().expect("a pod with a UID");
                let change = if event["type"] == "DELETED" {
                    Change::Gone
                } else {
                    Change::Shown(number(&pod["status"]["podIP"]))
                };
                seen.add(uid, change);
            }
        });
        Self { history, watching }
    }

    /// Reports the status of this number.
    pub(super) async fn report(&self, edge: &Edge, pod: &str, uid: &str, number: u64) {
        self.history.add(uid, Change::Reported(number));
        edge.report_status(pod, uid, &running_status(&address(number))).await;
    }

    /// Reports the end of a pod.
    pub(super) async fn report_end(&self, edge: &Edge, pod: &str, uid: &str) {
        self.history.add(uid, Change::Ended);
        edge.report_end(pod, uid).await;
    }

    /// How many statuses the cluster has shown: a write that changes nothing shows none.
    pub(super) fn statuses(&self) -> u64 {
        let mut last = BTreeMap::new();
        let mut count = 0;
        for Observation { object, change, .. } in self.history.lock().iter() {
            if let Change::Shown(Some(number)) = change {
                count += u64::from(last.insert(object.clone(), *number) != Some(*number));
            }
        }
        count
    }

    /// Waits until the cluster shows what was reported, and checks how it came there.
    pub(super) async fn settle(&self) {
        let end = Instant::now() + SOON;
        loop {
            assert!(!self.watching.is_finished(), "the watch has ended");
            match self.history.check() {
                Ok(()) => return,
                Err(violation) if violation.is_pending() && Instant::now() < end => {}
                Err(violation) => panic!("{violation}"),
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl History {
    fn add(&self, uid: &str, change: Change) {
        let (at, object) = (self.began.elapsed(), uid.to_owned());
        self.lock().push(Observation { at, object, change });
    }

    fn check(&self) -> Result<(), headwater_check::cluster::ClusterViolation> {
        let now = self.began.elapsed();
        check(&self.lock(), now, STALE_MAX)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Observation>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of the status of a number.
pub(super) fn address(number: u64) -> String {
    format!("{ADDRESSES}{}.{}", number / 250, number % 250)
}

fn number(address: &Value) -> Option<u64> {
    let (high, low) = address.as_str()?.strip_prefix(ADDRESSES)?.split_once('.')?;
    Some(high.parse::<u64>().ok()? * 250 + low.parse::<u64>().ok()?)
}
