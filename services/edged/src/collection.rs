//! What a node no longer needs: images, and containers that have ended.
//!
//! ```text
//!   each minute:       ended containers of all pods but the newest run, sandboxes of no pod
//!   each half minute:  the list of images, for the Node object
//!   each five minutes: images that no container has, by their age and by the space on their disk
//! ```
//!
//! | module | job |
//! |---|---|
//! | `image_plan` | which images go (pure) |
//! | `image_records` | when each image came and was used last (pure) |
//!
//! The periods, the rules, the Events and their words are those of a kubelet.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_telemetry::error_chain;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::event::{Occurrence, Severity, Subject};
use crate::eviction::Reclaim;
use crate::runtime::{Image, ImageError, Images};
use crate::worker::WorkerDependencies;
pub(crate) use image_plan::RemovalReason;
use image_plan::{DiskSpace, ImageFacts, Removal, plan, unused};
use image_records::ImageRecords;

mod image_plan;
mod image_records;

/// Ended runs of a container that stay, as a kubelet's maxPerPodContainer: its log is read, and its end is the
/// last state of the next run.
const ENDED_RUNS_MAX: usize = 1;

/// A collection did not do what it should.
#[derive(Debug, thiserror::Error)]
enum CollectionError {
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] ImageError),
    /// The file system of images cannot be measured.
    #[error("invalid capacity 0 on image filesystem")]
    NoCapacity,
    /// Images were not removed.
    #[error(
        "wanted to free {missing} bytes, but freed {freed} bytes space with errors in image deletion: \
         {cause}"
    )]
    Removal { missing: u64, freed: u64, cause: ImageError },
    /// All images that may go are gone.
    #[error(
        "Insufficient free disk space on the node's image filesystem ({used_percent}% of {} used). \
         Failed to free sufficient space by deleting unused images (freed {freed} bytes). \
         Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
        size(*capacity)
    )]
    StillFull { used_percent: u64, capacity: u64, freed: u64 },
}

/// Collects what the runtime has too much of. One task owns it.
pub(crate) struct Collector {
    shared: Arc<WorkerDependencies>,
    records: ImageRecords,
    /// The images for the Node object, the largest first.
    listed: watch::Sender<Arc<[Image]>>,
    /// The last collection of images failed.
    has_failed: bool,
    /// Requests for room on the disk.
    reclaims: mpsc::Receiver<Reclaim>,
}

impl Collector {
    /// A collector, which sends the node's images to `listed`.
    pub(crate) fn new(
        shared: Arc<WorkerDependencies>,
        listed: watch::Sender<Arc<[Image]>>,
        reclaims: mpsc::Receiver<Reclaim>,
    ) -> Self {
        Self { shared, records: ImageRecords::default(), listed, has_failed: false, reclaims }
    }

