//! The in-memory runtime: sandboxes, containers and images as values, with faults on request.
//!
//! It is the twin of a container runtime in tests. Nothing happens in it by itself: a test ends a
//! container, loses a sandbox or makes pulls fail.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, watch};

use super::{
    CommandBounds, CommandOutput, DiskUsage, Exit, Features, FileSystemUsage, Image, ImageError,
    ImageUsage, Images, LogQuery, MemoryUsage, NodeRuntime, PodDisk, PodState, PodUsage,
    ProcessUsage, PulledImage, RegistryCredentials, Rejection, RunHistory, RunState, Runtime,
    RuntimeError, SandboxState, StopRequest, Usage,
};
use crate::container::LaunchSpec;
use crate::container::cpu_set::CpuSet;
use crate::container::volume::Volume;
use crate::pod::{PodRecord, PodUid};
use crate::pod_fields::Column;

/// Runs pods in memory. Cheap to clone: clones share their pods.
#[derive(Clone, Debug)]
pub struct MemoryRuntime {
    state: Arc<Mutex<State>>,
    notices: mpsc::Sender<PodUid>,
    /// The pods whose content stays when they are removed.
    kept: Arc<watch::Sender<BTreeSet<PodUid>>>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<PodUid, PodState>,
    images: BTreeSet<String>,
    /// Pulls that fail before the next one succeeds.
    failing_pulls: usize,
    failing_resizes: usize,
    /// A pod has an address of either family.
    is_dual_stack: bool,
    /// The output of every command.
    command_output: Vec<u8>,
    /// The login without which the registry refuses a pull.
    login: Option<RegistryCredentials>,
    /// The images that cannot be removed.
    pinned: BTreeSet<String>,
    /// The images whose removal fails.
    stuck: BTreeSet<String>,
    /// The room for images on the disk.
    room: Option<usize>,
    /// Why no pod is admitted.
    rejection: Option<Rejection>,
    /// Containers that do not end when they are asked to.
    stubborn: BTreeSet<(PodUid, String)>,
    /// The memory that pods use while they run.
    used: BTreeMap<PodUid, u64>,
    /// The memory that all pods may use.
    memory: Option<u64>,
    /// What pods take of the disk.
    disk: BTreeMap<PodUid, u64>,
    /// How many times the memory of all pods was measured.
    measurements: usize,
    /// The latest launch of each container.
    launches: BTreeMap<(PodUid, String), LaunchSpec>,
}

impl MemoryRuntime {
    /// An empty runtime, which sends the UID of every pod that changes to `notices`.
    pub fn new(notices: mpsc::Sender<PodUid>) -> Self {
        Self { state: Arc::default(), notices, kept: Arc::default() }
    }

    /// This runtime with its seam to images.
    pub fn node_runtime(&self) -> NodeRuntime {
        NodeRuntime::new(Arc::new(self.clone())).with_images(Arc::new(self.clone()))
    }

    /// This runtime with its seams to images and to usage: the node evicts pods.
    pub fn measured_runtime(&self) -> NodeRuntime {
        self.node_runtime().with_usage(Arc::new(self.clone()))
    }

    /// The latest launch of a container.
    pub fn launch(&self, pod: &PodUid, container: &str) -> Option<LaunchSpec> {
        self.lock().launches.get(&(pod.clone(), container.to_owned())).cloned()
    }

    /// Lets all pods together have this much memory.
    pub fn limit_memory(&self, bytes: u64) {
        self.lock().memory = Some(bytes);
    }

    /// Lets a pod use this much memory while it runs, and while its [content stays](Self::keep_content).
    pub fn use_memory(&self, pod: &PodUid, bytes: u64) {
        self.lock().used.insert(pod.clone(), bytes);
    }

    /// Lets a pod take this much of the disk.
    pub fn use_disk(&self, pod: &PodUid, bytes: u64) {
        self.lock().disk.insert(pod.clone(), bytes);
    }

    /// How many times the memory of all pods was measured.
    pub fn measurements(&self) -> usize {
        self.lock().measurements
    }

    /// Keeps the content of a pod: its removal ends its containers and hangs then.
    pub fn keep_content(&self, pod: &PodUid) {
        self.kept.send_if_modified(|kept| kept.insert(pod.clone()));
    }

    /// Lets the content of a pod go.
    pub fn drop_content(&self, pod: &PodUid) {
        self.kept.send_if_modified(|kept| kept.remove(pod));
    }

    /// Ends a running container with this exit code, or shows the [hidden](Self::hide_end) end of one.
    pub fn exit(&self, pod: &PodUid, container: &str, code: i32) {
        self.change(pod, |state| {
            if let Some(runs) = state.containers.get_mut(container)
                && let RunState::EndPending { started_at: Some(started_at) } = runs.state
            {
                runs.state = RunState::Running { started_at };
            }
            end(state, container, code, None, false);
        });
    }

