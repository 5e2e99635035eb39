//! The volumes of pods: publishes them, and takes them back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use headwater_edged::container::driver_volume::{DriverVolume, VolumeSource};
use headwater_edged::pod::{PodRecord, PodUid};
use headwater_edged::runtime::pod_files::group;
use headwater_edged::runtime::{FileSystemUsage, RuntimeError, StatedDriver, VolumeDrivers};
use headwater_event::NodeName;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::{CallError, DriverClient};
use crate::layout::{Layout, attachment_name, check_driver_name, check_spec_name, handle};
use crate::ledger::{Ledger, PodVolume, Progress, VolumeId};
use crate::plan::requests;
use crate::proto::NodeUnpublishVolumeRequest;
use crate::records::{self, PodData};
use crate::registry::Registry;
use crate::turns::{Turn, Turns};
use crate::{registrar, statistics, unstaging};

/// The time for which an operation waits for another one on the same pod or volume: as long as a call.
const TURN_WITHIN: Duration = Duration::from_mins(2);

/// The prefix of a Node's name of a volume; the driver and its handle follow, with a `^` between them.
const CSI: &str = "kubernetes.io/csi/";

/// The step that makes a volume available to the node, as a kubelet names it.
const STAGE: &str = "MountVolume.MountDevice";

/// The step that makes a volume available to a pod.
const PUBLISH: &str = "MountVolume.SetUp";

/// The step that takes it back.
const UNPUBLISH: &str = "UnmountVolume.TearDown";

/// How storage drivers are used.
#[derive(Clone, Debug)]
pub struct CsiSettings {
    /// A kubelet's tree, which drivers know: `/var/lib/kubelet`.
    pub root: PathBuf,
    /// The time of a call that mounts; `None`: a kubelet's.
    pub call_within: Option<Duration>,
}

/// The records of volumes cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the volumes of storage drivers below {} cannot be read", root.display())]
pub struct OpenError {
    /// The kubelet's tree.
    root: PathBuf,
    /// The cause.
    source: io::Error,
}

/// The volumes of storage drivers. Cheap to clone.
#[derive(Clone)]
pub struct CsiVolumes {
    inner: Arc<Inner>,
    _stop: Arc<DropGuard>,
}

/// What the tasks share.
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    node: NodeName,
    call_within: Option<Duration>,
    registry: Mutex<Registry>,
    ledger: Mutex<Ledger>,
    pods: Turns<String>,
    pub(crate) volumes: Turns<VolumeId>,
    /// The pods that wait for a driver.
    waiting: Mutex<BTreeSet<PodUid>>,
    notices: mpsc::Sender<PodUid>,
    /// A volume may have lost its last pod, or a driver has come.
    pub(crate) unused: Notify,
}

impl CsiVolumes {
    /// Opens the volumes that earlier pod workers have left, and follows the sockets of drivers. `notices` receives the
    /// UID of every pod whose driver comes. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing was changed.
    pub fn open(
        settings: CsiSettings,
        node: NodeName,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<Self, OpenError> {
        let CsiSettings { root, call_within } = settings;
        let layout = Layout::new(root.clone());
        let open = || {
            std::fs::create_dir_all(layout.root())?;
            records::make_dir(layout.root(), &layout.registrations())?;
            records::load(&layout, node.as_str())
        };
        let ledger = open().map_err(|source| OpenError { root, source })?;
        let inner = Arc::new(Inner {
            layout,
            node,
            call_within,
            registry: Mutex::default(),
            ledger: Mutex::new(ledger),
            pods: Turns::default(),
            volumes: Turns::default(),
            waiting: Mutex::default(),
            notices,
            unused: Notify::new(),
        });
        let cancel = CancellationToken::new();
        tokio::spawn(registrar::run(inner.clone(), cancel.clone()));
        tokio::spawn(unstaging::run(inner.clone(), cancel.clone()));
        Ok(Self { inner, _stop: Arc::new(cancel.drop_guard()) })
    }

    /// The names of the registered drivers.
    pub fn drivers(&self) -> Vec<String> {
        self.inner.registry().all().map(|(name, _)| name.to_owned()).collect()
    }
}

/// Why a volume is not where it should be.
struct Failure {
    step: &'static str,
    cause: String,
    /// The driver that has to register first.
    absent: Option<String>,
}

impl Failure {
    fn new(step: &'static str, cause: impl fmt::Display) -> Self {
        Self { step, cause: cause.to_string(), absent: None }
    }