    /// Works until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let settings = &self.shared.settings;
        let tick = |period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let mut of_containers = tick(settings.container_collection_period);
        let mut of_lists = tick(settings.image_list_period);
        let mut of_images = tick(settings.image_collection_period);
        let images = self.shared.runtime.images().cloned();
        let has_ended_runs = self.shared.runtime.features().collection;
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = of_containers.tick(), if has_ended_runs => self.collect_runs().await,
                _ = of_lists.tick(), if images.is_some() => {
                    if let Some(images) = &images {
                        self.list(&**images).await;
                    }
                }
                _ = of_images.tick(), if images.is_some() => {
                    if let Some(images) = &images {
                        self.collect_images(&**images).await;
                    }
                }
                Some(done) = self.reclaims.recv() => {
                    if has_ended_runs {
                        self.collect_runs().await;
                    }
                    if let Some(images) = &images {
                        self.remove_unused(&**images).await;
                    }
                    // The evictor may have ended.
                    let _ = done.send(());
                }
                else => return,
            }
        }
    }

    async fn collect_runs(&self) {
        let known: BTreeSet<_> = self.shared.store.pods().into_iter().map(|pod| pod.uid).collect();
        if let Err(error) = self.shared.runtime.collect(ENDED_RUNS_MAX, &known).await {
            let message = error_chain(&error);
            tracing::warn!(message, "ended containers are not removed");
            self.event("ContainerGCFailed", message);
        }
    }

    /// Brings the list of images up to date.
    async fn list(&mut self, images: &dyn Images) {
        if let Err(error) = self.observe(images).await {
            tracing::debug!(%error, "the images of the node are not listed");
        }
    }

    async fn observe(&mut self, images: &dyn Images) -> Result<Vec<ImageFacts>, ImageError> {
        // An image that a container takes between the two calls is in the second answer.
        let mut listed = images.list().await?;
        let used = images.in_use().await?;
        let facts = self.records.observe(&listed, &used, Instant::now());
        listed.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.id.cmp(&b.id)));
        self.listed.send_if_modified(|before| {
            let is_new = **before != *listed;
            if is_new {
                *before = listed.into();
            }
            is_new
        });
        Ok(facts)
    }

    async fn collect_images(&mut self, images: &dyn Images) {
        let settings = &self.shared.settings.image_collection;
        if !settings.is_on() {
            return;
        }
        let result = self.free(images).await;
        let error = match result {
            Ok(()) => {
                self.has_failed = false;
                return;
            }
            Err(error) => error,
        };
        let message = error_chain(&error);
        tracing::warn!(message, "images are not collected");
        self.shared.metrics.image_collection_failed();
        match &error {
            CollectionError::NoCapacity => self.event("InvalidDiskCapacity", message.clone()),
            CollectionError::StillFull { .. } => {
                self.event("FreeDiskSpaceFailed", message.clone());
            }
            CollectionError::Runtime(_) | CollectionError::Removal { .. } => {}
        }
        // As under a kubelet: a runtime that is about to start fails once.
        if std::mem::replace(&mut self.has_failed, true) {
            self.event("ImageGCFailed", message);
        }
    }

    /// Removes images until the disk has the space that the settings demand. Images share layers: the disk is
    /// measured after each of them.
    async fn free(&mut self, images: &dyn Images) -> Result<(), CollectionError> {
        let settings = self.shared.settings.image_collection;
        // Each image is tried once, whatever the runtime makes of it.
        let (mut freed, mut tried) = (0_u64, BTreeSet::<Arc<str>>::new());
        let mut last_error = None;
        let mut begin_percent = settings.high_percent;
        let mut disk = space(images).await?;
        loop {
            let mut facts = self.observe(images).await?;
            facts.retain(|image| !tried.contains(&image.id));
            let removals = plan(&facts, disk, &settings, begin_percent, Instant::now());
            let is_for_space = |removal: &Removal| removal.reason == RemovalReason::Space;
            let has_begun = disk.used_percent() >= u64::from(begin_percent);
            if removals.is_empty() {
                let missing = disk.missing_bytes(settings.low_percent);
                let is_full = has_begun && missing > 0;
                return match last_error {
                    Some(cause) => Err(CollectionError::Removal { missing, freed, cause }),
                    None if is_full => Err(CollectionError::StillFull {
                        used_percent: disk.used_percent(),
                        capacity: disk.capacity_bytes,
                        freed,
                    }),
                    None => Ok(()),
                };
            }
            for removal in removals {
                if is_for_space(&removal) && disk.missing_bytes(settings.low_percent) == 0 {
                    break;
                }
                match self.remove(images, &removal).await {
                    Ok(true) => freed = freed.saturating_add(removal.bytes),
                    Ok(false) => {}
                    Err(error) => last_error = Some(error),
                }
                tried.insert(removal.id);
                disk = space(images).await?;
            }
            if has_begun {
                begin_percent = settings.low_percent;
            }
        }
    }

    /// Removes every image that no container has, because the disk is about to be full. As under a kubelet, one that came a
    /// moment ago stays.
    async fn remove_unused(&mut self, images: &dyn Images) {
        let settings = self.shared.settings.image_collection;
        let facts = match self.observe(images).await {
            Ok(facts) => facts,
            Err(error) => return tracing::warn!(%error, "images are not collected"),
        };
        for removal in unused(&facts, &settings, Instant::now()) {
            if let Err(error) = self.remove(images, &removal).await {
                tracing::warn!(id = %removal.id, %error, "an image is not removed");
            }
        }
    }

    /// Removes an image, and counts it. Returns whether it did: a container may have taken the image while others were
    /// removed.
    async fn remove(&self, images: &dyn Images, removal: &Removal) -> Result<bool, ImageError> {
        let Removal { id, bytes, reason } = removal;
        if images.in_use().await?.contains(id) {
            return Ok(false);
        }
        images.remove(id).await?;
        tracing::info!(%id, bytes, ?reason, "an image is removed");
        self.shared.metrics.image_collected(*reason);
        Ok(true)
    }

    fn event(&self, reason: &'static str, message: String) {
        self.shared.events.record(Occurrence {
            about: Subject::Node(self.shared.node.clone()),
            severity: Severity::Warning,
            reason: reason.to_owned(),
            message,
        });
    }
}

async fn space(images: &dyn Images) -> Result<DiskSpace, CollectionError> {
    let disk = images.usage().await?.file_system;
    if disk.capacity.bytes == 0 {
        return Err(CollectionError::NoCapacity);
    }
    Ok(DiskSpace { capacity_bytes: disk.capacity.bytes, available_bytes: disk.available.bytes })
}

/// A size as a kubelet writes it: `1.5 GiB`.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(4);
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let amount = bytes as f64 / f64::from(1024_u32).powi(power.cast_signed());
    let unit = units[usize::try_from(power).unwrap_or(4) - 1];
    format!("{amount:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_written_as_by_a_kubelet() {
        for (bytes, text) in [
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536 << 10, "1.5 MiB"),
            (10 << 30, "10.0 GiB"),
            (3 << 50, "3072.0 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
