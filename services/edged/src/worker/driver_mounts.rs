//! The volumes of a pod that storage drivers publish. A driver may take minutes or hang: the calls run in a task of their
//! own, so that the worker still ends its pod, and no other pod waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Worker;
use super::signal::Signal;
use crate::backoff::Backoff;
use crate::container::WaitReason;
use crate::container::driver_volume::DriverVolume;
use crate::container::volume::{Volume, VolumeContent};
use crate::event::Severity;
use crate::runtime::RuntimeError;

/// The first wait after a volume was not taken back.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest one, as a kubelet's.
const RETRY_MAX: Duration = Duration::from_secs(122);

/// What is known of them.
#[derive(Debug)]
pub(super) struct DriverMounts {
    /// The paths of published volumes, by their names in the pod.
    places: BTreeMap<String, PathBuf>,
    /// The calls that are under way.
    task: Option<JoinHandle<()>>,
    /// The calls publish again what is published.
    is_again: bool,
    /// When the volumes were published last.
    published_at: Option<Instant>,
    /// The driver that was not registered when it was needed.
    absent: Option<String>,
    /// The waits between attempts to take the volumes back.
    backoff: Backoff,
    retry_at: Option<Instant>,
    /// Nothing is published for the pod any more.
    is_released: bool,
    /// The containers wait for the first answer, and the status has no word of it.
    awaited: WaitReason,
}

impl Default for DriverMounts {
    fn default() -> Self {
        Self {
            places: BTreeMap::new(),
            task: None,
            is_again: false,
            published_at: None,
            absent: None,
            backoff: Backoff::new(RETRY_FIRST, RETRY_MAX),
            retry_at: None,
            is_released: false,
            awaited: WaitReason { reason: "ContainerCreating", message: String::new() },
        }
    }
}

impl DriverMounts {
    /// Ends the calls that are under way. They may have acted.
    async fn halt(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // An aborted task ends with an error.
            let _ = task.await;
        }
    }
}

impl Drop for DriverMounts {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Worker {
    /// Has drivers publish the pod's volumes, unless they have, and again those whose drivers want it.
    pub(super) fn publish_volumes(&mut self) {
        let Some(drivers) = self.shared.runtime.drivers().cloned() else { return };
        let wanted: Vec<DriverVolume> = self.driver_volumes().cloned().collect();
        let now = Instant::now();
        let failed_lately = self.setup.as_ref().is_some_and(|setup| now < setup.retry_at());
        let is_refused = self.assignment.findings.refuses_pod() && self.containers.is_empty();
        let may_publish = self.missing.is_none() && self.ended.is_none() && !is_refused;
        if wanted.is_empty() || !may_publish || failed_lately {
            return;
        }
        let interval = self.shared.settings.volume_republish;
        let mounts = self.mounts.get_or_insert_default();
        let is_published = wanted.iter().all(|it| mounts.places.contains_key(&it.volume));
        let republishes = wanted.iter().any(|it| it.republishes);
        let is_due = mounts.published_at.is_none_or(|at| at + interval <= now);
        let is_again = is_published && republishes && is_due;
        if mounts.task.is_some() || is_published && !is_again {
            return;
        }
        mounts.is_again = is_again;
        let (shared, signals, record) =
            (self.shared.clone(), self.signals.clone(), self.record.clone());
        mounts.absent = None;
        mounts.task = Some(tokio::spawn(async move {
            let publishing = async {
                // Without a record nothing would take the volumes back after a crash.
                shared.store.insert(&record).await?;
                drivers.publish(&record, &wanted).await
            };
            let result = tokio::select! {
                () = shared.cancel.cancelled() => return,
                result = publishing => result,
            };
            let _ = signals.send(Box::new(Signal::Published { result })).await;
        }));
    }

    /// Takes the outcome of the calls.
    pub(super) fn end_publish(&mut self, result: Result<BTreeMap<String, PathBuf>, RuntimeError>) {
        let Some(mounts) = self.mounts.as_mut().filter(|mounts| mounts.task.is_some()) else {
            return;
        };
        mounts.task = None;
        let is_again = std::mem::take(&mut mounts.is_again);
        mounts.published_at = Some(Instant::now());
        match result {
            Ok(_) if is_again => {}
            // What is published stays, and containers keep it.
            Err(error) if is_again => {
                let message = headwater_telemetry::error_chain(&error);
                self.warn(None, "a volume is not published again", &message);
                self.event(None, Severity::Warning, "FailedMount", message);
            }
            Ok(places) => {
                mounts.places = places;
                self.volumes_written = false;
            }
            Err(error) => {
                if let RuntimeError::Driver { absent, .. } = &error {
                    mounts.absent.clone_from(absent);
                }
                self.fail_setup("ContainerCreating", &error);
            }
        }
    }

