//! The folder of static pods: which files there are, and which of them are read.
//!
//! A file is read once it is the same at two looks, so one that is being written is not read in its middle, and it is
//! gone once two looks lack it: some editors remove a file before they write it anew. The first look reads at once:
//! the node starts, and waits for its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use headwater_event::{NodeName, ResourceKey};
use headwater_telemetry::error_chain;
use nix::fcntl::OFlag;

use super::StaticPods;
use super::pod_file::{FILE_BYTES_MAX, PodFile, PodFileError};

/// The most files that are read: a node has room for fewer pods.
const FILES_MAX: usize = 1_000;

/// See the module.
#[derive(Debug)]
pub(super) struct PodFolder {
    path: PathBuf,
    node: NodeName,
    /// The files, by name.
    files: BTreeMap<OsString, KnownFile>,
    /// Whether a look has listed the folder.
    has_listed: bool,
    /// The file system of the folder, as it was listed first.
    device: Option<u64>,
    /// The pods whose files went, while it is not known of all files whether they have pods.
    removed: BTreeSet<ResourceKey>,
    /// Why the folder as a whole cannot be followed, as it was logged last.
    trouble: Option<String>,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct KnownFile {
    /// At the last look.
    seen: FileStamp,
    /// When it was read.
    read: Option<FileStamp>,
    /// The last pod in it.
    pod: Option<(ResourceKey, PodFile)>,
    /// Why it has no pod now.
    trouble: Option<String>,
    /// Whether another file has its pod, too.
    is_second: bool,
    /// Whether the last look lacked it.
    is_missing: bool,
}

/// Changes with the content of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
enum FileTrouble {
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Pod(#[from] PodFileError),
}

impl PodFolder {
    pub(super) fn new(path: PathBuf, node: NodeName) -> Self {
        Self {
            path,
            node,
            files: BTreeMap::new(),
            has_listed: false,
            device: None,
            removed: BTreeSet::new(),
            trouble: None,
        }
    }

    /// Looks at the folder, and reads what has changed. Returns the pods.
    pub(super) fn look(&mut self) -> StaticPods {
        let is_listed = match self.list() {
            Ok(listed) => {
                self.update(listed);
                self.trouble = None;
                true
            }
            Err(error) => {
                let trouble = error.to_string();
                if self.trouble.as_ref() != Some(&trouble) {
                    let path = self.path.display();
                    tracing::warn!(%path, error = trouble, "the folder of static pods cannot be listed; its pods stay");
                    self.trouble = Some(trouble);
                }
                false
            }
        };
        self.pods(is_listed)
    }

    /// Lists the folder. One on another file system is not the one that was followed: its own was unmounted.
    fn list(&mut self) -> io::Result<BTreeMap<OsString, io::Result<FileStamp>>> {
        let device = fs::metadata(&self.path)?.dev();
        if *self.device.get_or_insert(device) != device {
            return Err(io::Error::other("it is on another file system than before"));
        }
        list(&self.path)
    }

    fn update(&mut self, listed: BTreeMap<OsString, io::Result<FileStamp>>) {
        self.files.retain(|name, file| {
            let was_missing = std::mem::replace(&mut file.is_missing, !listed.contains_key(name));
            let is_gone = was_missing && file.is_missing;
            if is_gone && let Some((key, _)) = file.pod.take() {
                self.removed.insert(key);
            }
            !is_gone
        });
        let is_first = !std::mem::replace(&mut self.has_listed, true);
        for (name, stamp) in listed {
            let file = self.files.entry(name.clone()).or_default();
            let read = match stamp {
                Ok(stamp) => {
                    let has_settled = std::mem::replace(&mut file.seen, stamp) == stamp;
                    if file.read == Some(stamp) || !(has_settled || is_first) {
                        continue;
                    }
                    file.read = Some(stamp);
                    read(&self.path.join(&name), &self.node)
                }
                Err(error) => Err(error.into()),
            };
            let path = self.path.join(&name);
            let path = path.display();
            match read {
                Ok((key, pod)) => {
                    tracing::info!(%path, pod = %key, uid = %pod.uid, "a static pod was read");
                    (file.pod, file.trouble) = (Some((key, pod)), None);
                }
                Err(error) => {
                    if matches!(error, FileTrouble::Io(_)) {
                        // The next look tries again, also if nothing changes.
                        file.read = None;
                    }
                    let trouble = error_chain(&error);
                    if file.trouble.as_ref() != Some(&trouble) {
                        tracing::warn!(%path, error = trouble, "a file has no static pod; the pod of before stays");
                        file.trouble = Some(trouble);
                    }
                }
            }
        }
    }

