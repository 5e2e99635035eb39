//! The pods that run on a machine, from their files alone: for a program that is no pod worker.

use std::path::Path;

use super::run_directory::RunDirectory;
use crate::disk::file_error::FileError;
use crate::disk::paths::{Paths, entries};
use crate::disk::pod_store::PodStore;
use crate::pod::{PodRecord, PodUid};

/// The pods in the pod worker's directory `dir` of which the process runtime runs a container, by namespace and name.
/// Call it while no pod worker uses the directory.
///
/// # Errors
/// The errors of the file system.
pub fn running_pods(dir: &Path) -> Result<Vec<PodRecord>, FileError> {
    let paths = Paths::new(dir.to_owned());
    if !paths.pods().is_dir() {
        return Ok(Vec::new());
    }
    let mut running = Vec::new();
    for record in PodStore::open(dir)?.pods() {
        if has_shim(&paths, &record.uid)? {
            running.push(record);
        }
    }
    running.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(running)
}

/// Whether the latest run of a container of the pod has a shim.
fn has_shim(paths: &Paths, uid: &PodUid) -> Result<bool, FileError> {
    let containers = paths.containers(uid);
    for container in entries(&containers).map_err(FileError::new("list", &containers))? {
        let dir = container.path();
        let runs = entries(&dir).map_err(FileError::new("list", &dir))?;
        let attempts = runs.iter().filter_map(|run| run.file_name().to_str()?.parse::<u32>().ok());
        let Some(latest) = attempts.max() else { continue };
        let run = RunDirectory::new(dir.join(latest.to_string()));
        let lock = run.try_lock().map_err(FileError::new("lock", run.path()))?;
        if lock.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
