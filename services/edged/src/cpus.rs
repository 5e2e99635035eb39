//! The processors of containers: which ones a container has for itself, and which ones all others share.
//!
//! | module | job |
//! |---|---|
//! | `allocator` | which container has which processors (pure) |
//! | `topology` | the processors of the machine |
//! | `keeper` | brings running containers in line when the shared ones change |
//!
//! Allocations are on the disk before a container that has them starts, and outlive restarts of the pod worker and of
//! the machine. A file that cannot be read is moved aside, and the pods get processors anew.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

pub use allocator::exclusive_cpus;
use allocator::{Allocations, Cpu, TooFewCpus, reserved};
pub(crate) use keeper::keep;

use crate::config::{CpuPolicy, Settings};
use crate::container::ContainerCpus;
use crate::container::cpu_set::CpuSet;
use crate::disk::durable_file;
use crate::disk::file_error::{FileError, blocking};
use crate::pod::PodUid;

mod allocator;
mod keeper;
mod topology;

/// The name of the file in the pod worker's directory.
const FILE: &str = "cpus.json";

/// The form of the file.
const VERSION: u32 = 1;

/// The file with the allocations.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    version: u32,
    pods: Allocations,
}

impl Checkpoint {
    /// Checks that it has a form that this program reads, and can be that of this machine.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, machine: &[Cpu]) -> Result<(), String> {
        let version = self.version;
        if version != VERSION {
            return Err(format!("it has version {version}, and this program reads {VERSION}"));
        }
        self.pods.check(machine)
    }
}

/// The processors of a node's containers.
#[derive(Debug)]
pub(crate) struct CpuManager {
    machine: Vec<Cpu>,
    reserved: CpuSet,
    file: PathBuf,
    /// The policy gives processors away. Otherwise an earlier one did, and all containers get all of them back.
    is_static: bool,
    allocations: Mutex<Allocations>,
    shared: watch::Sender<CpuSet>,
}

/// A pod does not have its processors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssignError {
    /// There are too few: the pod fails.
    #[error(transparent)]
    TooFew(#[from] TooFewCpus),
    /// They are not written down: the pod waits.
    #[error("the processors of the pod are not written down")]
    File(#[from] FileError),
}

impl CpuManager {
    /// Opens the allocations in the pod worker's directory. `exists` says which pods are on the machine; the processors of
    /// others are free. `None`: the policy is to give none away, and none are.
    ///
    /// # Errors
    /// The file cannot be read or moved, or the kernel shows no processors.
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        exists: impl Fn(&PodUid) -> bool,
    ) -> Result<Option<Self>, FileError> {
        let file = dir.join(FILE);
        let is_static = settings.cpu_policy == CpuPolicy::Static;
        if !is_static && !file.exists() {
            return Ok(None);
        }
        let machine =
            topology::machine().map_err(FileError::new("read the processors for", &file))?;
        let mut allocations = match read(&file, &machine) {
            Ok(allocations) => allocations,
            Err(why) => {
                let aside =
                    durable_file::move_aside(&file).map_err(FileError::new("move aside", &file))?;
                let (file, aside) = (file.display(), aside.display());
                tracing::error!(
                    %file, %aside, why,
                    "the processors of containers cannot be read, and are assigned anew"
                );
                Allocations::default()
            }
        };
        let gone: Vec<PodUid> =
            allocations.pods().filter(|pod| !is_static || !exists(pod)).cloned().collect();
        for pod in &gone {
            allocations.release(pod);
        }
        let reserved = reserved(&machine, settings.reserved.cpu_milli);
        let (shared, _) = watch::channel(rest(&machine, &reserved, &allocations));
        let allocations = Mutex::new(allocations);
        Ok(Some(Self { machine, reserved, file, is_static, allocations, shared }))
    }

    /// Gives a pod the processors that it has for itself. When this returns, they are on the disk. Does nothing if it has
    /// them, or requests none.
    ///
    /// # Errors
    /// See [`AssignError`]. Nothing changed.
    pub(crate) async fn assign(&self, uid: &PodUid, pod: &Pod) -> Result<(), AssignError> {
        if !self.is_static {
            return Ok(());
        }
        let mut allocations = self.allocations.lock().await;
        let mut after = allocations.clone();
        after.allocate(uid, pod, &self.machine, &self.reserved)?;
        if after != *allocations {
            self.write(&after).await?;
            *allocations = after;
            self.publish(&allocations);
        }
        Ok(())
    }

    /// Takes the processors of a pod back that has ended.
    pub(crate) async fn release(&self, uid: &PodUid) {
        let mut allocations = self.allocations.lock().await;
        if !allocations.release(uid) {
            return;
        }
        if let Err(error) = self.write(&allocations).await {
            // The next change writes it, and the next start releases them again.
            tracing::warn!(pod = %uid, %error, "the release of processors is not written down");
        }
        self.publish(&allocations);
    }

    /// The processors of a container: its own ones, or the shared ones.
    pub(crate) async fn of(&self, uid: &PodUid, container: &str) -> ContainerCpus {
        match self.allocations.lock().await.of(uid, container) {
            Some(own) => ContainerCpus { cpus: own.clone(), is_exclusive: true },
            None => ContainerCpus { cpus: self.shared.borrow().clone(), is_exclusive: false },
        }
    }

    /// The processors that all containers without their own ones share.
    fn shared(&self) -> watch::Receiver<CpuSet> {
        self.shared.subscribe()
    }

    /// Removes the file of a policy that is off, once every container has all processors.
    async fn forget(&self) {
        let file = self.file.clone();
        let removed =
            blocking(move || durable_file::remove(&file).map_err(FileError::new("remove", &file)));
        if let Err(error) = removed.await {
            tracing::warn!(%error, "the processors of an earlier policy are not forgotten");
        }
    }

    fn publish(&self, allocations: &Allocations) {
        let rest = rest(&self.machine, &self.reserved, allocations);
        self.shared.send_if_modified(|shared| {
            let has_changed = *shared != rest;
            *shared = rest;
            has_changed
        });
    }

    async fn write(&self, allocations: &Allocations) -> Result<(), FileError> {
        let checkpoint = Checkpoint { version: VERSION, pods: allocations.clone() };
        let file = self.file.clone();
        blocking(move || {
            durable_file::write(&file, &checkpoint).map_err(FileError::new("write", &file))
        })
        .await
    }
}