    /// Makes the next attempt due, if it waits for a driver that is registered now.
    pub(super) fn recheck_drivers(&mut self) {
        let absent = self.mounts.as_ref().and_then(|mounts| mounts.absent.as_deref());
        let Some((absent, drivers)) = absent.zip(self.shared.runtime.drivers()) else { return };
        if drivers.has(absent)
            && let Some(setup) = &mut self.setup
        {
            setup.make_due(Instant::now());
        }
    }

    /// Why the containers wait for drivers, if calls are under way without which they cannot start.
    pub(super) fn awaited_drivers(&self) -> Option<&WaitReason> {
        let mounts = self.mounts.as_ref();
        let mounts = mounts.filter(|mounts| mounts.task.is_some() && !mounts.is_again)?;
        Some(self.setup.as_ref().map_or(&mounts.awaited, |setup| setup.reason()))
    }

    /// The volumes with the paths of those that drivers have published; `None` while one is not.
    pub(super) fn placed_volumes(&self) -> Option<Vec<Volume>> {
        if self.shared.runtime.drivers().is_none() {
            return Some(self.volumes.clone());
        }
        let placed = self.volumes.iter().map(|volume| {
            let VolumeContent::Driver(_) = &volume.content else { return Some(volume.clone()) };
            let path = self.mounts.as_ref()?.places.get(&volume.name)?.clone();
            let content = VolumeContent::Published { path };
            Some(Volume { name: volume.name.clone(), content, is_secret: volume.is_secret })
        });
        placed.collect()
    }

    /// Has drivers take the pod's volumes back: no container of it runs.
    ///
    /// # Errors
    /// A volume is still published, or the pod worker ends.
    pub(super) async fn unpublish_volumes(&mut self) -> Result<(), RuntimeError> {
        let Some(drivers) = self.shared.runtime.drivers().cloned() else { return Ok(()) };
        let mounts = self.mounts.get_or_insert_default();
        mounts.halt().await;
        mounts.places.clear();
        mounts.published_at = None;
        let result = tokio::select! {
            () = self.shared.cancel.cancelled() => {
                Err(RuntimeError::Away { cause: "the pod worker ends".to_owned() })
            }
            result = drivers.unpublish(&self.record.uid) => result,
        };
        let mounts = self.mounts.get_or_insert_default();
        mounts.is_released = result.is_ok();
        mounts.retry_at = None;
        if result.is_err() {
            mounts.retry_at = Some(Instant::now() + mounts.backoff.next_wait());
        }
        result
    }

    /// The time of the next attempt to take the volumes back.
    pub(super) fn next_unpublish(&self) -> Option<Instant> {
        self.mounts.as_ref().and_then(|mounts| mounts.retry_at)
    }

    /// The time at which volumes are published again.
    pub(super) fn next_republish(&self) -> Option<Instant> {
        let mounts = self.mounts.as_ref().filter(|mounts| mounts.task.is_none())?;
        let republishes = self.driver_volumes().any(|volume| volume.republishes);
        let interval = self.shared.settings.volume_republish;
        let at = mounts.published_at.map(|at| at + interval);
        at.filter(|_| republishes && self.ended.is_none())
    }

    /// Takes the volumes of a pod back that has ended, and of which nothing runs: another node may need them.
    pub(super) async fn release_volumes(&mut self) {
        let runs = self.containers.values().any(|tracker| tracker.is_running());
        let is_released = self.mounts.as_ref().is_some_and(|mounts| mounts.is_released);
        let is_early = self.next_unpublish().is_some_and(|at| Instant::now() < at);
        let has_drivers = self.driver_volumes().next().is_some();
        if self.ended.is_none() || runs || is_released || is_early || !has_drivers {
            return;
        }
        if let Err(error) = self.unpublish_volumes().await {
            let message = headwater_telemetry::error_chain(&error);
            self.warn(None, "a volume of an ended pod is not taken back yet", &message);
        }
    }

    fn driver_volumes(&self) -> impl Iterator<Item = &DriverVolume> {
        self.volumes.iter().filter_map(|volume| match &volume.content {
            VolumeContent::Driver(volume) => Some(&**volume),
            _ => None,
        })
    }
}
