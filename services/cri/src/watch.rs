//! The tasks that keep the knowledge: the stream of events, the lists, and the rotation of logs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::CallError;
use crate::facts;
use crate::inner::Inner;
use crate::knowledge::Phase;
use crate::pending_ends::ENDS_WITHIN;
use crate::proto::{ContainerEventType, ReopenContainerLogRequest};

/// How often everything is listed while events come: it finds a lost one.
const RELIST: Duration = Duration::from_mins(1);

/// How often everything is listed without events, as a kubelet's generic PLEG; and how often a runtime is called that
/// cannot be reached, or has no network yet: its node is not ready meanwhile.
const RELIST_BLIND: Duration = Duration::from_secs(1);

/// The list after one in which something newly had no status comes this soon: a sandbox whose addresses are not known has them
/// before its probes fail. The wait doubles up to the usual one while the same have none.
const RELIST_SILENT: Duration = Duration::from_secs(1);

/// Everything is listed at least this often while an end is pending: nothing else brings the end of a container whose status
/// has failed for a moment, and a job waits for it.
const RELIST_PENDING: Duration = Duration::from_secs(5);

/// A list after an event comes this much later: the runtime's own state lags by 50 to 280 ms, and the
/// ends of a pod's containers come together.
const SETTLED: Duration = Duration::from_millis(300);

/// A subscription has reached the runtime after this. Its call returns with its first event only: until then, lists
/// find what ended between the latest list and the subscription.
const SUBSCRIBED: Duration = Duration::from_secs(5);

/// How often the runtime is asked what it is, though it seems to be the same all the time.
const RUNTIME_CHECK: Duration = Duration::from_mins(5);

/// The wait before a stream of events begins again.
const RESUBSCRIBE: Duration = Duration::from_millis(500);

/// Starts the tasks. They end with `stop`.
pub(crate) fn start(inner: &Arc<Inner>, stop: &CancellationToken) {
    let has_events = Arc::new(AtomicBool::new(false));
    let (watching, seen) = (inner.clone(), has_events.clone());
    let listing = inner.clone();
    let rotating = inner.clone();
    let tasks: [std::pin::Pin<Box<dyn Future<Output = ()> + Send>>; 3] = [
        Box::pin(async move { subscribe(&watching, &seen).await }),
        Box::pin(async move { relist(&listing, &has_events).await }),
        Box::pin(async move { rotate_logs(&rotating).await }),
    ];
    for task in tasks {
        let stop = stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(task).await });
    }
}

/// Folds the runtime's events, as long as it has any. Another runtime, or another version, may have others.
async fn subscribe(inner: &Inner, has_events: &AtomicBool) {
    loop {
        let following = async {
            if inner.is_containerd.load(Ordering::Relaxed) {
                task_events(inner, has_events).await
            } else {
                container_events(inner, has_events).await
            }
        };
        let ended = tokio::select! {
            ended = following => ended,
            () = inner.is_another.notified() => Ok(()),
        };
        has_events.store(false, Ordering::Relaxed);
        inner.may_be_another.store(true, Ordering::Relaxed);
        inner.relist_soon.notify_one();
        match ended {
            Err(error @ CallError::Unimplemented { .. }) => {
                tracing::info!(%error, "everything is listed each second instead");
                inner.is_another.notified().await;
            }
            Err(error) => tracing::debug!(%error, "the runtime's events have ended"),
            Ok(()) => {}
        }
        tokio::time::sleep(RESUBSCRIBE).await;
    }
}

async fn task_events(inner: &Inner, has_events: &AtomicBool) -> Result<(), CallError> {
    let mut events = subscribed(inner.client.task_events(), has_events).await?;
    inner.relist_soon.notify_one();
    while let Ok(Some(event)) = events.message().await {
        if let Some(fact) = facts::task_event(&event) {
            inner.keep(&fact).await;
            inner.learn(fact);
            // Its status adds the reason.
            inner.relist_soon.notify_one();
        }
    }
    Ok(())
}