    fn pods(&mut self, is_listed: bool) -> StaticPods {
        let mut pods: BTreeMap<ResourceKey, PodFile> = BTreeMap::new();
        let mut is_complete = is_listed;
        for (name, file) in &mut self.files {
            // A file without a pod may be half written.
            is_complete &= file.trouble.is_none() && file.pod.is_some();
            let Some((key, pod)) = &file.pod else { continue };
            let is_second = pods.contains_key(key);
            if is_second && !file.is_second {
                tracing::warn!(file = %name.display(), pod = %key, "an earlier file has this static pod, too, and counts");
            }
            file.is_second = is_second;
            pods.entry(key.clone()).or_insert_with(|| pod.clone());
        }
        self.removed.retain(|key| !is_complete && !pods.contains_key(key));
        StaticPods { pods, is_complete, removed: self.removed.clone() }
    }
}

/// The files of a folder, by name. Hidden files are not meant, nor are folders.
fn list(path: &Path) -> io::Result<BTreeMap<OsString, io::Result<FileStamp>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // A link counts as what it leads to.
        let metadata = fs::metadata(entry.path());
        if metadata.as_ref().is_ok_and(|metadata| !metadata.is_file()) {
            continue;
        }
        if files.len() >= FILES_MAX {
            return Err(io::Error::other(format!("it has more than {FILES_MAX} files")));
        }
        files.insert(name, metadata.map(|metadata| FileStamp::of(&metadata)));
    }
    Ok(files)
}

fn read(path: &Path, node: &NodeName) -> Result<(ResourceKey, PodFile), FileTrouble> {
    let mut text = Vec::new();
    // A pipe under the name of a file would wait for its writer.
    let flags = OFlag::O_NONBLOCK.bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file any more").into());
    }
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(PodFile::parse(node, &text)?)
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: main}}]}}\n"
        )
    }

    fn folder(dir: &Path) -> PodFolder {
        PodFolder::new(dir.to_owned(), "gw".parse().expect("a name"))
    }

    fn names(pods: &StaticPods) -> Vec<&str> {
        pods.pods.keys().map(ResourceKey::name).collect()
    }

    #[test]
    fn the_first_look_reads_at_once_and_a_later_change_counts_when_it_has_settled() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("a.yaml"), pod("a")).expect("written");
        fs::write(path(".swap"), "{").expect("written");
        fs::create_dir(path("below")).expect("made");
        let mut folder = folder(dir.path());
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["a-gw"], true));
        fs::write(path("b.yaml"), pod("b")).expect("written");
        let found = folder.look();
        assert_eq!(
            (names(&found), found.is_complete),
            (vec!["a-gw"], false),
            "it may be half written"
        );
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["a-gw", "b-gw"], true));
        fs::remove_file(path("a.yaml")).expect("removed");
        let found = folder.look();
        assert_eq!(names(&found), ["a-gw", "b-gw"], "it may be written anew");
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["b-gw"], true));
    }

    #[test]
    fn a_file_without_a_pod_and_a_folder_that_is_away_take_no_pod() {
        let dir = tempfile::tempdir().expect("a folder");
        let below = dir.path().join("pods");
        let mut folder = folder(&below);
        assert_eq!(folder.look(), StaticPods::default());
        fs::create_dir(&below).expect("made");
        fs::write(below.join("a.yaml"), pod("a")).expect("written");
        assert!(folder.look().is_complete);
        fs::write(below.join("a.yaml"), "kind: Pod").expect("written");
        let _ = folder.look();
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["a-gw"], false), "the pod of before");
        fs::write(below.join("a.yaml"), pod("c")).expect("written");
        let _ = folder.look();
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["c-gw"], true));
        // What another file has says nothing of one that goes.
        fs::write(below.join("note.txt"), "no pod").expect("written");
        fs::remove_file(below.join("a.yaml")).expect("removed");
        let _ = folder.look();
        let found = folder.look();
        let removed: Vec<_> = found.removed.iter().map(ResourceKey::name).collect();
        assert_eq!((names(&found), found.is_complete, removed), (vec![], false, vec!["c-gw"]));
        fs::write(below.join("a.yaml"), pod("c")).expect("written");
        let _ = folder.look();
        let found = folder.look();
        assert_eq!((names(&found), found.removed.len()), (vec!["c-gw"], 0));
        fs::remove_dir_all(&below).expect("removed");
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["c-gw"], false));
    }

    #[test]
    fn a_file_that_could_not_be_looked_at_is_read_when_it_can_be() {
        let dir = tempfile::tempdir().expect("a folder");
        let (link, target) = (dir.path().join("a.yaml"), dir.path().join(".target"));
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        let mut folder = folder(dir.path());
        assert_eq!(folder.look(), StaticPods::default(), "it leads nowhere");
        fs::write(&target, pod("a")).expect("written");
        let _ = folder.look();
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["a-gw"], true));
        fs::remove_file(&target).expect("removed");
        let found = folder.look();
        assert_eq!((names(&found), found.is_complete), (vec!["a-gw"], false), "the link is there");
    }

    #[test]
    fn of_two_files_with_one_pod_the_first_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("a.yaml"), pod("web")).expect("written");
        let other = pod("web").replace("main", "other");
        fs::write(dir.path().join("b.yaml"), other).expect("written");
        let mut folder = folder(dir.path());
        let found = folder.look();
        assert_eq!(names(&found), ["web-gw"]);
        let pod = found.pods.values().next().expect("a pod");
        assert_eq!(pod.object["spec"]["containers"][0]["name"], "main");
        fs::remove_file(dir.path().join("a.yaml")).expect("removed");
        let _ = folder.look();
        let found = folder.look();
        let pod = found.pods.values().next().expect("a pod");
        assert_eq!(pod.object["spec"]["containers"][0]["name"], "other");
    }
}
