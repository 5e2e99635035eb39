//! The files of pods on the node: volumes, logs, and what a run of a container leaves behind.
//!
//! A runtime whose containers have file systems of their own mounts them from here ([`PodFiles`]). The
//! process runtime links them into the root directories of its containers.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{DiskUsage, Exit, FileSystemUsage, LogQuery, RuntimeError, VolumeUsage};
use crate::container::block_device::BlockDevice;
use crate::container::claim::ClaimView;
use crate::container::devices::DeviceNode;
use crate::container::volume::Volume;
use crate::container::{LaunchSpec, Mount, WaitReason};
use crate::disk::durable_file;
use crate::disk::file_error::{FileError, blocking};
use crate::disk::log_files::{log_files, rotated};
use crate::disk::mounts::check_none_below;
use crate::disk::paths::{Paths, entries};
use crate::pod::{PodRecord, PodUid};

pub(super) mod claims;
pub mod group;
mod parts;
pub(super) mod secret_memory;
pub(super) mod termination_file;
pub(super) mod volumes;

use claims::ClaimDirectories;
use secret_memory::SecretMemory;
use termination_file::TerminationFile;
use volumes::Audience;

/// The file of a run in which the container leaves its termination message.
const MESSAGE_FILE: &str = "termination-log";

/// The file of a run that ended for the machine's sake. It has the time from which an end is no end of its own, or null.
const INTERRUPTED_FILE: &str = "interrupted";

/// The mark of a run whose start was asked of a runtime.
const STARTING_FILE: &str = "starting";

/// The file of a run whose end was observed.
const END_FILE: &str = "end.json";

/// The pod's file of hosts.
const HOSTS_FILE: &str = "etc-hosts";

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PodFiles(Arc<Files>);

#[derive(Debug)]
struct Files {
    paths: Paths,
    claims: ClaimDirectories,
    secrets: SecretMemory,
    /// The users of the volumes.
    audience: Audience,
    /// Why the runtime does not see what is mounted here; `None`: it does.
    hidden: Option<String>,
}

/// A mount of a container, and its place on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSource {
    /// The mount's path, as the launch has it.
    pub path: PathBuf,
    /// The file or directory of the node, without links.
    pub source: PathBuf,
    /// The pod worker writes the volume, and containers only read it.
    pub is_written_here: bool,
}

impl PodFiles {
    /// Opens the files in the pod worker's directory, for containers of any user. Needs the rights of root. `hidden`: why
    /// the runtime does not see what is mounted here; `None`: it does.
    ///
    /// # Errors
    /// The path cannot be made absolute.
    pub fn open(dir: &Path, hidden: Option<String>) -> Result<Self, FileError> {
        Self::open_with(dir, Audience::Users, hidden)
    }

    /// Opens the files in the pod worker's directory, for these users.
    pub(super) fn open_for(dir: &Path, audience: Audience) -> Result<Self, FileError> {
        Self::open_with(dir, audience, None)
    }

    fn open_with(
        dir: &Path,
        audience: Audience,
        hidden: Option<String>,
    ) -> Result<Self, FileError> {
        let dir = std::path::absolute(dir).map_err(FileError::new("resolve", dir))?;
        let paths = Paths::new(dir);
        let secrets = SecretMemory::open(paths.dir());
        if let Err(error) = secrets.keep(|pod| paths.pods().join(pod).is_dir()) {
            tracing::warn!(%error, "secret volumes of removed pods are still in memory");
        }
        let claims = ClaimDirectories::new(paths.clone());
        Ok(Self(Arc::new(Files { paths, claims, secrets, audience, hidden })))
    }

    /// The layout of the pod worker's directory.
    pub(super) fn paths(&self) -> &Paths {
        &self.0.paths
    }

    /// The pod worker's directory.
    pub fn dir(&self) -> &Path {
        self.0.paths.dir()
    }

    /// The logs of all pods.
    pub fn logs(&self) -> PathBuf {
        self.0.paths.all_logs()
    }