/// Waits for the first event of a stream. A stream in which nothing happens counts, too, once it has begun for sure.
async fn subscribed<T>(
    call: impl Future<Output = Result<T, CallError>>,
    has_events: &AtomicBool,
) -> Result<T, CallError> {
    let mut call = std::pin::pin!(call);
    if let Ok(called) = tokio::time::timeout(SUBSCRIBED, &mut call).await {
        has_events.store(called.is_ok(), Ordering::Relaxed);
        return called;
    }
    has_events.store(true, Ordering::Relaxed);
    call.await
}

async fn container_events(inner: &Inner, has_events: &AtomicBool) -> Result<(), CallError> {
    let mut events = subscribed(inner.client.container_events(), has_events).await?;
    inner.relist_soon.notify_one();
    while let Ok(Some(event)) = events.message().await {
        if event.container_event_type() == ContainerEventType::ContainerStoppedEvent {
            inner.relist_soon.notify_one();
        }
    }
    Ok(())
}

/// The waits between lists, some of which leave out statuses.
#[derive(Debug, Default)]
struct ListWaits {
    /// What had no status in the latest list, by id.
    silent: BTreeSet<String>,
    /// The wait after it.
    latest: Duration,
}

/// What a list was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListCause {
    /// The wait after the list before was over.
    Wait,
    /// An event, or another sign of a change.
    Event,
}

impl ListWaits {
    /// The wait after a list in which these had no status, where it is `usual` if all have one. A list that an event caused is
    /// no turn of the waits: on a node where much happens they would grow without having passed.
    fn after(&mut self, silent: BTreeSet<String>, usual: Duration, cause: ListCause) -> Duration {
        let has_new = !silent.is_subset(&self.silent);
        let soon = match cause {
            _ if has_new => RELIST_SILENT,
            ListCause::Wait => self.latest * 2,
            ListCause::Event => self.latest,
        };
        self.latest = if silent.is_empty() { usual } else { soon.min(usual) };
        self.silent = silent;
        self.latest
    }
}

/// The longest wait after a list.
fn usual_wait(is_blind: bool, has_pending_end: bool) -> Duration {
    match (is_blind, has_pending_end) {
        (true, _) => RELIST_BLIND,
        (false, true) => RELIST_PENDING,
        (false, false) => RELIST,
    }
}

/// Lists everything, again and again.
async fn relist(inner: &Arc<Inner>, has_events: &AtomicBool) {
    let mut read_at = Instant::now();
    let (mut waits, mut cause) = (ListWaits::default(), ListCause::Event);
    loop {
        let listed = inner.relist(ENDS_WITHIN).await;
        let trouble = match listed {
            Ok(()) => {
                read_runtime(inner, &mut read_at).await;
                inner.condition().await
            }
            Err(error) => {
                inner.may_be_another.store(true, Ordering::Relaxed);
                Some(error.to_string())
            }
        };
        let is_blind = trouble.is_some() || !has_events.load(Ordering::Relaxed);
        inner.set_trouble(trouble);
        let usual = usual_wait(is_blind, inner.pending.is_any());
        let interval = waits.after(inner.silent_ids(), usual, cause);
        cause = tokio::select! {
            () = tokio::time::sleep(interval) => ListCause::Wait,
            () = inner.relist_soon.notified() => {
                tokio::time::sleep(SETTLED).await;
                ListCause::Event
            }
        };
    }
}

/// Asks the runtime again what it is, if it may have been upgraded or started with another configuration.
async fn read_runtime(inner: &Inner, read_at: &mut Instant) {
    let was_away = inner.may_be_another.swap(false, Ordering::Relaxed);
    if !was_away && read_at.elapsed() < RUNTIME_CHECK {
        return;
    }
    match inner.read_runtime().await {
        Ok(()) => *read_at = Instant::now(),
        Err(error) => {
            tracing::debug!(%error, "the runtime does not say what it is");
            inner.may_be_another.store(true, Ordering::Relaxed);
        }
    }
}