    /// Ends a running container without saying how.
    pub fn hide_end(&self, pod: &PodUid, container: &str) {
        self.change(pod, |state| {
            if let Some(runs) = state.containers.get_mut(container)
                && let RunState::Running { started_at } = runs.state
            {
                runs.state = RunState::EndPending { started_at: Some(started_at) };
            }
        });
    }

    /// Ends the pod's sandbox and everything in it. The containers end for the machine's sake.
    pub fn lose_sandbox(&self, pod: &PodUid) {
        self.change(pod, |state| {
            if state.sandbox != SandboxState::Ready {
                return;
            }
            state.sandbox = SandboxState::Lost;
            for name in state.containers.keys().cloned().collect::<Vec<_>>() {
                end(state, &name, 137, Some(9), true);
            }
        });
    }

    /// Lets the next `count` pulls fail.
    pub fn fail_pulls(&self, count: usize) {
        self.lock().failing_pulls = count;
    }

    /// Fails the next changes of resources.
    pub fn fail_resizes(&self, count: usize) {
        self.lock().failing_resizes = count;
    }

    /// Gives pods an address of either family from here on.
    pub fn set_dual_stack(&self) {
        self.lock().is_dual_stack = true;
    }

    /// Gives every command this output.
    pub fn set_command_output(&self, output: Vec<u8>) {
        self.lock().command_output = output;
    }

    /// Gives the disk room for so many images. It has room for 1,000 at first.
    pub fn set_room(&self, images: usize) {
        self.lock().room = Some(images);
    }

    /// Pins an image.
    pub fn pin_image(&self, name: &str) {
        self.lock().pinned.insert(name.to_owned());
    }

    /// Lets every removal of an image fail.
    pub fn refuse_removal(&self, name: &str) {
        self.lock().stuck.insert(name.to_owned());
    }

    /// Admits no pod, for this reason, if there is one.
    pub fn reject(&self, rejection: Option<Rejection>) {
        self.lock().rejection = rejection;
    }

    /// Lets the registry refuse every pull without this login.
    pub fn demand_login(&self, username: &str, password: &str) {
        let (username, password) = (username.to_owned(), password.to_owned());
        self.lock().login = Some(RegistryCredentials { username, password });
    }

    /// Lets the container ignore requests to end, until it is killed.
    pub fn ignore_stops(&self, pod: &PodUid, container: &str) {
        self.lock().stubborn.insert((pod.clone(), container.to_owned()));
    }

    /// Removes an image by name.
    pub fn remove_image(&self, name: &str) {
        self.lock().images.remove(name);
    }

