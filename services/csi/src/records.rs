//! The ledger on the disk, in the files of a kubelet: what a killed pod worker has begun, the next one finishes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use headwater_edged::or_absent;
use serde::{Deserialize, Serialize};

use crate::layout::{DATA_FILE, Layout, check_driver_name, check_spec_name};
use crate::ledger::{Ledger, PodVolume, VolumeId};

/// The largest file: a handle has at most 128 bytes by the CSI specification, and drivers exceed it.
const BYTES_MAX: u64 = 64 << 10;

/// `vol_data.json` of a pod's volume.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodData {
    #[serde(rename = "specVolID")]
    pub(crate) spec_vol_id: String,
    pub(crate) volume_handle: String,
    pub(crate) driver_name: String,
    #[serde(default)]
    pub(crate) node_name: String,
    #[serde(rename = "attachmentID", default)]
    pub(crate) attachment_id: String,
    #[serde(default)]
    pub(crate) volume_lifecycle_mode: String,
}

/// `vol_data.json` of a staged volume.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StageData {
    pub(crate) volume_handle: String,
    pub(crate) driver_name: String,
    /// A kubelet's file has none: what it has staged is not ours to take back.
    #[serde(default)]
    pub(crate) node_name: String,
}

/// Reads what earlier pod workers of this node have left. A file that is none is left alone.
pub(crate) fn load(layout: &Layout, node: &str) -> io::Result<Ledger> {
    let mut ledger = Ledger::default();
    for pod in names(&layout.pods())? {
        for spec_name in names(&layout.pod_volumes(&pod))? {
            let Some(data) = read::<PodData>(&layout.pod_volume(&pod, &spec_name)) else {
                continue;
            };
            let place = PodVolume { pod: pod.clone(), spec_name: spec_name.clone() };
            if check_driver_name(&data.driver_name).is_ok() && check_spec_name(&spec_name).is_ok() {
                let id = VolumeId { driver: data.driver_name, handle: data.volume_handle };
                ledger.begin_use(place, id);
            }
        }
    }
    for driver in names(&layout.all_staged())? {
        for folder in names(&layout.all_staged().join(&driver))? {
            let path = layout.all_staged().join(&driver).join(&folder);
            let Some(data) = read::<StageData>(&path) else { continue };
            let is_own = data.node_name == node;
            // A file in another place was not written by a pod worker.
            let is_here = layout.staged(&driver, &data.volume_handle) == path;
            if is_own && is_here && data.driver_name == driver {
                ledger.begin_stage(VolumeId { driver: driver.clone(), handle: data.volume_handle });
            }
        }
    }
    Ok(ledger)
}

/// Writes that the pod uses the volume. It is durable when this returns.
pub(crate) fn write_use(layout: &Layout, pod: &str, data: &PodData) -> io::Result<()> {
    let folder = layout.pod_volume(pod, &data.spec_vol_id);
    write(layout.root(), &folder, data)
}

/// Removes the folder of a pod's volume, which the driver has left empty. Nothing in it is ever removed.
pub(crate) fn remove_use(layout: &Layout, place: &PodVolume) -> io::Result<()> {
    let PodVolume { pod, spec_name } = place;
    let folder = layout.pod_volume(pod, spec_name);
    remove_target(&layout.target(pod, spec_name))?;
    or_absent(fs::remove_file(folder.join(DATA_FILE)))?;
    or_absent(fs::remove_dir(&folder))?;
    // Others may have something there.
    let volumes = layout.pod_volumes(pod);
    for above in volumes.ancestors().take(3) {
        if fs::remove_dir(above).is_err() {
            break;
        }
    }
    Ok(())
}

/// Removes the folder at which a file system was published, or the file for a block device.
fn remove_target(target: &Path) -> io::Result<()> {
    let is_empty_file =
        fs::symlink_metadata(target).is_ok_and(|found| found.is_file() && found.len() == 0);
    or_absent(if is_empty_file { fs::remove_file(target) } else { fs::remove_dir(target) })
}

/// Writes that the volume is about to be staged, and makes the folder for it. It is durable when this returns.
pub(crate) fn write_stage(layout: &Layout, id: &VolumeId, node: &str) -> io::Result<()> {
    let VolumeId { driver, handle } = id;
    let folder = layout.staged(driver, handle);
    let data = StageData {
        volume_handle: handle.clone(),
        driver_name: driver.clone(),
        node_name: node.to_owned(),
    };
    write(layout.root(), &folder, &data)?;
    make_dir(layout.root(), &layout.staging_target(driver, handle))
}

/// Removes the folder of a staged volume, which the driver has left empty. Nothing in it is ever removed.
pub(crate) fn remove_stage(layout: &Layout, id: &VolumeId) -> io::Result<()> {
    let folder = layout.staged(&id.driver, &id.handle);
    or_absent(fs::remove_dir(layout.staging_target(&id.driver, &id.handle)))?;
    or_absent(fs::remove_file(folder.join(DATA_FILE)))?;
    or_absent(fs::remove_dir(&folder))
}

/// The names in a folder; none if there is no folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    Ok(names.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