/// Rotates the logs that have grown.
async fn rotate_logs(inner: &Inner) {
    loop {
        tokio::time::sleep(inner.log_check).await;
        let running: Vec<(String, std::path::PathBuf)> = inner.with(|knowledge| {
            let running =
                knowledge.runs().filter(|(_, run)| matches!(run.phase, Phase::Running { .. }));
            running.map(|(id, run)| (id.to_owned(), run.log.clone())).collect()
        });
        for (id, log) in running {
            match std::fs::metadata(&log) {
                Ok(file) if file.len() < inner.log_bytes_max => continue,
                Ok(_) => {
                    if let Err(error) = inner.files.rotate(&log, inner.log_files_max) {
                        tracing::warn!(%error, log = %log.display(), "a log is not rotated");
                        continue;
                    }
                }
                // An earlier rotation was cut off before the runtime opened the file anew.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => continue,
            }
            let reopened = inner
                .client
                .reopen_container_log(ReopenContainerLogRequest { container_id: id })
                .await;
            if let Err(error) = reopened {
                tracing::warn!(%error, log = %log.display(), "a container writes to its old log file");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_counts_once_its_subscription_has_reached_the_runtime() {
        let has_events = Arc::new(AtomicBool::new(false));
        let seen = has_events.clone();
        let quiet = std::future::pending::<Result<(), CallError>>();
        let waiting = tokio::spawn(async move { subscribed(quiet, &seen).await });
        tokio::time::sleep(SUBSCRIBED - RELIST_BLIND).await;
        assert!(
            !has_events.load(Ordering::Relaxed),
            "an end before the subscription is found by a list"
        );
        tokio::time::sleep(RELIST_BLIND * 2).await;
        assert!(has_events.load(Ordering::Relaxed));
        waiting.abort();
        let first = async { Ok(()) };
        has_events.store(false, Ordering::Relaxed);
        subscribed(first, &has_events).await.expect("an event");
        assert!(has_events.load(Ordering::Relaxed), "its first event has come");
    }

    #[test]
    fn what_has_no_status_is_asked_soon_and_ever_later_while_it_stays_so() {
        let ids = |names: &[&str]| -> BTreeSet<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let mut waits = ListWaits::default();
        let mut after = |names: &[&str]| waits.after(ids(names), RELIST, ListCause::Wait).as_secs();
        assert_eq!(after(&[]), 60);
        let damaged: Vec<_> = (0..8).map(|_| after(&["s1"])).collect();
        assert_eq!(damaged, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(after(&["s1", "s2"]), 1, "another one");
        assert_eq!(after(&["s1"]), 2);
        assert_eq!(after(&[]), 60);
        assert_eq!(after(&["s1"]), 1, "it had one meanwhile");
        assert_eq!(waits.after(ids(&["s1"]), RELIST_BLIND, ListCause::Wait), RELIST_BLIND);
    }

    #[test]
    fn an_end_that_is_pending_is_asked_for_every_few_seconds() {
        let silent = || BTreeSet::from(["c1".to_owned()]);
        let mut waits = ListWaits::default();
        let usual = usual_wait(false, true);
        let waits: Vec<_> =
            (0..6).map(|_| waits.after(silent(), usual, ListCause::Wait).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5, 5]);
        assert_eq!([usual_wait(true, true), usual_wait(false, false)], [RELIST_BLIND, RELIST]);
    }

    #[test]
    fn a_list_that_an_event_caused_makes_no_wait_longer() {
        let silent = || BTreeSet::from(["s1".to_owned()]);
        let mut waits = ListWaits::default();
        let mut after = |cause| waits.after(silent(), RELIST, cause).as_secs();
        assert_eq!(after(ListCause::Event), 1, "it is new");
        assert_eq!([after(ListCause::Event), after(ListCause::Event)], [1, 1]);
        assert_eq!(after(ListCause::Wait), 2);
        assert_eq!(after(ListCause::Event), 2);
        assert_eq!(after(ListCause::Wait), 4);
    }
}
