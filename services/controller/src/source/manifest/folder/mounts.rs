//! The mounts inside the folder, and those that are gone. The folder may be a mount itself: its path is empty.
//!
//! A mount that goes leaves an empty folder, or none: its manifests are hidden, not deleted. An
//! object of a manifest in a mount carries the mount's path in an annotation, so that a restart
//! knows the mounts of an earlier run. Numbers of devices do not survive a restart of the machine.
//!
//! What lies in place of a mount of an earlier run came to light when the mount went. Another controller may have its
//! mounts in other places: a folder that has every file which a mount of it was missed for is the same one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::source::manifest::origin::MOUNT_ANNOTATION;
use crate::source::manifest::scan::Scan;
use crate::source::{PublishedObject, PublishedObjects};

/// The mounts that had manifests when they were last there.
#[derive(Debug, Default)]
pub(super) struct Mounts(BTreeMap<PathBuf, Device>);

/// The device of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Device {
    /// Its number, in this run.
    Number(u64),
    /// The mount is known from an earlier run.
    Earlier,
    /// The mount is known from another controller, or the folder itself was one in an earlier run.
    Elsewhere {
        /// The files that something is published from and that were not there, in the folder.
        lacking: BTreeSet<PathBuf>,
    },
}

impl Mounts {
    /// Takes up the mounts of an earlier run, or after a takeover those of another controller that are not known.
    /// `lacking` returns the files in a mount that something is published from and that are not there.
    pub(super) fn learn(
        &mut self,
        published: &dyn PublishedObjects,
        is_takeover: bool,
        lacking: impl Fn(&Path) -> BTreeSet<PathBuf>,
    ) {
        for path in published_mounts(published) {
            match self.0.entry(path) {
                Entry::Vacant(unknown) if is_takeover || unknown.key().as_os_str().is_empty() => {
                    let lacking = lacking(unknown.key());
                    unknown.insert(Device::Elsewhere { lacking });
                }
                Entry::Vacant(unknown) => {
                    unknown.insert(Device::Earlier);
                }
                Entry::Occupied(mut known) => {
                    let more = lacking(known.key());
                    if let Device::Elsewhere { lacking } = known.get_mut() {
                        lacking.extend(more);
                    }
                }
            }
        }
    }

    /// The mounts that a scan does not find, or finds on another device and without a manifest.
    pub(super) fn missing(&self, scan: &Scan) -> Vec<PathBuf> {
        let is_missing = |(path, device): &(&PathBuf, &Device)| match scan.mounts.get(*path) {
            // What is in a folder that cannot be entered is not missing.
            None => {
                let is_hidden = |folder: &PathBuf| path.starts_with(folder);
                device.is_missed(scan) && !scan.unreadable_folders.iter().any(is_hidden)
            }
            Some(now) => **device != Device::Number(*now) && !has_manifests(scan, path),
        };
        self.0.iter().filter(is_missing).map(|(path, _)| path.clone()).collect()
    }

    /// Whether the folder itself was a mount in an earlier run, or of another controller, and is none in a scan.
    /// In one run its device says so.
    pub(super) fn lack_root(&self, scan: &Scan) -> bool {
        let root = Path::new("");
        let known = self.0.get(root).filter(|device| matches!(device, Device::Elsewhere { .. }));
        known.is_some_and(|device| device.is_missed(scan)) && !scan.mounts.contains_key(root)
    }

    /// Takes the mounts of a scan. The `hidden` ones stay as they were.
    pub(super) fn update(&mut self, scan: &Scan, hidden: &[PathBuf]) {
        self.0.retain(|path, _| hidden.iter().any(|folder| path.starts_with(folder)));
        for (path, device) in &scan.mounts {
            if has_manifests(scan, path) {
                self.0.insert(path.clone(), Device::Number(*device));
            }
        }
    }

    /// The innermost mount that a file lies in.
    pub(super) fn of(&self, file: &Path) -> Option<&Path> {
        let mount = file.ancestors().find_map(|folder| self.0.get_key_value(folder));
        mount.map(|(path, _)| path.as_path())
    }
}

impl Device {
    /// Whether a folder that is no mount lacks files of this one.
    fn is_missed(&self, scan: &Scan) -> bool {
        match self {
            Self::Number(_) | Self::Earlier => true,
            Self::Elsewhere { lacking } => {
                lacking.iter().any(|path| !scan.files.contains_key(path))
            }
        }
    }
}

/// The mounts that published objects name.
fn published_mounts(published: &dyn PublishedObjects) -> BTreeSet<PathBuf> {
    let objects = published.keys().into_iter().filter_map(|key| published.get(&key));
    // Few objects have the annotation, and only those are parsed.
    let is_named = |object: &PublishedObject| {
        str::from_utf8(&object.payload).is_ok_and(|text| text.contains(MOUNT_ANNOTATION))
    };
    let mounts = objects.filter(is_named).filter_map(|object| {
        let value: Value = object.value();
        Some(value["metadata"]["annotations"][MOUNT_ANNOTATION].as_str()?.into())
    });
    mounts.collect()
}

fn has_manifests(scan: &Scan, folder: &Path) -> bool {
    scan.files.range(folder.to_owned()..).next().is_some_and(|(path, _)| path.starts_with(folder))
}
