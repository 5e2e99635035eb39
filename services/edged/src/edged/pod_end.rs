//! The end of all pods of a directory, while no pod worker uses it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use headwater_telemetry::error_chain;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Edged, EdgedError, Ending, open_runtime, open_store, stray_pods};
use crate::api::client::EdgeClient;
use crate::config::EdgedConfig;
use crate::disk::pod_store::PodStore;
use crate::pod::{PodRecord, PodUid};
use crate::runtime::{END_PENDING_MAX, NodeRuntime, RunState, VolumeDrivers};
use crate::worker::{ends_that_count, has_pending_end, status};

/// How long the volumes of all pods may take to be taken back: drivers register again within seconds.
const DRIVERS_WITHIN: Duration = Duration::from_secs(30);

/// The wait between two looks whether it is known how the containers ended.
const END_PAUSE: Duration = Duration::from_secs(1);

/// The runtime gives an end up at a list, and lists are seconds apart: so much later than [`END_PENDING_MAX`] at most.
const GIVE_UP_LAG: Duration = Duration::from_secs(15);

/// The wait between two attempts.
const DRIVER_PAUSE: Duration = Duration::from_secs(1);

/// The pods of which a container ran, by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedPods {
    /// They have ended.
    pub ended: Vec<PodRecord>,
    /// A container of them still runs.
    pub left: Vec<PodRecord>,
}

impl Edged {
    /// Ends every pod in the pod worker's directory, each within its own grace period but at most `grace`. The edge is not
    /// asked for anything. The next pod worker starts the pods again.
    ///
    /// # Errors
    /// See [`EdgedError`]. Nothing was ended.
    pub async fn end_pods(config: EdgedConfig, grace: Duration) -> Result<EndedPods, EdgedError> {
        let (runtime, noticed) = open(&config).await?;
        let store = open_store(&runtime, &config.dir)?;
        // The others end in any case.
        stray_pods::recover_again(&runtime, &store).await;
        let ending = Ending { within: grace, takes_volumes_back: false };
        end(config, &runtime, noticed, store.pods(), ending).await
    }

    /// [Ends](Self::end_pods) every pod in the pod worker's directory, and removes what the runtime has of them: the next
    /// pod worker has another runtime. Pods with volumes of storage drivers end before all others, and their volumes are taken
    /// back: the drivers may be pods themselves. The records of the pods stay, with the statuses that were reported last and the ends of
    /// their containers: a pod that had ended does not run again, whether its end was reported or not. A pod without a record
    /// ends too, unless the runtime keeps no name of it. An end that is pending is waited for, as long as it may be pending.
    ///
    /// # Errors
    /// See [`EdgedError`]: also if the runtime does not say which pods have no record, which would run on beside the next
    /// runtime. It can be repeated.
    pub async fn clear(config: EdgedConfig, grace: Duration) -> Result<EndedPods, EdgedError> {
        let (dir, removed_at_once) = (config.dir.clone(), config.settings.remove_workers);
        let (runtime, noticed) = open(&config).await?;
        let store = open_store(&runtime, &dir)?;
        stray_pods::recover(&runtime, &store).await?;
        let ending = Ending { within: grace, takes_volumes_back: true };
        let pods = end(config, &runtime, noticed, store.pods(), ending).await?;
        if !pods.left.is_empty() {
            let pods: Vec<String> = pods.left.iter().map(|pod| pod.key.to_string()).collect();
            return Err(EdgedError::PodsLeft { pods: pods.join(", ") });
        }
        if !runtime.features().persistent {
            return Ok(pods);
        }
        // The pod worker has written by a store of its own.
        let store = PodStore::open(&dir)?;
        let records = store.pods();
        await_ends(&runtime, &store, &records).await;
        let removals = stream::iter(records.iter().map(|record| remove(&runtime, &store, record)));
        let removed: Vec<_> = removals.buffer_unordered(removed_at_once.max(1)).collect().await;
        removed.into_iter().collect::<Result<(), EdgedError>>()?;
        Ok(pods)
    }
}

async fn open(config: &EdgedConfig) -> Result<(NodeRuntime, mpsc::Receiver<PodUid>), EdgedError> {
    let (notices, noticed) = mpsc::channel::<PodUid>(super::NOTICES_MAX);
    Ok((open_runtime(config, notices).await?, noticed))
}