    fn change(&self, pod: &PodUid, change: impl FnOnce(&mut PodState)) {
        if let Some(state) = self.lock().pods.get_mut(pod) {
            change(state);
        }
        // A full queue is read soon, and a relist finds a lost notice.
        let _ = self.notices.try_send(pod.clone());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Runtime for MemoryRuntime {
    fn features(&self) -> Features {
        Features {
            version: "memory://1".to_owned(),
            sandboxes: true,
            commands: true,
            files: false,
            persistent: false,
            resize: true,
            collection: false,
            cpu_sets: true,
            devices: true,
        }
    }

    fn fields(&self) -> Column {
        Column::Memory
    }

    fn admit(&self, _: &Pod) -> Result<(), Rejection> {
        self.lock().rejection.clone().map_or(Ok(()), Err)
    }

    fn pods(&self) -> Vec<PodUid> {
        self.lock().pods.keys().cloned().collect()
    }

    fn pod(&self, pod: &PodUid) -> PodState {
        self.lock().pods.get(pod).cloned().unwrap_or_default()
    }

    async fn open(&self, pod: &PodRecord, _: &Pod) -> Result<(), RuntimeError> {
        let mut lock = self.lock();
        let is_first = !lock.pods.contains_key(&pod.uid);
        let (number, is_dual_stack) = (lock.pods.len(), lock.is_dual_stack);
        let state = lock.pods.entry(pod.uid.clone()).or_default();
        if state.sandbox == SandboxState::Lost {
            return Err(RuntimeError::Sandbox { cause: "the lost one is not closed".to_owned() });
        }
        if state.sandbox == SandboxState::None {
            state.sandbox = SandboxState::Ready;
            if is_first {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                let address = u32::from(Ipv4Addr::new(10, 244, 0, 1)).wrapping_add(number);
                state.addresses = vec![IpAddr::V4(address.into())];
                if is_dual_stack {
                    let address = Ipv4Addr::from(address).to_ipv6_mapped();
                    state.addresses.push(IpAddr::V6(address));
                }
            } else {
                state.sandbox_attempt += 1;
            }
        }
        Ok(())
    }

    async fn close(&self, pod: &PodUid) -> Result<(), RuntimeError> {
        if let Some(state) = self.lock().pods.get_mut(pod) {
            if state.containers.values().any(RunHistory::is_running) {
                return Err(RuntimeError::Sandbox { cause: "a container runs in it".to_owned() });
            }
            state.sandbox = SandboxState::None;
        }
        Ok(())
    }

    async fn write_volumes(&self, _: &PodRecord, _: &[Volume]) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn start(
        &self,
        pod: &PodRecord,
        _: &Pod,
        launch: &LaunchSpec,
    ) -> Result<(), RuntimeError> {
        let failed = |cause: &str| RuntimeError::Start {
            container: launch.container.clone(),
            cause: cause.to_owned(),
        };
        let mut lock = self.lock();
        let image = launch.image.clone();
        if image.as_ref().is_some_and(|image| !lock.images.contains(image)) {
            return Err(failed("its image is not present"));
        }
        let state = lock.pods.get_mut(&pod.uid).filter(|s| s.sandbox == SandboxState::Ready);
        let state = state.ok_or_else(|| failed("the pod has no sandbox that is ready"))?;
        let before = state.containers.get(&launch.container);
        let run = RunState::Running { started_at: Timestamp::now() };
        let image_id = image.map(|image| image_id(&image));
        let (sandbox, signal) = (state.sandbox_attempt, launch.stop_signal);
        if let Some(runs) = RunHistory::next(before, sandbox, run, image_id, signal) {
            state.containers.insert(launch.container.clone(), runs);
            let key = (pod.uid.clone(), launch.container.clone());
            lock.launches.insert(key, launch.clone());
        }
        Ok(())
    }

    async fn stop(
        &self,
        pod: &PodUid,
        container: &str,
        request: StopRequest,
    ) -> Result<(), RuntimeError> {
        let is_stubborn = self.lock().stubborn.contains(&(pod.clone(), container.to_owned()));
        let runs = self.pod(pod).containers.remove(container).filter(RunHistory::is_running);
        let Some(runs) = runs else {
            return Err(RuntimeError::NotRunning { container: container.to_owned() });
        };
        let signal = runs.signal_of(request);
        if request.kills() || !is_stubborn {
            self.change(pod, |state| {
                end(state, container, 128 + signal, Some(signal), request.interrupts);
            });
        }
        Ok(())
    }

    async fn run(
        &self,
        pod: &PodUid,
        container: &str,
        _: &[String],
        bounds: CommandBounds,
    ) -> Result<CommandOutput, RuntimeError> {
        if self.pod(pod).containers.get(container).is_some_and(RunHistory::is_running) {
            let mut output = self.lock().command_output.clone();
            output.truncate(bounds.output_bytes_max);
            Ok(CommandOutput { code: Some(0), output })
        } else {
            Err(RuntimeError::NotRunning { container: container.to_owned() })
        }
    }

    async fn resize(
        &self,
        pod: &PodRecord,
        _: &Pod,
        containers: &[String],
    ) -> Result<(), RuntimeError> {
        let mut lock = self.lock();
        if let Some(failures) = lock.failing_resizes.checked_sub(1) {
            lock.failing_resizes = failures;
            return Err(RuntimeError::Sandbox { cause: "its cgroup is busy".to_owned() });
        }
        drop(lock);
        let pod = self.pod(&pod.uid);
        let runs = |name: &str| pod.containers.get(name).is_some_and(RunHistory::is_running);
        match containers.iter().find(|name| !runs(name)) {
            Some(container) => Err(RuntimeError::NotRunning { container: container.clone() }),
            None => Ok(()),
        }
    }

    async fn confine(&self, _: &PodUid, _: &str, _: &CpuSet) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn remove(&self, pod: &PodRecord) -> Result<(), RuntimeError> {
        if let Some(state) = self.lock().pods.get_mut(&pod.uid) {
            *state = PodState::default();
        }
        let mut kept = self.kept.subscribe();
        // The sender lives as long as this runtime.
        let _ = kept.wait_for(|kept| !kept.contains(&pod.uid)).await;
        self.lock().pods.remove(&pod.uid);
        Ok(())
    }

    fn log_files(&self, _: &LogQuery) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

impl State {
    /// The pods that run, whose ends are pending or whose content stays, and the memory that they use.
    fn memory_of_pods(&self) -> impl Iterator<Item = (&PodUid, u64)> {
        let is_open = |runs: &RunHistory| runs.is_running() || runs.is_end_pending();
        let open = self.pods.iter().filter(move |(_, pod)| {
            **pod == PodState::default() || pod.containers.values().any(is_open)
        });
        open.map(|(pod, _)| (pod, self.used.get(pod).copied().unwrap_or(0)))
    }
}

#[async_trait]
impl Usage for MemoryRuntime {
    async fn pods(&self) -> Result<Vec<PodUsage>, RuntimeError> {
        let lock = self.lock();
        let pods = lock.memory_of_pods().map(|(pod, memory_bytes)| PodUsage {
            pod: pod.clone(),
            processes: ProcessUsage { memory_bytes, ..ProcessUsage::default() },
            volumes: DiskUsage::default(),
            containers: Vec::new(),
        });
        Ok(pods.collect())
    }

    async fn file_systems(&self) -> Result<Vec<FileSystemUsage>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn disk(&self, pod: &PodUid, _: &[String]) -> Result<Option<PodDisk>, RuntimeError> {
        let disk = self.lock().disk.get(pod).copied();
        let files = |bytes| DiskUsage { bytes, inodes: 1 };
        Ok(disk.map(|bytes| PodDisk { files: files(bytes), ..PodDisk::default() }))
    }

    fn memory_of_all(&self) -> Option<MemoryUsage> {
        let mut lock = self.lock();
        lock.measurements += 1;
        let used = lock.memory_of_pods().map(|(_, used)| used).sum();
        lock.memory.map(|limit| MemoryUsage { limit, used })
    }
}

#[async_trait]
impl Images for MemoryRuntime {
    async fn status(&self, name: &str) -> Result<Option<Image>, ImageError> {
        let lock = self.lock();
        Ok(lock.images.get(name).map(|name| image(name, lock.pinned.contains(name))))
    }

    async fn pull(
        &self,
        name: &str,
        credentials: &[RegistryCredentials],
    ) -> Result<PulledImage, ImageError> {
        let mut lock = self.lock();
        if name.is_empty() {
            return Err(ImageError::InvalidName { name: name.to_owned() });
        }
        if lock.failing_pulls > 0 {
            lock.failing_pulls -= 1;
            let cause = "RegistryUnavailable: a test asked for this".to_owned();
            return Err(ImageError::Unreachable { name: name.to_owned(), cause });
        }
        if lock.login.as_ref().is_some_and(|login| !credentials.contains(login)) {
            let cause = "401 Unauthorized".to_owned();
            return Err(ImageError::Refused { name: name.to_owned(), cause });
        }
        lock.images.insert(name.to_owned());
        Ok(PulledImage { id: image_id(name), took: Duration::ZERO })
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        let lock = self.lock();
        let all = lock.images.iter().map(|name| image(name, lock.pinned.contains(name)));
        Ok(all.collect())
    }

    async fn remove(&self, id: &str) -> Result<(), ImageError> {
        let mut lock = self.lock();
        if let Some(name) = lock.stuck.iter().find(|name| *image_id(name) == *id) {
            let cause = "a test asked for this".to_owned();
            return Err(ImageError::Runtime { name: name.clone(), cause });
        }
        lock.images.retain(|name| *image_id(name) != *id);
        Ok(())
    }

    async fn in_use(&self) -> Result<BTreeSet<Arc<str>>, ImageError> {
        let lock = self.lock();
        let containers = lock.pods.values().flat_map(|pod| pod.containers.values());
        Ok(containers.filter_map(|runs| runs.image_id.clone()).collect())
    }

    async fn usage(&self) -> Result<ImageUsage, ImageError> {
        let lock = self.lock();
        let of = |images: usize| {
            let inodes = u64::try_from(images).unwrap_or(u64::MAX);
            DiskUsage { bytes: inodes.saturating_mul(IMAGE_BYTES), inodes }
        };
        let (images, room) = (lock.images.len(), lock.room.unwrap_or(ROOM));
        let file_system = FileSystemUsage {
            mount_point: PathBuf::from("/"),
            used: of(images),
            capacity: of(room),
            available: of(room.saturating_sub(images)),
        };
        Ok(ImageUsage { images: of(images), file_system })
    }
}

fn end(state: &mut PodState, container: &str, code: i32, signal: Option<i32>, interrupted: bool) {
    let Some(runs) = state.containers.get_mut(container) else { return };
    let RunState::Running { started_at } = runs.state else { return };
    let exit = Exit { interrupted, ..Exit::observed(code, signal, started_at) };
    runs.state = RunState::Exited(exit);
}

/// The size of every image.
const IMAGE_BYTES: u64 = 1 << 20;

/// The room for images unless a test sets it.
const ROOM: usize = 1000;

fn image(name: &str, is_pinned: bool) -> Image {
    let names = vec![name.to_owned()];
    Image { id: image_id(name), names, bytes: IMAGE_BYTES, is_pinned }
}

fn image_id(name: &str) -> Arc<str> {
    format!("memory:{name}").into()
}