    /// The failure of a call. One that was cut off is repeated when the driver registers again.
    fn of_call(step: &'static str, driver: &str, error: &CallError) -> Self {
        let is_away = matches!(error, CallError::Away { .. });
        Self { absent: is_away.then(|| driver.to_owned()), ..Self::new(step, error) }
    }

    fn of(self, volume: &str) -> RuntimeError {
        let Self { step, cause, absent } = self;
        RuntimeError::Driver { step, volume: volume.to_owned(), cause, absent }
    }
}

impl Inner {
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<PodUid>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes what waits for a driver.
    pub(crate) fn on_registered(&self) {
        for pod in std::mem::take(&mut *self.waiting()) {
            // A full channel: the next attempt comes by itself.
            let _ = self.notices.try_send(pod);
        }
        self.unused.notify_one();
    }

    /// The client of a driver.
    ///
    /// # Errors
    /// It is not registered, in a kubelet's words.
    pub(crate) fn client(&self, driver: &str) -> Result<DriverClient, String> {
        let endpoint = self.registry().get(driver).map(|found| found.endpoint.clone());
        let absent =
            || format!("driver name {driver} not found in the list of registered CSI drivers");
        Ok(DriverClient::new(endpoint.ok_or_else(absent)?, self.call_within))
    }

    /// Publishes one volume. Returns its path.
    async fn publish(
        &self,
        turn: &Turn,
        pod: &PodRecord,
        volume: &DriverVolume,
    ) -> Result<PathBuf, Failure> {
        let refused = |why: String| Failure::new(PUBLISH, why);
        let called = |step, error: &CallError| Failure::of_call(step, &volume.driver, error);
        check_driver_name(&volume.driver).map_err(refused)?;
        check_spec_name(&volume.spec_name).map_err(refused)?;
        let handle = handle(volume, &pod.uid);
        let id = VolumeId { driver: volume.driver.clone(), handle: handle.clone() };
        let place =
            PodVolume { pod: pod.uid.as_str().to_owned(), spec_name: volume.spec_name.clone() };
        let target = self.layout.target(&place.pod, &place.spec_name);
        let own = self.volume_turn(&id, PUBLISH).await?;
        let before = self.ledger().use_of(&place).map(|(used, step)| (used.clone(), step));
        let is_published = matches!(&before, Some((used, Progress::Done)) if *used == id);
        match before {
            _ if is_published && !volume.republishes => return Ok(target),
            Some((used, _)) if used != id => {
                let why = format!("its folder is still that of another volume, {}", used.handle);
                return Err(Failure::new(PUBLISH, why));
            }
            _ => {}
        }
        let client = self.client(&volume.driver).map_err(|cause| Failure {
            absent: Some(volume.driver.clone()),
            ..Failure::new(PUBLISH, cause)
        })?;
        let can = client.capabilities().await.map_err(|error| called(PUBLISH, &error))?;
        let staging = self.layout.staging_target(&id.driver, &id.handle);
        let requests = requests(volume, &handle, can, &staging, &target);
        // The records of what is published are there already.
        let is_new = !is_published && self.ledger().begin_use(place.clone(), id.clone());
        if !is_published {
            self.write_use([turn, &own], volume, &place, &id)
                .await
                .map_err(|error| Failure::new(PUBLISH, error))?;
        }
        let stage_before = self.ledger().stage_of(&id);
        if let Some(stage) = requests.stage
            && stage_before != Some(Progress::Done)
        {
            self.ledger().begin_stage(id.clone());
            let (layout, staged, node) = (self.layout.clone(), id.clone(), self.node.clone());
            on_disk([turn, &own], move || records::write_stage(&layout, &staged, node.as_str()))
                .await
                .map_err(|error| Failure::new(STAGE, error))?;
            if let Err(error) = client.stage(stage).await {
                // Nothing was done, now or before: the driver is asked for nothing when the pod goes.
                if error.is_final() && is_new && stage_before.is_none() {
                    self.forget(turn, &own, &place, &id).await;
                }
                return Err(called(STAGE, &error));
            }
            self.ledger().set_staged(&id);
        }
        client.publish(requests.publish).await.map_err(|error| called(PUBLISH, &error))?;
        if let Some(given) = requests.group {
            let root = target.clone();
            on_disk([turn, &own], move || group::give(&root, given))
                .await
                .map_err(|error| Failure::new(PUBLISH, format!("applyFSGroup failed: {error}")))?;
        }
        self.ledger().set_published(&place);
        Ok(target)
    }