async fn end(
    config: EdgedConfig,
    runtime: &NodeRuntime,
    noticed: mpsc::Receiver<PodUid>,
    records: Vec<PodRecord>,
    ending: Ending,
) -> Result<EndedPods, EdgedError> {
    let edge = EdgeClient::new(&config.edge_socket, &config.settings)?;
    let mut running: Vec<_> = records.into_iter().filter(|pod| runs(runtime, pod)).collect();
    running.sort_by(|one, other| one.key.cmp(&other.key));
    if !running.is_empty() {
        Edged::start(config, edge, runtime.clone(), noticed, Some(ending))?.ended().await;
    }
    let (left, ended) = running.into_iter().partition(|pod| runs(runtime, pod));
    Ok(EndedPods { ended, left })
}

/// Has the drivers take the volumes of these pods back, as far as nothing of the pods runs, and waits until no volume is in
/// use any more, or the time is over.
pub(super) async fn take_volumes_back(runtime: &NodeRuntime, pods: &[PodRecord]) {
    let Some(drivers) = runtime.drivers() else { return };
    let deadline = Instant::now() + DRIVERS_WITHIN;
    let ended = pods.iter().filter(|pod| !runs(runtime, pod));
    let taken = join_all(ended.map(|pod| take_back(drivers, pod, deadline))).await;
    if taken.len() < pods.len() || taken.contains(&false) {
        // Some volume stays in use, however long this waits.
        return;
    }
    // What no pod uses any more is unstaged by itself.
    while !drivers.in_use().is_empty() && Instant::now() < deadline {
        sleep(DRIVER_PAUSE).await;
    }
}

/// Has the drivers take the volumes of a pod back, of which nothing runs, and returns whether they did until `deadline`.
async fn take_back(drivers: &Arc<dyn VolumeDrivers>, pod: &PodRecord, deadline: Instant) -> bool {
    let mut message = "its driver does not answer".to_owned();
    let taken = timeout_at(deadline, async {
        while let Err(error) = drivers.unpublish(&pod.uid).await {
            message = error_chain(&error);
            sleep(DRIVER_PAUSE).await;
        }
    });
    if taken.await.is_ok() {
        return true;
    }
    tracing::warn!(pod = %pod.key, message, "a volume stays published by its driver");
    false
}

fn runs(runtime: &NodeRuntime, pod: &PodRecord) -> bool {
    let is_running = |state: &RunState| matches!(state, RunState::Running { .. });
    runtime.pod(&pod.uid).containers.values().any(|container| is_running(&container.state))
}

/// Waits until the runtime says how the containers of these pods ended, as long as an end may be pending: what is removed has no
/// code any more. The end of a pod that was reported does not change by it.
async fn await_ends(runtime: &NodeRuntime, store: &PodStore, pods: &[PodRecord]) {
    let until = Instant::now() + END_PENDING_MAX + GIVE_UP_LAG;
    let is_awaited = |pod: &&PodRecord| {
        let state = runtime.pod(&pod.uid);
        has_pending_end(&state, &store.restart(&pod.uid))
            && store.status(&pod.uid).as_ref().and_then(status::outcome).is_none()
    };
    let mut awaited: Vec<&PodRecord> = pods.iter().filter(is_awaited).collect();
    for pod in &awaited {
        tracing::warn!(pod = %pod.key, "the runtime does not say yet how a container ended");
    }
    while !awaited.is_empty() && Instant::now() < until {
        sleep(END_PAUSE).await;
        awaited.retain(is_awaited);
    }
}

/// Removes what the runtime has of a pod, and what the pod worker knows of its runs: the next ones are counted from 0. The
/// ends of the runs are durable before that.
async fn remove(
    runtime: &NodeRuntime,
    store: &PodStore,
    pod: &PodRecord,
) -> Result<(), EdgedError> {
    let state = runtime.pod(&pod.uid);
    // If an earlier attempt was cut off, they are written down, and all or some of them are gone from the runtime.
    if !state.containers.is_empty() {
        let ends = ends_that_count(&state, &store.restart(&pod.uid));
        store.write_former_runs(&pod.uid, &ends).await?;
    }
    if let Some(drivers) = runtime.drivers() {
        take_back(drivers, pod, Instant::now() + DRIVERS_WITHIN).await;
    }
    runtime.remove(pod).await.inspect_err(|error| {
        tracing::warn!(pod = %pod.key, message = error_chain(error), "a pod is not removed");
    })?;
    Ok(store.forget_runs(&pod.uid).await?)
}