fn read<T: serde::de::DeserializeOwned>(folder: &Path) -> Option<T> {
    let path = folder.join(DATA_FILE);
    let found = fs::symlink_metadata(&path).ok()?;
    if !found.is_file() || found.len() > BYTES_MAX {
        return None;
    }
    let data = serde_json::from_slice(&fs::read(&path).ok()?);
    if let Err(error) = &data {
        tracing::warn!(path = %path.display(), %error, "the file of a volume is malformed");
    }
    data.ok()
}

fn write(root: &Path, folder: &Path, data: &impl Serialize) -> io::Result<()> {
    make_dir(root, folder)?;
    let temporary = folder.join("vol_data.tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(&serde_json::to_vec(data)?)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(DATA_FILE))?;
    File::open(folder)?.sync_all()
}

/// Makes a folder below `root` with all above it, each synced in the one above it.
pub(crate) fn make_dir(root: &Path, folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let below = folder.strip_prefix(root).map_err(io::Error::other)?;
    let mut above = root.to_owned();
    for name in below {
        let next = above.join(name);
        match fs::DirBuilder::new().mode(0o750).create(&next) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && next.is_dir() => {}
            made => {
                made?;
                File::open(&above)?.sync_all()?;
            }
        }
        above = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> VolumeId {
        VolumeId { driver: "disk.example.com".to_owned(), handle: "h/../1".to_owned() }
    }

    fn data() -> PodData {
        PodData {
            spec_vol_id: "pv".to_owned(),
            volume_handle: id().handle,
            driver_name: id().driver,
            node_name: "gw-1".to_owned(),
            attachment_id: "csi-x".to_owned(),
            volume_lifecycle_mode: "Persistent".to_owned(),
        }
    }

    #[test]
    fn what_was_written_is_found_again_until_it_is_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path().to_owned());
        write_use(&layout, "u1", &data()).expect("written");
        write_stage(&layout, &id(), "gw-1").expect("written");
        let place = PodVolume { pod: "u1".to_owned(), spec_name: "pv".to_owned() };
        let ledger = load(&layout, "gw-1").expect("read");
        assert_eq!(ledger.of_pod("u1"), [(place.clone(), id())]);
        assert!(ledger.stage_of(&id()).is_some());
        let json = fs::read(layout.pod_volume("u1", "pv").join(DATA_FILE)).expect("a file");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let keys = ["specVolID", "volumeHandle", "driverName", "nodeName", "attachmentID"];
        assert!(keys.iter().all(|key| json[key].is_string()), "{json}");
        remove_use(&layout, &place).expect("removed");
        assert_eq!(load(&layout, "gw-1").expect("read").unused(), [id()]);
        assert!(!layout.pods().join("u1").exists());
        remove_stage(&layout, &id()).expect("removed");
        remove_stage(&layout, &id()).expect("it can be repeated");
        assert_eq!(load(&layout, "gw-1").expect("read").unused(), []);
    }

    #[test]
    fn content_of_a_volume_is_never_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path().to_owned());
        write_use(&layout, "u1", &data()).expect("written");
        write_stage(&layout, &id(), "gw-1").expect("written");
        let target = layout.target("u1", "pv");
        fs::create_dir(&target).expect("a folder");
        let staging = layout.staging_target(&id().driver, &id().handle);
        let files = [target.join("precious"), staging.join("precious")];
        for file in &files {
            fs::write(file, "data").expect("a file");
        }
        let place = PodVolume { pod: "u1".to_owned(), spec_name: "pv".to_owned() };
        remove_use(&layout, &place).expect_err("it is not empty");
        remove_stage(&layout, &id()).expect_err("it is not empty");
        assert!(files.iter().all(|file| file.exists()));
        assert_eq!(load(&layout, "gw-1").expect("read").of_pod("u1").len(), 1, "it is tried again");
    }

    #[test]
    fn an_empty_file_is_what_a_block_device_was_published_at() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path().to_owned());
        write_use(&layout, "u1", &data()).expect("written");
        let target = layout.target("u1", "pv");
        fs::write(&target, "data").expect("a file");
        let place = PodVolume { pod: "u1".to_owned(), spec_name: "pv".to_owned() };
        remove_use(&layout, &place).expect_err("it is not empty");
        fs::write(&target, "").expect("a file");
        remove_use(&layout, &place).expect("removed");
        assert!(!layout.pods().join("u1").exists());
    }

    #[test]
    fn foreign_and_broken_files_are_left_alone() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path().to_owned());
        write_stage(&layout, &id(), "gw-2").expect("that of another agent");
        let elsewhere = layout.all_staged().join("disk.example.com/other");
        fs::create_dir_all(&elsewhere).expect("a folder");
        let of_another = r#"{"volumeHandle": "h", "driverName": "disk.example.com"}"#;
        fs::write(elsewhere.join(DATA_FILE), of_another).expect("a file");
        for (name, text) in [
            ("broken", "{"),
            ("hostile", r#"{"specVolID": "a", "volumeHandle": "h", "driverName": "../up"}"#),
        ] {
            let folder = layout.pod_volume("u1", name);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(DATA_FILE), text).expect("a file");
        }
        let ledger = load(&layout, "gw-1").expect("read");
        assert_eq!((ledger.of_pod("u1"), ledger.unused()), (Vec::new(), Vec::new()));
    }
}