    /// Writes that the pod uses the volume.
    async fn write_use(
        &self,
        turns: [&Turn; 2],
        volume: &DriverVolume,
        place: &PodVolume,
        id: &VolumeId,
    ) -> io::Result<()> {
        let is_inline = volume.source == VolumeSource::Inline;
        let lifecycle = if is_inline { "Ephemeral" } else { "Persistent" };
        let data = PodData {
            spec_vol_id: place.spec_name.clone(),
            volume_handle: id.handle.clone(),
            driver_name: id.driver.clone(),
            node_name: self.node.as_str().to_owned(),
            attachment_id: attachment_name(&id.driver, &id.handle, self.node.as_str()),
            volume_lifecycle_mode: lifecycle.to_owned(),
        };
        let (layout, uid) = (self.layout.clone(), place.pod.clone());
        on_disk(turns, move || records::write_use(&layout, &uid, &data)).await
    }

    /// Forgets a volume of which nothing was done.
    async fn forget(&self, turn: &Turn, own: &Turn, place: &PodVolume, id: &VolumeId) {
        let (layout, used, staged) = (self.layout.clone(), place.clone(), id.clone());
        let removed = on_disk([turn, own], move || {
            records::remove_stage(&layout, &staged)?;
            records::remove_use(&layout, &used)
        });
        match removed.await {
            Ok(()) => {
                let mut ledger = self.ledger();
                ledger.end_stage(id);
                ledger.end_use(place);
            }
            // It is taken back with the pod.
            Err(error) => tracing::warn!(%error, "the folder of a volume stays"),
        }
    }

    /// Takes one volume back from a pod.
    async fn unpublish(
        &self,
        turn: &Turn,
        place: &PodVolume,
        id: &VolumeId,
    ) -> Result<(), Failure> {
        let own = self.volume_turn(id, UNPUBLISH).await?;
        let client = self.client(&id.driver).map_err(|why| Failure::new(UNPUBLISH, why))?;
        let target = self.layout.target(&place.pod, &place.spec_name);
        let request = NodeUnpublishVolumeRequest {
            volume_id: id.handle.clone(),
            target_path: target.to_string_lossy().into_owned(),
        };
        let unpublished = client.unpublish(request).await;
        unpublished
            .or_else(CallError::done_if_absent)
            .map_err(|error| Failure::new(UNPUBLISH, error))?;
        let (layout, used) = (self.layout.clone(), place.clone());
        on_disk([turn, &own], move || records::remove_use(&layout, &used))
            .await
            .map_err(|error| Failure::new(UNPUBLISH, error))?;
        self.ledger().end_use(place);
        Ok(())
    }

    async fn volume_turn(&self, id: &VolumeId, step: &'static str) -> Result<Turn, Failure> {
        let turn = self.volumes.take(id.clone(), TURN_WITHIN).await;
        turn.ok_or_else(|| Failure::new(step, "another operation on the volume is under way"))
    }
}

#[async_trait]
impl VolumeDrivers for CsiVolumes {
    fn has(&self, driver: &str) -> bool {
        self.inner.registry().get(driver).is_some()
    }

    fn stated(&self) -> Vec<StatedDriver> {
        let registry = self.inner.registry();
        let stated = registry.all().map(|(name, driver)| StatedDriver {
            name: name.to_owned(),
            node_id: driver.node_id.clone(),
            volumes_max: driver.volumes_max,
            topology: driver.topology.clone(),
        });
        stated.collect()
    }

