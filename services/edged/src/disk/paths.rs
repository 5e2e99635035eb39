//! The layout of the pod worker's directory.
//!
//! ```text
//! pods/<uid>/pod.json                                the pod's record
//! pods/<uid>/status.json                             the last reported status
//! pods/<uid>/waits.json                              the back-off of its failing containers
//! pods/<uid>/ending.json                             how it ends, beyond its grace period
//! pods/<uid>/former-runs.json                        the ends of its containers in a former runtime
//! pods/<uid>/volumes/<volume>                        its volumes
//! pods/<uid>/volume-subpaths/<volume>/<container>/<index>  a part of a volume, bound there
//! pods/<uid>/containers/<container>/rootfs/          a container's root directory
//! pods/<uid>/containers/<container>/<attempt>/       the files of one run
//! logs/<namespace>_<pod>_<uid>/<container>/<attempt>.log[.<n>]
//! claims/<uid>/claim.json                            a claim's record; claims outlive pods
//! claims/<uid>/data/                                 its data
//! claims/<namespace>_<claim>/                        the data of a claim of an earlier version
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::container::claim::ClaimName;
use crate::pod::{PodRecord, PodUid};

/// The pod worker's directory.
#[derive(Clone, Debug)]
pub(crate) struct Paths(PathBuf);

impl Paths {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// The pod worker's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// The parent of the pod worker's directory.
    pub(crate) fn above(&self) -> &Path {
        match self.0.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            // The parent of a bare name is the working directory.
            _ => Path::new(""),
        }
    }

    /// The directories of all pods.
    pub(crate) fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// The directory of a pod.
    pub(crate) fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods().join(uid.as_str())
    }

    /// The record of a pod.
    pub(crate) fn record(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("pod.json")
    }

    /// The last reported status of a pod.
    pub(crate) fn status(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("status.json")
    }

    /// The waits of a pod's failing containers.
    pub(crate) fn waits(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("waits.json")
    }

    /// The runs of a pod from before its last restart of all containers.
    pub(crate) fn restart(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("restart.json")
    }

    /// How a pod ends, beyond its grace period.
    pub(crate) fn ending(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("ending.json")
    }

    /// The ends of a pod's containers in the runtime that the node had before.
    pub(crate) fn former_runs(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("former-runs.json")
    }

    /// The volumes of a pod.
    pub(crate) fn volumes(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// The places of the parts of a pod's volumes.
    pub(crate) fn parts(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volume-subpaths")
    }

    /// The place of the part of a volume that a mount of a container names, as under a kubelet.
    pub(crate) fn part(
        &self,
        uid: &PodUid,
        volume: &str,
        container: &str,
        index: usize,
    ) -> PathBuf {
        self.parts(uid).join(volume).join(container).join(index.to_string())
    }

    /// The containers of a pod.
    pub(crate) fn containers(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("containers")
    }

    /// The root directory of a container.
    pub(crate) fn root(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.containers(uid).join(container).join("rootfs")
    }

    /// The files of one run of a container.
    pub(crate) fn run(&self, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
        self.containers(uid).join(container).join(attempt.to_string())
    }

    /// The logs of all pods.
    pub(crate) fn all_logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// The logs of a pod.
    pub(crate) fn logs(&self, pod: &PodRecord) -> PathBuf {
        let namespace = pod.key.namespace().unwrap_or_default();
        self.all_logs().join(format!("{namespace}_{}_{}", pod.key.name(), pod.uid))
    }

    /// The log of one run of a container.
    pub(crate) fn log(&self, pod: &PodRecord, container: &str, attempt: u32) -> PathBuf {
        self.logs(pod).join(container).join(format!("{attempt}.log"))
    }

    /// The directories of all claims.
    pub(crate) fn all_claims(&self) -> PathBuf {
        self.0.join("claims")
    }

    /// The directory of a claim.
    pub(crate) fn claim(&self, uid: &str) -> PathBuf {
        self.all_claims().join(uid)
    }

    /// The record of a claim.
    pub(crate) fn claim_record(&self, uid: &str) -> PathBuf {
        self.claim(uid).join("claim.json")
    }

    /// The data of a claim.
    pub(crate) fn claim_data(&self, uid: &str) -> PathBuf {
        self.claim(uid).join("data")
    }

    /// The data of a claim where an earlier version has it. A UID has no underscore.
    pub(crate) fn named_claim(&self, name: &ClaimName) -> PathBuf {
        self.all_claims().join(format!("{}_{}", name.namespace, name.name))
    }
}

/// The entries of a directory; none if it does not exist.
pub(crate) fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
