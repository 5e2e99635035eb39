//! The devices of containers, which device plugins have.
//!
//! ```text
//!   plugin --> registration, lists --> inventory (pure) --> the Node object
//!                                          |
//!   worker of a pod --> assign --> allocator (pure) --> the plugin's Allocate --> devices.json
//! ```
//!
//! | module | job |
//! |---|---|
//! | `resource` | names, and what containers ask for (pure) |
//! | `inventory` | which devices the node has, and which of them work (pure) |
//! | `allocator` | which container has which devices (pure) |
//! | `plugin` | the seam to plugins |
//!
//! Allocations are on the disk before a container that has them starts, and outlive restarts of the pod worker and of the
//! machine. A file that cannot be read is moved aside. Which devices the pods have that ran before is not known then: no
//! other pod gets any until these have ended, or start anew. Calls to plugins hold no lock: one that hangs delays the pod
//! that asks, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use allocator::{Allocations, Choice, Grant, Ids, PodGrants, TooFewDevices};
use inventory::Inventory;
pub(crate) use inventory::StatedDevices;
pub use plugin::{DevicePlugin, DeviceServer, PluginError, PluginOptions};
pub use resource::is_extended;
use resource::{Request, devices_of, requests};

use crate::container::WaitReason;
use crate::container::devices::ContainerDevices;
use crate::disk::durable_file;
use crate::disk::file_error::{FileError, blocking};
use crate::pod::PodUid;

mod allocator;
mod inventory;
mod plugin;
mod resource;
#[cfg(test)]
mod tests;

/// The name of the file in the pod worker's directory.
const FILE: &str = "devices.json";

/// The form of the file.
const VERSION: u32 = 1;

/// Resources with plugins. A node has a handful.
const RESOURCES_MAX: usize = 64;

/// The file with the allocations.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    version: u32,
    /// The resources that had plugins.
    resources: BTreeSet<String>,
    pods: Allocations,
}

impl Checkpoint {
    /// Checks that it has a form that this program reads, and that no device has two pods.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> Result<(), String> {
        let version = self.version;
        if version != VERSION {
            return Err(format!("it has version {version}, and this program reads {VERSION}"));
        }
        self.pods.check()
    }
}

/// The devices of a node's containers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Devices(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: PathBuf,
    state: Mutex<State>,
    registrations: AtomicU64,
    /// One writer of the file at a time.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    inventory: Inventory,
    plugins: BTreeMap<String, PluginSlot>,
    allocations: Allocations,
    /// The devices of pods whose allocation goes on, by resource.
    reserved: BTreeMap<PodUid, BTreeMap<String, Ids>>,
    /// Pods that ran before, and whose devices are not known.
    unknown: BTreeSet<PodUid>,
}

/// The plugin of a resource.
#[derive(Debug)]
struct PluginSlot {
    plugin: Arc<dyn DevicePlugin>,
    replaced: CancellationToken,
}

/// The registration of a plugin. It counts until another plugin registers its resource.
#[derive(Clone, Debug)]
pub struct PluginRegistration {
    resource: String,
    number: u64,
    replaced: CancellationToken,
}

impl PluginRegistration {
    /// Returns when another plugin has registered the resource.
    pub async fn replaced(&self) {
        self.replaced.cancelled().await;
    }
}

/// The node has too many resources with plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node has {RESOURCES_MAX} resources with device plugins, and takes no more")]
pub struct TooManyResources;

/// A pod does not have its devices.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssignError {
    /// They cannot be had: the pod fails.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Failed(String),
    /// It is not known yet whether they can be had: the pod waits.
    #[error("{0}")]
    Unknown(String),
    /// They are not written down: the pod waits.
    #[error("the devices of the pod are not written down")]
    File(#[from] FileError),
}

/// The devices that a pod is about to get. Nothing else gets them until this is dropped.
struct Reservation<'a> {
    devices: &'a Devices,
    pod: &'a PodUid,
}

