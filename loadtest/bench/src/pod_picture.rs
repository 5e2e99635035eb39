//! The cloud's picture of pods, watched: what it showed of each, and when.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headwater_loadtest::failure::Failure;
use headwater_loadtest::picture::follow;
use headwater_proto::operator::GetEvent;
use headwater_proto::operator::get_event::Kind;
use serde::Deserialize;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::waiting::wait;

/// Between the end of a watch and the next one.
const AGAIN: Duration = Duration::from_millis(50);

/// What the picture shows of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodView {
    /// The first moment at which it was Ready.
    pub(crate) ready: Option<Instant>,
    /// The first moment at which it had failed.
    pub(crate) failed: Option<Instant>,
}

/// A watch of the picture. It ends when this is dropped.
pub(crate) struct PodPicture {
    views: Arc<Mutex<HashMap<String, PodView>>>,
    watching: JoinHandle<()>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

impl PodPicture {
    /// Watches the pods at a controller's operator socket.
    pub(crate) fn start(runtime: &Runtime, operator: PathBuf) -> Self {
        let views = Arc::<Mutex<HashMap<String, PodView>>>::default();
        let seen = views.clone();
        let watching = runtime.spawn(async move {
            loop {
                // The controller may not listen yet.
                let _ = follow(&operator, "", |event| see(&mut lock(&seen), event)).await;
                tokio::time::sleep(AGAIN).await;
            }
        });
        Self { views, watching }
    }

    /// Waits until `look` finds something in the view of a pod.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn wait_for<T>(
        &self,
        pod: &str,
        look: impl Fn(&PodView) -> Option<T>,
    ) -> Result<T, Failure> {
        wait(pod, || look(lock(&self.views).get(pod)?))
    }

    /// Waits until the picture has no pod.
    ///
    /// # Errors
    /// When some stay.
    pub(crate) fn wait_empty(&self) -> Result<(), Failure> {
        wait("a picture without pods", || lock(&self.views).is_empty().then_some(()))
    }
}

impl Drop for PodPicture {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn see(views: &mut HashMap<String, PodView>, event: &GetEvent) {
    let at = Instant::now();
    let Ok(pod) = serde_json::from_slice::<Pod>(&event.object) else { return };
    let Pod { metadata: Metadata { name }, status } = pod;
    match event.kind() {
        Kind::Apply => {
            let view = views.entry(name).or_default();
            let is_ready = |it: &Condition| it.r#type == "Ready" && it.status == "True";
            if status.conditions.iter().any(is_ready) {
                view.ready.get_or_insert(at);
            }
            if status.phase == "Failed" {
                view.failed.get_or_insert(at);
            }
        }
        Kind::Delete => drop(views.remove(&name)),
        Kind::InitDone | Kind::Unspecified => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_keeps_the_first_moment() {
        let mut views = HashMap::new();
        let mut show = |kind: Kind, status: &str| {
            let object = format!(r#"{{"metadata":{{"name":"web"}},"status":{status}}}"#);
            let event = GetEvent { kind: kind.into(), object: object.into_bytes().into() };
            see(&mut views, &event);
            views.get("web").cloned()
        };
        let ready = r#"{"conditions":[{"type":"Ready","status":"True"}]}"#;
        let first = show(Kind::Apply, ready).expect("a view");
        let again = show(Kind::Apply, ready).expect("a view");
        assert!(first.ready.is_some() && first.ready == again.ready);
        assert!(again.failed.is_none());
        let failed = show(Kind::Apply, r#"{"phase":"Failed"}"#).expect("a view");
        assert!(failed.failed.is_some());
        assert!(show(Kind::Delete, "{}").is_none());
    }
}