    fn in_use(&self) -> Vec<String> {
        let ledger = self.inner.ledger();
        let name = |VolumeId { driver, handle }: &VolumeId| format!("{CSI}{driver}^{handle}");
        ledger.persistent().into_iter().map(name).collect()
    }

    fn has_volumes(&self, pod: &PodUid) -> bool {
        !self.inner.ledger().of_pod(pod.as_str()).is_empty()
    }

    async fn publish(
        &self,
        pod: &PodRecord,
        volumes: &[DriverVolume],
    ) -> Result<BTreeMap<String, PathBuf>, RuntimeError> {
        let inner = &self.inner;
        let turn = inner.pods.take(pod.uid.as_str().to_owned(), TURN_WITHIN).await;
        let Some(turn) = turn else {
            let volume = volumes.first().map_or("", |it| it.volume.as_str());
            let why = "another operation on the pod is under way";
            return Err(Failure::new(PUBLISH, why).of(volume));
        };
        let mut places = BTreeMap::new();
        let mut by_name: BTreeMap<&str, PathBuf> = BTreeMap::new();
        let mut failed = None;
        for volume in volumes {
            // Two volumes of a pod can be of one claim.
            if let Some(path) = by_name.get(volume.spec_name.as_str()) {
                places.insert(volume.volume.clone(), path.clone());
                continue;
            }
            // One that is not published keeps no other: they may have to be published again.
            match inner.publish(&turn, pod, volume).await {
                Ok(path) => {
                    by_name.insert(&volume.spec_name, path.clone());
                    places.insert(volume.volume.clone(), path);
                }
                Err(failure) => {
                    if failure.absent.is_some() {
                        inner.waiting().insert(pod.uid.clone());
                    }
                    failed.get_or_insert_with(|| failure.of(&volume.spec_name));
                }
            }
        }
        failed.map_or(Ok(places), Err)
    }

    async fn unpublish(&self, pod: &PodUid) -> Result<(), RuntimeError> {
        let inner = &self.inner;
        inner.waiting().remove(pod);
        if inner.ledger().of_pod(pod.as_str()).is_empty() {
            return Ok(());
        }
        let turn = inner.pods.take(pod.as_str().to_owned(), TURN_WITHIN).await;
        let Some(turn) = turn else {
            return Err(Failure::new(UNPUBLISH, "another operation on the pod is under way").of(""));
        };
        let used = inner.ledger().of_pod(pod.as_str());
        let mut failed = None;
        // One that is not taken back keeps no other.
        for (place, id) in used.iter().rev() {
            if let Err(failure) = inner.unpublish(&turn, place, id).await {
                failed.get_or_insert_with(|| failure.of(&place.spec_name));
            }
        }
        inner.unused.notify_one();
        failed.map_or(Ok(()), Err)
    }

    async fn usage(&self, pod: &PodUid) -> BTreeMap<PathBuf, Option<FileSystemUsage>> {
        let used = self.inner.ledger().of_pod(pod.as_str());
        let (mut measured, mut silent) = (BTreeMap::new(), BTreeSet::new());
        for (place, id) in used {
            let target = self.inner.layout.target(&place.pod, &place.spec_name);
            if silent.contains(&id.driver) {
                measured.insert(target, None);
                continue;
            }
            let usage = statistics::measure(&self.inner, &place, &id).await;
            if let Err(error) = &usage {
                let why = error.to_string();
                tracing::debug!(driver = id.driver, volume = place.spec_name, why, "not measured");
                if error.is_silence() {
                    silent.insert(id.driver.clone());
                }
            }
            measured.insert(target, usage.ok());
        }
        measured
    }
}

impl fmt::Debug for CsiVolumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CsiVolumes({})", self.inner.layout.root().display())
    }
}

/// Works on the disk while the turns last, also if the caller is dropped.
pub(crate) async fn on_disk<const N: usize>(
    turns: [&Turn; N],
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let turns = turns.map(Turn::clone);
    let worked = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(turns);
        result
    });
    worked.await.map_err(io::Error::other)?
}