/// What a plugin is asked for its preferences.
struct Question {
    plugin: Arc<dyn DevicePlugin>,
    /// What an init container of the pod leaves to this container.
    reused: Ids,
    free: Ids,
}

impl From<TooFewDevices> for AssignError {
    fn from(error: TooFewDevices) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Devices {
    /// Opens the allocations in the pod worker's directory. `present` are the pods on the machine; the devices of others
    /// are free.
    ///
    /// # Errors
    /// The file cannot be moved aside.
    pub(crate) fn open(dir: &Path, present: &BTreeSet<PodUid>) -> Result<Self, FileError> {
        let file = dir.join(FILE);
        let (checkpoint, unknown) = match read(&file) {
            Ok(checkpoint) => (checkpoint, BTreeSet::new()),
            Err(why) => {
                let aside =
                    durable_file::move_aside(&file).map_err(FileError::new("move aside", &file))?;
                let (file, aside) = (file.display(), aside.display());
                tracing::error!(
                    %file, %aside, why,
                    "the devices of containers cannot be read: no pod gets devices until those that \
                     ran before have ended"
                );
                (Checkpoint::default(), present.clone())
            }
        };
        let Checkpoint { resources, pods: mut allocations, .. } = checkpoint;
        let gone: Vec<PodUid> =
            allocations.pods().filter(|pod| !present.contains(*pod)).cloned().collect();
        for pod in &gone {
            allocations.release(pod);
        }
        let inventory = Inventory::of_earlier(&resources);
        let state = Mutex::new(State { inventory, allocations, unknown, ..State::default() });
        let writing = tokio::sync::Mutex::default();
        Ok(Self(Arc::new(Inner { file, state, registrations: AtomicU64::new(0), writing })))
    }

    /// Takes a plugin that has registered this resource. It counts instead of an earlier one, whose devices stay until it
    /// lists its own.
    ///
    /// # Errors
    /// There are too many resources.
    pub fn register(
        &self,
        resource: &str,
        plugin: Arc<dyn DevicePlugin>,
    ) -> Result<PluginRegistration, TooManyResources> {
        let number = self.0.registrations.fetch_add(1, Ordering::Relaxed) + 1;
        let replaced = CancellationToken::new();
        let mut state = self.lock();
        let known = state.inventory.resources();
        if known.len() >= RESOURCES_MAX && !known.contains(resource) {
            return Err(TooManyResources);
        }
        state.inventory.register(resource, number);
        let registered = PluginSlot { plugin, replaced: replaced.clone() };
        if let Some(before) = state.plugins.insert(resource.to_owned(), registered) {
            before.replaced.cancel();
        }
        Ok(PluginRegistration { resource: resource.to_owned(), number, replaced })
    }

    /// Takes the list of a plugin: whether each of its devices works. Returns whether the registration still counts.
    pub async fn list(
        &self,
        registration: &PluginRegistration,
        devices: BTreeMap<String, bool>,
    ) -> bool {
        let PluginRegistration { resource, number, .. } = registration;
        let (counts, is_first) = {
            let mut state = self.lock();
            let is_first = !state.inventory.has_come(resource);
            (state.inventory.list(resource, *number, devices), is_first)
        };
        if counts
            && is_first
            && let Err(error) = self.write().await
        {
            // After a restart the node does not say that it has none of them.
            tracing::warn!(resource, %error, "a resource with a device plugin is not written down");
        }
        counts
    }

    /// The plugin is gone. Its devices do not work any more, unless another plugin has registered them.
    pub fn lose(&self, registration: &PluginRegistration) {
        let PluginRegistration { resource, number, .. } = registration;
        self.lock().inventory.lose(resource, *number, Instant::now());
    }

    /// What the Node object states.
    pub(crate) fn stated(&self) -> Vec<StatedDevices> {
        self.lock().inventory.stated(Instant::now())
    }

    /// Gives a pod the devices that it asks for. When this returns, they are on the disk. Does nothing if it has them.
    /// `runs` says whether containers of it run.
    ///
    /// # Errors
    /// See [`AssignError`]. Nothing changed.
    pub(crate) async fn assign(
        &self,
        uid: &PodUid,
        pod: &Pod,
        runs: bool,
    ) -> Result<(), AssignError> {
        let requests = requests(pod);
        {
            let mut state = self.lock();
            if requests.is_empty() {
                state.unknown.remove(uid);
                return Ok(());
            }
            if state.allocations.contains(uid) {
                return Ok(());
            }
            if runs {
                let what = "the devices of its running containers are not known";
                return Err(AssignError::Unknown(what.to_owned()));
            }
            state.unknown.remove(uid);
            if let Some(other) = state.unknown.first() {
                return Err(AssignError::Unknown(format!(
                    "the devices of pod {other} are not known, and may be any: wait for its end"
                )));
            }
        }
        let reservation = Reservation { devices: self, pod: uid };
        let mut grants = PodGrants::new();
        let mut reusable: BTreeMap<&str, Ids> = BTreeMap::new();
        for request in &requests {
            let left = reusable.entry(&request.resource).or_default();
            let grant = reservation.allocate(request, left).await?;
            if request.is_step {
                left.extend(grant.ids.iter().cloned());
            } else {
                left.retain(|id| !grant.ids.contains(id));
            }
            let of_container = grants.entry(request.container.clone()).or_default();
            of_container.insert(request.resource.clone(), grant);
        }
        self.lock().allocations.insert(uid.clone(), grants);
        if let Err(error) = self.write().await {
            self.lock().allocations.release(uid);
            return Err(error.into());
        }
        drop(reservation);
        Ok(())
    }

    /// What a container that is about to start is given with its devices, which are prepared if their plugin wants that.
    ///
    /// # Errors
    /// Why it waits.
    pub(crate) async fn prepare(
        &self,
        uid: &PodUid,
        container: &Container,
    ) -> Result<ContainerDevices, WaitReason> {
        let refused = |message| WaitReason { reason: "CreateContainerConfigError", message };
        let mut given = ContainerDevices::default();
        for (resource, _) in devices_of(container) {
            let (grant, plugin) = {
                let state = self.lock();
                if !state.inventory.has_come(resource) {
                    return Err(refused(no_plugin(resource)));
                }
                let grants = state.allocations.of(uid, &container.name);
                let grant = grants.and_then(|grants| grants.get(resource)).cloned();
                (grant, state.plugin(resource).filter(|it| it.options().pre_start))
            };
            let Some(Grant { ids, gives }) = grant else {
                return Err(refused(format!("the container has no devices of {resource} yet")));
            };
            if let Some(plugin) = plugin {
                let prepared = plugin.pre_start(&ids).await;
                prepared.map_err(|error| {
                    refused(format!("device plugin PreStartContainer rpc failed with err: {error}"))
                })?;
            }
            given.add(&gives);
        }
        Ok(given)
    }

    /// Takes back the devices of a pod of which nothing runs.
    pub(crate) async fn release(&self, uid: &PodUid) {
        let had_any = {
            let mut state = self.lock();
            state.unknown.remove(uid);
            state.allocations.release(uid)
        };
        if had_any && let Err(error) = self.write().await {
            // The next change writes it, and the next start releases them again.
            tracing::warn!(pod = %uid, %error, "the release of devices is not written down");
        }
    }

    async fn write(&self) -> Result<(), FileError> {
        let _one = self.0.writing.lock().await;
        let checkpoint = {
            let state = self.lock();
            let (resources, pods) = (state.inventory.resources(), state.allocations.clone());
            Checkpoint { version: VERSION, resources, pods }
        };
        let file = self.0.file.clone();
        blocking(move || {
            durable_file::write(&file, &checkpoint).map_err(FileError::new("write", &file))
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation<'_> {
    /// Chooses the devices of a request, and asks their plugin what is given with them.
    async fn allocate(&self, request: &Request, reusable: &Ids) -> Result<Grant, AssignError> {
        let preferred = match self.question(request, reusable)? {
            None => Vec::new(),
            Some(Question { plugin, reused, free }) => {
                let available = &reused | &free;
                let preferred = plugin.prefer(&available, &reused, request.count).await;
                preferred.unwrap_or_else(|error| {
                    let (pod, resource) = (self.pod, &request.resource);
                    tracing::warn!(%pod, resource, %error, "a device plugin prefers nothing");
                    Vec::new()
                })
            }
        };
        // What was free may be another pod's by now.
        let (ids, plugin) = {
            let mut state = self.devices.lock();
            let choose = |choice: Choice<'_>| choice.choose(&preferred);
            let ids = state.choice(self.pod, request, reusable, choose)??;
            let own = state.reserved.entry(self.pod.clone()).or_default();
            own.entry(request.resource.clone()).or_default().extend(ids.iter().cloned());
            (ids, state.plugin(&request.resource))
        };
        let plugin = plugin.ok_or_else(|| AssignError::Unknown(no_plugin(&request.resource)))?;
        let gives = plugin.allocate(&ids).await;
        let gives = gives.map_err(|error| AssignError::Failed(error.to_string()))?;
        Ok(Grant { ids, gives })
    }

    /// What to ask the plugin, if it has preferences and a choice.
    fn question(&self, request: &Request, reusable: &Ids) -> Result<Option<Question>, AssignError> {
        let state = self.devices.lock();
        let plugin = state.plugin(&request.resource).filter(|it| it.options().prefers);
        state.choice(self.pod, request, reusable, |choice| {
            let plugin = plugin.filter(|_| choice.is_open())?;
            Some(Question { plugin, reused: choice.reused(), free: choice.free() })
        })
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.devices.lock().reserved.remove(self.pod);
    }
}

impl State {
    fn plugin(&self, resource: &str) -> Option<Arc<dyn DevicePlugin>> {
        self.plugins.get(resource).map(|it| it.plugin.clone())
    }

    /// Decides on the devices from which a pod gets those of a request.
    ///
    /// # Errors
    /// No plugin has named any.
    fn choice<T>(
        &self,
        pod: &PodUid,
        request: &Request,
        reusable: &Ids,
        decide: impl FnOnce(Choice<'_>) -> T,
    ) -> Result<T, AssignError> {
        let Request { resource, count, .. } = request;
        let healthy = self.inventory.healthy(resource, Instant::now());
        let healthy = healthy.ok_or_else(|| AssignError::Unknown(no_plugin(resource)))?;
        let mut taken = self.allocations.taken(resource);
        for (_, own) in self.reserved.iter().filter(|(_, own)| own.contains_key(resource)) {
            taken.extend(own[resource].iter().cloned());
        }
        debug_assert!(!self.allocations.contains(pod), "it is given devices once");
        let (healthy, taken) = (&healthy, &taken);
        Ok(decide(Choice { resource, count: *count, healthy, taken, reusable }))
    }
}

fn no_plugin(resource: &str) -> String {
    format!("no device plugin serves {resource} on this node")
}

fn read(file: &Path) -> Result<Checkpoint, String> {
    let read = durable_file::read::<Checkpoint>(file).map_err(|error| error.to_string())?;
    let Some(checkpoint) = read else { return Ok(Checkpoint::default()) };
    checkpoint.check()?;
    Ok(checkpoint)
}

/// Reads the content of a file, and writes it again.
///
/// # Errors
/// Why it is moved aside.
pub(crate) fn rewrite(file: &[u8]) -> Result<Vec<u8>, String> {
    let checkpoint: Checkpoint = serde_json::from_slice(file).map_err(|error| error.to_string())?;
    checkpoint.check()?;
    serde_json::to_vec(&checkpoint).map_err(|error| error.to_string())
}