    /// The pods that have volumes or files of runs here.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn pods(&self) -> Result<Vec<PodUid>, FileError> {
        let paths = &self.0.paths;
        let all = entries(&paths.pods()).map_err(FileError::new("list", paths.pods()))?;
        let uids = all.iter().filter_map(|entry| entry.file_name().into_string().ok());
        let uids = uids.filter_map(|uid| PodUid::try_from(uid).ok());
        Ok(uids.filter(|uid| self.has(uid)).collect())
    }

    /// Whether the pod has volumes or files of runs here.
    pub fn has(&self, pod: &PodUid) -> bool {
        let paths = &self.0.paths;
        paths.volumes(pod).is_dir() || paths.containers(pod).is_dir()
    }

    /// Writes the pod's volumes, or brings them up to date. On success containers see the new content.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn write_volumes(
        &self,
        pod: &PodRecord,
        volumes: &[Volume],
    ) -> Result<(), RuntimeError> {
        let (files, pod, volumes) = (self.0.clone(), pod.uid.clone(), volumes.to_vec());
        blocking(move || {
            let Files { paths, claims, secrets, audience, hidden } = &*files;
            let hidden = hidden.as_deref();
            volumes::write(paths, claims, secrets, &pod, &volumes, *audience, hidden)
        })
        .await
    }

    /// See [`super::Runtime::reclaim`].
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn reclaim(&self, view: &ClaimView, hold: Duration) -> Result<(), RuntimeError> {
        let (files, view) = (self.0.clone(), view.clone());
        let (now, time) = (Instant::now(), Timestamp::now());
        blocking(move || Ok(files.claims.reclaim(&view, hold, now, time)?)).await
    }

    /// The places of the mounts of a launch. The volumes have the pod's group after that.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] for a part of a volume that is not there, or leads out of it.
    pub async fn mounts(
        &self,
        pod: &PodUid,
        launch: &LaunchSpec,
    ) -> Result<Vec<MountSource>, RuntimeError> {
        let (files, pod) = (self.0.clone(), pod.clone());
        let (mounts, group) = (launch.mounts.clone(), launch.credentials.fs_group);
        let container = launch.container.clone();
        blocking(move || {
            let volumes = files.paths.volumes(&pod);
            if let Some(group) = group {
                volumes::give_group(&volumes, &mounts, group)?;
            }
            let source = |(index, mount): (usize, &Mount)| {
                let place = files.paths.part(&pod, &mount.volume, &container, index);
                let part = (place, files.hidden.as_deref());
                mount_source(&volumes, &container, mount, part)
            };
            mounts.iter().enumerate().map(source).collect()
        })
        .await
    }

    /// The content of a file of a volume that containers write to.
    ///
    /// # Errors
    /// [`RuntimeError::Volume`]: there is no such file, it lies outside the volume, or it is too large.
    pub async fn read(
        &self,
        pod: &PodUid,
        volume: &str,
        path: &Path,
        bytes_max: u64,
    ) -> Result<Vec<u8>, RuntimeError> {
        let place = self.0.paths.volumes(pod).join(volume);
        let (volume, path) = (volume.to_owned(), path.to_owned());
        blocking(move || {
            parts::read(&place, &path, bytes_max)
                .map_err(|error| RuntimeError::Volume { volume, cause: error.to_string() })
        })
        .await
    }

    /// The block devices of a container, each with its path on the machine.
    ///
    /// # Errors
    /// [`RuntimeError::Volume`] for a volume that is no block device of the machine.
    pub async fn block_devices(
        &self,
        pod: &PodUid,
        launch: &LaunchSpec,
    ) -> Result<Vec<DeviceNode>, RuntimeError> {
        let (volumes, wanted) = (self.0.paths.volumes(pod), launch.block_devices.clone());
        blocking(move || wanted.iter().map(|it| device_node(&volumes, it)).collect()).await
    }

    /// Makes the empty file for the termination message of a run, and returns its path. Any user of the
    /// container may write to it.
    ///
    /// # Errors
    /// The disk does not take it.
    pub async fn make_message_file(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
    ) -> Result<PathBuf, RuntimeError> {
        let file = self.message_file(pod, container, attempt, false);
        let path = file.root.join(&file.path);
        blocking(move || {
            volumes::create(&file.root, 0o700)?;
            file.prepare().map_err(FileError::new("make", &path))?;
            let mode = Permissions::from_mode(0o666);
            fs::set_permissions(&path, mode).map_err(FileError::new("open to all", &path))?;
            Ok(path)
        })
        .await
    }

    /// The termination message of a run that has ended, if it left one. `log` is its log file, whose end is the
    /// message if the policy says so.
    pub fn message(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
        log: Option<&Path>,
        succeeded: bool,
    ) -> Option<String> {
        let file = self.message_file(pod, container, attempt, log.is_some());
        file.message(log.unwrap_or(Path::new("")), succeeded)
    }

    /// Marks a run that ends for the machine's sake. The mark is durable when this returns.
    ///
    /// # Errors
    /// The disk does not take it.
    pub async fn mark_interrupted(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
    ) -> Result<(), RuntimeError> {
        self.write_interruption(pod, container, attempt, None).await
    }

    /// As [`PodFiles::mark_interrupted`], of a run that may have ended already: one that ended before `from` ended by
    /// itself.
    ///
    /// # Errors
    /// The disk does not take it.
    pub async fn mark_interrupted_from(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
        from: Timestamp,
    ) -> Result<(), RuntimeError> {
        self.write_interruption(pod, container, attempt, Some(from)).await
    }

    async fn write_interruption(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
        from: Option<Timestamp>,
    ) -> Result<(), RuntimeError> {
        let (files, dir) = (self.0.clone(), self.0.paths.run(pod, container, attempt));
        blocking(move || {
            let base = files.paths.dir();
            durable_file::create_dir(base, &dir).map_err(FileError::new("create", &dir))?;
            let path = dir.join(INTERRUPTED_FILE);
            durable_file::write(&path, &from).map_err(FileError::new("mark", path))?;
            Ok(())
        })
        .await
    }

    /// Whether a run that ended at `finished_at` ended for the machine's sake.
    pub fn is_interrupted(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
        finished_at: Timestamp,
    ) -> bool {
        let path = self.0.paths.run(pod, container, attempt).join(INTERRUPTED_FILE);
        match durable_file::read::<Option<Timestamp>>(&path) {
            Ok(None) => false,
            Ok(Some(from)) => from.is_none_or(|from| finished_at >= from),
            // There is a mark.
            Err(_) => true,
        }
    }

    /// Marks a run whose start is about to be asked of the runtime. The mark outlives this process, and not a crash of
    /// the machine, which no process outlives.
    ///
    /// # Errors
    /// The disk does not take it.
    pub async fn mark_starting(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
    ) -> Result<(), RuntimeError> {
        let dir = self.0.paths.run(pod, container, attempt);
        blocking(move || {
            let path = dir.join(STARTING_FILE);
            fs::create_dir_all(&dir).map_err(FileError::new("create", &dir))?;
            fs::write(&path, b"").map_err(FileError::new("mark", path))?;
            Ok(())
        })
        .await
    }

    /// The number after those of all runs whose start was, or may have been, asked of the runtime. The runtime may not have
    /// them any more.
    pub fn next_attempt(&self, pod: &PodUid, container: &str) -> u32 {
        let runs = self.0.paths.containers(pod).join(container);
        let asked = entries(&runs).unwrap_or_default().into_iter().filter_map(|run| {
            let attempt: u32 = run.file_name().to_str()?.parse().ok()?;
            run.path().join(STARTING_FILE).exists().then_some(attempt)
        });
        asked.max().map_or(0, |latest| latest.saturating_add(1))
    }

    /// Writes the end of a run as it was observed. It is durable when this returns.
    ///
    /// # Errors
    /// The disk does not take it.
    pub async fn write_end(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
        exit: &Exit,
    ) -> Result<(), FileError> {
        let (files, dir) = (self.0.clone(), self.0.paths.run(pod, container, attempt));
        let exit = exit.clone();
        blocking(move || {
            if !dir.is_dir() {
                let base = files.paths.dir();
                durable_file::create_dir(base, &dir).map_err(FileError::new("create", &dir))?;
            }
            let path = dir.join(END_FILE);
            durable_file::write(&path, &exit).map_err(FileError::new("write", path))
        })
        .await
    }

    /// The end of a run as it was observed; `None` if it was not, or its file cannot be read.
    pub fn end(&self, pod: &PodUid, container: &str, attempt: u32) -> Option<Exit> {
        let path = self.0.paths.run(pod, container, attempt).join(END_FILE);
        durable_file::read(&path).ok().flatten()
    }

    /// Removes the end of a process whose start was cut off: another run has its number.
    pub fn remove_end(&self, pod: &PodUid, container: &str, attempt: u32) {
        // If it stays, a status of the next run counts before it.
        let _ = fs::remove_file(self.0.paths.run(pod, container, attempt).join(END_FILE));
    }

    /// Writes the pod's file of hosts, and returns its path.
    ///
    /// # Errors
    /// The disk does not take it.
    pub async fn write_hosts(&self, pod: &PodUid, text: String) -> Result<PathBuf, RuntimeError> {
        let dir = self.0.paths.pod(pod);
        blocking(move || {
            volumes::create(&dir, 0o700)?;
            let path = dir.join(HOSTS_FILE);
            // A container has the file mounted: another file in its place would not be seen.
            if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
                fs::write(&path, text).map_err(FileError::new("write", &path))?;
            }
            let mode = Permissions::from_mode(0o644);
            fs::set_permissions(&path, mode).map_err(FileError::new("open to all", &path))?;
            Ok(path)
        })
        .await
    }

    /// The log file of a run.
    pub fn log(&self, pod: &PodRecord, container: &str, attempt: u32) -> PathBuf {
        self.0.paths.log(pod, container, attempt)
    }

    /// Removes the files and the logs of a run, of which `files_max` log files may be there.
    pub fn remove_run(
        &self,
        pod: &PodUid,
        log: &Path,
        container: &str,
        attempt: u32,
        files_max: u32,
    ) {
        // What cannot be removed now is removed with the pod.
        let _ = fs::remove_dir_all(self.0.paths.run(pod, container, attempt));
        let _ = fs::remove_file(log);
        for number in 1..files_max {
            let _ = fs::remove_file(rotated(log, number));
        }
    }

    /// What the volumes and the other files of a pod take on the disk, without its logs.
    pub fn disk_usage(&self, pod: &PodUid) -> DiskUsage {
        let paths = &self.0.paths;
        // Parts of volumes are bound beside them, and would count twice.
        let places = [paths.volumes(pod), paths.containers(pod), paths.pod(pod).join(HOSTS_FILE)];
        places.iter().map(|place| DiskUsage::of(place)).fold(DiskUsage::default(), |a, b| a + b)
    }

    /// What a volume of a pod takes on its file system.
    pub fn volume_usage(&self, pod: &PodUid, volume: &str) -> DiskUsage {
        DiskUsage::of(&self.0.paths.volumes(pod).join(volume))
    }

    /// The usage of a volume of a pod; `None`: there is no such volume. What lies in the node's own directories is counted
    /// file by file. Of a directory of the host the file system is measured if it is mounted there: one that has others
    /// beside it has no size of its own. What lies at `of_drivers` is not looked at.
    pub fn volume_statistics(
        &self,
        pod: &PodUid,
        volume: &str,
        of_drivers: &BTreeSet<PathBuf>,
    ) -> Option<VolumeUsage> {
        let path = self.0.paths.volumes(pod).join(volume);
        let found = fs::symlink_metadata(&path).ok()?;
        let place = if found.is_symlink() { fs::read_link(&path).ok()? } else { path };
        if of_drivers.contains(&place) {
            return Some(VolumeUsage { place, system: None });
        }
        let in_memory = self.0.secrets.volume(pod, volume);
        let is_own = place.starts_with(self.0.paths.dir()) || in_memory.as_ref() == Some(&place);
        let has_size = place.is_dir() && (is_own || is_mount_point(&place));
        let mut system = has_size.then(|| FileSystemUsage::of(&place).ok()).flatten();
        if let Some(system) = system.as_mut().filter(|_| is_own) {
            system.used = DiskUsage::of(&place);
        }
        Some(VolumeUsage { place, system })
    }

    /// Removes the logs of pods that have no record and are not in `here`.
    ///
    /// # Errors
    /// The logs cannot be listed or removed.
    pub async fn remove_other_logs(&self, here: BTreeSet<PodUid>) -> Result<(), RuntimeError> {
        let files = self.0.clone();
        blocking(move || {
            let logs = files.paths.all_logs();
            for entry in entries(&logs).map_err(FileError::new("list", &logs))? {
                // `<namespace>_<pod>_<uid>`: the first two have no underscore.
                let name = entry.file_name();
                let uid = name.to_str().and_then(|name| name.splitn(3, '_').nth(2));
                let uid = uid.and_then(|uid| PodUid::try_from(uid.to_owned()).ok());
                // A pod has its record before it has a log.
                let is_gone =
                    |uid: &PodUid| !here.contains(uid) && !files.paths.record(uid).exists();
                if uid.as_ref().is_some_and(is_gone)
                    && entry.path().symlink_metadata().is_ok_and(|it| it.is_dir())
                {
                    remove_all(&entry.path())?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Renames a log file, so that `files_max` of them stay with the new one. The runtime opens the file anew.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn rotate(&self, log: &Path, files_max: u32) -> io::Result<()> {
        for number in (1..files_max.saturating_sub(1)).rev() {
            let from = rotated(log, number);
            if from.exists() {
                fs::rename(from, rotated(log, number + 1))?;
            }
        }
        fs::rename(log, rotated(log, 1))
    }

    /// Removes everything of a pod but its record. It can be repeated.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn remove(&self, pod: &PodRecord) -> Result<(), RuntimeError> {
        let (files, pod) = (self.0.clone(), pod.clone());
        blocking(move || {
            let (paths, uid) = (&files.paths, &pod.uid);
            take_down(paths, uid)?;
            for path in [paths.logs(&pod), paths.containers(uid), paths.volumes(uid)] {
                remove_all(&path)?;
            }
            let hosts = paths.pod(uid).join(HOSTS_FILE);
            durable_file::remove(&hosts).map_err(FileError::new("remove", &hosts))?;
            let place = paths.pod(uid);
            files.secrets.remove(uid).map_err(FileError::new("remove the secrets of", place))?;
            Ok(())
        })
        .await
    }

    /// See [`super::Runtime::log_files`].
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn log_files(&self, query: &LogQuery) -> io::Result<Vec<PathBuf>> {
        let LogQuery { namespace, pod, container, previous } = query;
        log_files(&self.0.paths, namespace, pod, container, *previous)
    }

    fn message_file(
        &self,
        pod: &PodUid,
        container: &str,
        attempt: u32,
        falls_back_to_logs: bool,
    ) -> TerminationFile {
        let root = self.0.paths.run(pod, container, attempt);
        TerminationFile { root, path: MESSAGE_FILE.into(), falls_back_to_logs }
    }
}

/// Ends what is mounted in the directory of a pod: nothing that is removed later leads out of it.
fn take_down(paths: &Paths, pod: &PodUid) -> Result<(), FileError> {
    let places = paths.parts(pod);
    parts::unbind_all(&places).map_err(FileError::new("take down the parts in", &places))?;
    let volumes = paths.volumes(pod);
    for volume in entries(&volumes).map_err(FileError::new("list", &volumes))? {
        let path = volume.path();
        parts::unmount_memory(&path).map_err(FileError::new("take down", &path))?;
    }
    let place = paths.pod(pod);
    check_none_below(&place).map_err(FileError::new("take down", &place))
}

/// The place of a mount. A container can put a link into a volume that it writes to, at any moment: a part of such a volume
/// is bound to a place of its own, unless the runtime would not see it there (`hidden`).
fn mount_source(
    volumes: &Path,
    container: &str,
    mount: &Mount,
    (place, hidden): (PathBuf, Option<&str>),
) -> Result<MountSource, RuntimeError> {
    let refused = |why: &str| {
        let message = format!(
            "failed to prepare subPath for volumeMount {:?} of container {container:?}: {why}",
            mount.volume
        );
        let reason = WaitReason { reason: "CreateContainerConfigError", message };
        RuntimeError::Refused { reason }
    };
    let volume = volumes.join(&mount.volume);
    let volume = fs::canonicalize(&volume).map_err(FileError::new("look at", &volume))?;
    let is_written_here = mount.is_written_here;
    let Some(part) = mount.sub_path.as_ref().filter(|part| !part.as_os_str().is_empty()) else {
        return Ok(MountSource { path: mount.path.clone(), source: volume, is_written_here });
    };
    if !is_written_here {
        if let Some(why) = hidden {
            return Err(refused(why));
        }
        parts::bind(&volume, part, &place).map_err(|error| refused(&error.to_string()))?;
        return Ok(MountSource { path: mount.path.clone(), source: place, is_written_here });
    }
    if !part.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(refused("it is no plain path below the volume"));
    }
    match fs::canonicalize(volume.join(part)) {
        Ok(source) if source.starts_with(&volume) => {
            Ok(MountSource { path: mount.path.clone(), source, is_written_here })
        }
        _ => Err(refused(&format!("the volume has no {}", part.display()))),
    }
}

/// The device node of a block device. A container does not see its place: the runtime makes a node of its own.
fn device_node(volumes: &Path, device: &BlockDevice) -> Result<DeviceNode, RuntimeError> {
    let place = volumes.join(&device.volume);
    let host = fs::canonicalize(&place).map_err(FileError::new("look at", &place))?;
    let found = fs::metadata(&host).map_err(FileError::new("look at", &host))?;
    if !found.file_type().is_block_device() {
        let cause = format!("{} is no block device", host.display());
        return Err(RuntimeError::Volume { volume: device.volume.clone(), cause });
    }
    Ok(DeviceNode {
        container_path: device.path.clone(),
        host_path: host.to_string_lossy().into_owned(),
        permissions: if device.read_only { "r" } else { "mrw" }.to_owned(),
    })
}

/// Whether another file system is mounted at this directory.
fn is_mount_point(dir: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    dir.parent().is_some_and(|above| device(above) != device(dir))
}

/// Removes a directory with all that is in it. Succeeds if there is none.
fn remove_all(path: &Path) -> Result<(), FileError> {
    durable_file::or_absent(fs::remove_dir_all(path)).map_err(FileError::new("remove", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::volume::VolumeContent;

    #[tokio::test]
    async fn a_volume_is_measured_unless_it_is_a_part_of_a_file_system_of_others_or_a_drivers() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = PodFiles::open(&dir.path().join("edged"), None).expect("they open");
        let pod = PodRecord {
            key: "shop/pod/web".parse().expect("a key"),
            uid: "u1".to_owned().try_into().expect("a UID"),
            grace_seconds: 0,
            seen_at: Timestamp::UNIX_EPOCH,
            seen_in_boot: None,
            is_static: false,
        };
        let host = dir.path().join("host");
        fs::create_dir(&host).expect("a folder");
        let at = |path: &Path| VolumeContent::Host {
            path: path.to_string_lossy().into_owned(),
            kind: String::new(),
        };
        let volume =
            |name: &str, content| Volume { name: name.to_owned(), content, is_secret: false };
        let published = dir.path().join("published");
        files
            .write_volumes(
                &pod,
                &[
                    volume("own", VolumeContent::Empty { memory_bytes_max: None }),
                    volume("shared", at(&host)),
                    volume("mounted", at(Path::new("/proc"))),
                    volume("driver", VolumeContent::Published { path: published.clone() }),
                ],
            )
            .await
            .expect("written");
        let of_drivers = BTreeSet::from([published.clone()]);
        let of = |name: &str| files.volume_statistics(&pod.uid, name, &of_drivers);
        let own = of("own").and_then(|it| it.system).expect("measured");
        assert_eq!((own.used.inodes, own.capacity.bytes > 0), (1, true));
        let shared = of("shared").expect("there");
        assert_eq!((shared.place, shared.system), (host, None));
        assert!(of("mounted").expect("there").system.is_some());
        let driver = of("driver").expect("there");
        assert_eq!((driver.place, driver.system), (published, None));
        assert!(of("none").is_none());
    }
}
