//! Where everything of a pod lies below the pod worker's directory.
//!
//! ```text
//! pods/<uid>/pod.json                                what the pod is called
//! pods/<uid>/status.json                             what was last reported of it
//! pods/<uid>/volumes/<volume>                        its volumes
//! pods/<uid>/containers/<container>/rootfs/          what a container sees
//! pods/<uid>/containers/<container>/<attempt>/       the files of one run
//! logs/<namespace>_<pod>_<uid>/<container>/<attempt>.log[.<n>]
//! claims/<namespace>_<claim>/                        what outlives pods
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::pod::{PodRecord, PodUid, is_plain_name};
use crate::shim::log::rotated;

/// The pod worker's directory.
#[derive(Clone, Debug)]
pub(crate) struct Paths(PathBuf);

impl Paths {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// The directory that names the pod worker's.
    pub(crate) fn above(&self) -> &Path {
        match self.0.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            // A name alone lies in the working directory.
            _ => Path::new(""),
        }
    }

    pub(crate) fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    pub(crate) fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods().join(uid.as_str())
    }

    pub(crate) fn record(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("pod.json")
    }

    pub(crate) fn status(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("status.json")
    }

    pub(crate) fn volumes(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    pub(crate) fn containers(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("containers")
    }

    pub(crate) fn root(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.containers(uid).join(container).join("rootfs")
    }

    pub(crate) fn attempt(&self, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
        self.containers(uid).join(container).join(attempt.to_string())
    }

    pub(crate) fn logs(&self, pod: &PodRecord) -> PathBuf {
        let namespace = pod.key.namespace().unwrap_or_default();
        self.0.join("logs").join(format!("{namespace}_{}_{}", pod.key.name(), pod.uid))
    }

    pub(crate) fn log(&self, pod: &PodRecord, container: &str, attempt: u32) -> PathBuf {
        self.logs(pod).join(container).join(format!("{attempt}.log"))
    }

    pub(crate) fn claim(&self, namespace: &str, name: &str) -> PathBuf {
        self.0.join("claims").join(format!("{namespace}_{name}"))
    }
}

/// The log files of a container, oldest first: of its latest run, or of the run before it. Empty
/// if there is none. `dir` is the pod worker's directory; when several pods of the name left
/// logs, the one that wrote last counts.
///
/// # Errors
/// Those of the file system.
pub fn log_paths(
    dir: &Path,
    namespace: &str,
    pod: &str,
    container: &str,
    previous: bool,
) -> io::Result<Vec<PathBuf>> {
    if !is_plain_name(container) {
        return Ok(Vec::new());
    }
    let prefix = format!("{namespace}_{pod}_");
    let mut latest: Option<(std::time::SystemTime, PathBuf)> = None;
    for entry in entries(&dir.join("logs"))? {
        let name = entry.file_name();
        // Kubernetes' names have no underscore: what follows the prefix is the UID.
        let is_pod = name.to_str().and_then(|name| name.strip_prefix(&prefix)).is_some();
        let path = entry.path().join(container);
        // Where a link leads is not the pod's log.
        let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        if !is_pod || !is_folder(&entry.path()) || !is_folder(&path) {
            continue;
        }
        let modified = entry.metadata()?.modified()?;
        if latest.as_ref().is_none_or(|(before, _)| *before <= modified) {
            latest = Some((modified, path));
        }
    }
    let Some((_, dir)) = latest else { return Ok(Vec::new()) };
    let attempt = |entry: &fs::DirEntry| -> Option<u32> {
        entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()
    };
    let mut attempts: Vec<u32> = entries(&dir)?.iter().filter_map(attempt).collect();
    attempts.sort_unstable();
    let wanted = match (attempts.last(), previous) {
        (Some(latest), false) => *latest,
        (Some(latest), true) if *latest > 0 => latest - 1,
        _ => return Ok(Vec::new()),
    };
    let current = dir.join(format!("{wanted}.log"));
    let mut paths = vec![current.clone()];
    for number in 1.. {
        let path = rotated(&current, number);
        if !path.exists() {
            break;
        }
        paths.push(path);
    }
    paths.reverse();
    paths.retain(|path| path.exists());
    Ok(paths)
}

/// What a directory holds; nothing if there is none.
pub(crate) fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