/// What is given to no container. It is never empty: the reserved processors are a part of it, unless more are reserved now
/// than before.
fn rest(machine: &[Cpu], reserved: &CpuSet, allocations: &Allocations) -> CpuSet {
    let all: CpuSet = machine.iter().map(|cpu| cpu.id).collect();
    let rest = all.difference(&allocations.taken());
    if rest.is_empty() { reserved.clone() } else { rest }
}

fn read(file: &Path, machine: &[Cpu]) -> Result<Allocations, String> {
    let read = durable_file::read::<Checkpoint>(file).map_err(|error| error.to_string())?;
    let Some(checkpoint) = read else { return Ok(Allocations::default()) };
    checkpoint.check(machine)?;
    Ok(checkpoint.pods)
}

/// Reads the content of a file of a machine with the processors below `count`, and writes it again.
///
/// # Errors
/// Why it is moved aside.
pub(crate) fn rewrite(file: &[u8], count: u32) -> Result<Vec<u8>, String> {
    let machine: Vec<Cpu> = (0..count).map(|id| Cpu { id, package: 0, core: id }).collect();
    let checkpoint: Checkpoint = serde_json::from_slice(file).map_err(|error| error.to_string())?;
    checkpoint.check(&machine)?;
    serde_json::to_vec(&checkpoint).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::container::requests::Amounts;

    fn uid(name: &str) -> PodUid {
        PodUid::try_from(name.to_owned()).expect("a UID")
    }

    fn settings(cpu_policy: CpuPolicy) -> Settings {
        let reserved = Amounts { cpu_milli: 1, ..Amounts::default() };
        Settings { cpu_policy, reserved, ..Settings::default() }
    }

    fn open(dir: &Path, policy: CpuPolicy) -> Option<CpuManager> {
        CpuManager::open(dir, &settings(policy), |pod| pod.as_str() != "gone").expect("opens")
    }

    fn pod() -> Pod {
        let limits = json!({"cpu": "1", "memory": "1Mi"});
        let container = json!({"name": "a", "resources": {"limits": limits}});
        serde_json::from_value(json!({"spec": {"containers": [container]}})).expect("a pod")
    }

    #[tokio::test]
    async fn allocations_outlive_the_pod_worker_and_go_with_their_pods() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(open(dir.path(), CpuPolicy::None).is_none());
        let cpus = open(dir.path(), CpuPolicy::Static).expect("static");
        if cpus.machine.len() < 2 {
            return;
        }
        let shared_first = cpus.shared.borrow().clone();
        cpus.assign(&uid("u"), &pod()).await.expect("a processor");
        let own = cpus.of(&uid("u"), "a").await;
        assert!(own.is_exclusive && own.cpus.len() == 1);
        let other = cpus.of(&uid("v"), "a").await;
        assert!(!other.is_exclusive && other.cpus == shared_first.difference(&own.cpus));
        let after = open(dir.path(), CpuPolicy::Static).expect("static");
        assert_eq!(after.of(&uid("u"), "a").await, own);
        after.release(&uid("u")).await;
        assert_eq!(*after.shared.borrow(), shared_first);
        after.assign(&uid("gone"), &pod()).await.expect("a processor");
        let again = open(dir.path(), CpuPolicy::Static).expect("static");
        assert_eq!(*again.shared.borrow(), shared_first, "the pod is gone");
        // The policy is off: what is left of it goes when all containers have all processors.
        let off = open(dir.path(), CpuPolicy::None).expect("a file is left");
        off.assign(&uid("u"), &pod()).await.expect("nothing to give");
        assert!(!off.of(&uid("u"), "a").await.is_exclusive);
        off.forget().await;
        assert!(open(dir.path(), CpuPolicy::None).is_none());
    }

    #[tokio::test]
    async fn a_damaged_file_is_moved_aside_and_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(FILE);
        for (number, text) in [
            "torn",
            r#"{"version": 2, "pods": {}}"#,
            r#"{"version": 1, "pods": {"u": {"a": "8191"}}}"#,
            r#"{"version": 1, "pods": {"u": {"a": "0"}, "v": {"a": "0"}}}"#,
        ]
        .into_iter()
        .enumerate()
        {
            std::fs::write(&file, text).expect("written");
            let cpus = open(dir.path(), CpuPolicy::Static).expect("static");
            assert_eq!(cpus.allocations.lock().await.taken(), CpuSet::default());
            let aside = dir.path().join(format!("cpus.json.damaged-{}", number + 1));
            assert_eq!(std::fs::read_to_string(aside).expect("moved"), text);
            assert!(!file.exists());
        }
    }
}
