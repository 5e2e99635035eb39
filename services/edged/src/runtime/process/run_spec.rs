//! The run that a shim starts, as the pod worker hands it over: on the shim's standard input, never
//! on a disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::mount_point;
use super::rights::LaunchRights;
use crate::container::Mount;
use crate::container::termination::StopSignal;
use crate::runtime::pod_files::termination_file::TerminationFile;

/// The run that a shim starts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunSpec {
    /// Command and arguments.
    pub(super) argv: Vec<String>,
    /// Where the command runs, and as which user.
    pub(super) place: Place,
    /// The container's root directory, if the container's user makes it; otherwise it is made.
    pub(super) layout: Option<Layout>,
    /// The log file.
    pub(super) log: PathBuf,
    /// A log file is rotated at this size.
    pub(super) log_bytes_max: u64,
    /// Log files kept.
    pub(super) log_files_max: u32,
    /// The signal that asks the container to end.
    pub(super) stop_signal: StopSignal,
    /// Where the container leaves its termination message.
    pub(super) termination: TerminationFile,
    /// The time between the request to end and the kill, when the shim itself is asked to end.
    pub(super) grace_seconds: u64,
}

/// The surroundings that all commands of a container share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Place {
    /// The whole environment.
    pub(super) env: BTreeMap<String, String>,
    /// The working directory.
    pub(super) cwd: PathBuf,
    /// The user, the groups and the rights.
    pub(super) rights: LaunchRights,
    /// The container's own view of mounts; `None`: the host's.
    pub(super) view: Option<View>,
}

/// A view of the host's files in which closed directories above the pod's show the pod's alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct View {
    /// The pod worker's directory: nothing of it is seen but the places.
    pub(super) dir: PathBuf,
    /// What is seen at its own path.
    pub(super) places: Vec<ViewPlace>,
    /// The container's root directory.
    #[serde(default)]
    pub(super) root: PathBuf,
    /// The absolute paths that are links to the same paths below the root directory.
    #[serde(default)]
    pub(super) mount_paths: Vec<PathBuf>,
}

/// A file or directory that a view shows. Where the path is a link, its target is seen there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ViewPlace {
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
}

/// The root directory of a container: links to its volumes, and its working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime) struct Layout {
    pub(in crate::runtime) root: PathBuf,
    /// The pod's volumes.
    pub(in crate::runtime) volumes: PathBuf,
    pub(in crate::runtime) mounts: Vec<Mount>,
    pub(in crate::runtime) working_dir: Option<String>,
}

impl Layout {
    /// The working directory.
    pub(in crate::runtime) fn start(&self) -> PathBuf {
        self.root.join(self.working_dir.as_deref().unwrap_or_default().trim_start_matches('/'))
    }
}

impl View {
    /// The view of a container that mounts these volumes.
    pub(super) fn of(dir: &Path, layout: &Layout) -> Self {
        let mut volumes: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for mount in &layout.mounts {
            let path = layout.volumes.join(&mount.volume);
            // A container that mounts a volume once with writing can write to it.
            let read_only = mount.read_only || mount.is_written_here;
            volumes.entry(path).and_modify(|all| *all &= read_only).or_insert(read_only);
        }
        let root = ViewPlace { path: layout.root.clone(), read_only: false };
        let volumes = volumes.into_iter().map(|(path, read_only)| ViewPlace { path, read_only });
        Self {
            dir: dir.to_owned(),
            places: std::iter::once(root).chain(volumes).collect(),
            root: layout.root.clone(),
            mount_paths: mount_point::shown(&layout.mounts),
        }
    }
}
