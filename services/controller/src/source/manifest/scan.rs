//! Scanning: one look at every manifest under a folder, bounded, in a fixed order.
//!
//! Only `.yaml`, `.yml` and `.json` files count; what begins with a dot is left alone (version
//! control, swap files, the inner folders of a mounted ConfigMap). Links are followed, no folder
//! is entered twice, nothing but a plain file is ever opened, and a data directory of Headwater is
//! left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

use super::data_directory::{data_directory_of, is_data_directory};
use crate::source::{Notice, NoticeKind};

/// Linux's flag of `open`, the same on every machine that this is built for.
const O_NONBLOCK: i32 = 0o4000;

/// Bounds of a scan. What lies beyond one is named, never silently left out.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// How deep folders may nest.
    pub depth_max: usize,
    /// How many manifests there may be.
    pub files_max: usize,
    /// How large one may be, in bytes.
    pub file_bytes_max: u64,
    /// How large all may be together, in bytes: they are in memory at once during a scan.
    pub total_bytes_max: u64,
}

impl Default for ScanLimits {
    /// Ten times the largest collections of manifests that people keep in one place.
    fn default() -> Self {
        Self {
            depth_max: 32,
            files_max: 50_000,
            file_bytes_max: 16 * 1024 * 1024,
            total_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// One look at the files.
#[derive(Debug, Default)]
pub struct Scan {
    /// The device that the folder lies on.
    pub device: u64,
    /// The text of each manifest, by its path in the folder, or why it cannot be read.
    pub files: BTreeMap<PathBuf, Result<String, String>>,
    /// Folders on another device than the folder that they lie in, and other roots of mounts, with their device. The
    /// folder itself has an empty path.
    pub mounts: BTreeMap<PathBuf, u64>,
    /// Folders that cannot be looked into just now; what was found in them is not gone. A path whose
    /// type cannot be found out counts as one.
    pub unreadable_folders: Vec<PathBuf>,
    /// Data directories of Headwater, which are not looked into.
    pub data_directories: Vec<PathBuf>,
    /// What is not looked at, and why.
    pub skipped: Vec<Notice>,
}

impl Scan {
    /// Whether a path lies in a folder that cannot be looked into just now.
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        self.unreadable_folders.iter().any(|folder| path.starts_with(folder))
    }

    /// Whether any manifest has a text. One that cannot be read and one that is empty, as some editors leave it
    /// for a moment, say nothing.
    pub(super) fn has_readable_manifest(&self) -> bool {
        self.files.iter().any(|(path, text)| {
            text.as_ref().is_ok_and(|text| !text.trim().is_empty()) && !self.is_hidden(path)
        })
    }
}

/// Looks at every manifest under `folder`.
///
/// # Errors
/// When the folder itself cannot be read, or lies in a data directory.
pub fn scan(folder: &Path, limits: &ScanLimits) -> io::Result<Scan> {
    let metadata = fs::metadata(folder)?;
    if let Some(data) = data_directory_of(folder) {
        let what = format!("it lies in the data directory {}: name another one", data.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    let mut walk = Walk::new(folder, limits, metadata.dev());
    let is_other = |above: Metadata| above.dev() != metadata.dev();
    if is_mount_root(folder) || fs::metadata(folder.join("..")).is_ok_and(is_other) {
        walk.scan.mounts.insert(PathBuf::new(), metadata.dev());
    }
    walk.enter(Path::new(""), &metadata, 0)?;
    Ok(walk.scan)
}

struct Walk<'a> {
    root: &'a Path,
    limits: &'a ScanLimits,
    scan: Scan,
    /// Device and number of each folder entered.
    entered: BTreeSet<(u64, u64)>,
    total_bytes: u64,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Path, limits: &'a ScanLimits, device: u64) -> Self {
        let scan = Scan { device, ..Scan::default() };
        Self { root, limits, scan, entered: BTreeSet::new(), total_bytes: 0 }
    }

    fn enter(&mut self, folder: &Path, metadata: &Metadata, depth: usize) -> io::Result<()> {
        if !self.entered.insert((metadata.dev(), metadata.ino())) {
            self.skip(folder, "a link to a folder that is looked into already");
            return Ok(());
        }
        if is_data_directory(&self.root.join(folder)) {
            self.skip(folder, "a data directory of headwater: nothing in it is a manifest");
            self.scan.data_directories.push(folder.to_owned());
            return Ok(());
        }
        if depth > self.limits.depth_max {
            let limit = self.limits.depth_max;
            self.skip(folder, format!("folders nested more than {limit} deep are not looked into"));
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join(folder))? {
            let name = entry?.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            self.visit(folder.join(name), metadata.dev(), depth);
        }
        Ok(())
    }

    /// Looks at an entry of a folder that lies on the device `parent`.
    fn visit(&mut self, path: PathBuf, parent: u64, depth: usize) {
        match fs::metadata(self.root.join(&path)) {
            Ok(metadata) if metadata.is_dir() => {
                if metadata.dev() != parent || is_mount_root(&self.root.join(&path)) {
                    self.scan.mounts.insert(path.clone(), metadata.dev());
                }
                if let Err(error) = self.enter(&path, &metadata, depth + 1) {
                    self.cannot_enter(path, &error);
                }
            }
            Ok(_) if !is_manifest(&path) => {}
            Ok(metadata) if metadata.is_file() => self.read(path),
            Ok(_) => self.skip(&path, "not a plain file (a pipe, socket or device)"),
            Err(error) if self.has_left(&path, &error) => {}
            Err(error) => {
                if is_manifest(&path) {
                    self.scan.files.insert(path.clone(), Err(format!("cannot be read: {error}")));
                }
                // A folder, too, may have the name of a manifest.
                self.hide(path, &error);
            }
        }
    }

    fn cannot_enter(&mut self, folder: PathBuf, error: &io::Error) {
        if !self.has_left(&folder, error) {
            self.hide(folder, error);
        }
    }

    fn hide(&mut self, folder: PathBuf, error: &io::Error) {
        // The finding of a manifest names it already.
        if !self.scan.files.contains_key(&folder) {
            let why = format!("cannot be looked into: {error}; its objects stay");
            self.notice(&folder, NoticeKind::Unreadable, why);
        }
        self.scan.unreadable_folders.push(folder);
    }

    /// Whether `error` says that a path has left the folder during the scan. The target of a link may come back,
    /// whichever call has missed it: the link, or what lies behind one, has not left.
    fn has_left(&self, path: &Path, error: &io::Error) -> bool {
        let is_link = |path: &Path| {
            fs::symlink_metadata(self.root.join(path)).is_ok_and(|metadata| metadata.is_symlink())
        };
        let mut names = path.ancestors().filter(|path| !path.as_os_str().is_empty());
        error.kind() == ErrorKind::NotFound && !names.any(is_link)
    }

    fn read(&mut self, path: PathBuf) {
        if self.scan.files.len() >= self.limits.files_max {
            let limit = self.limits.files_max;
            self.scan.files.insert(path, Err(format!("not read: more than {limit} manifests")));
            return;
        }
        match self.text(&path) {
            Ok(text) => {
                self.scan.files.insert(path, text);
            }
            Err(error) if self.has_left(&path, &error) => {}
            Err(error) => {
                self.scan.files.insert(path, Err(format!("cannot be read: {error}")));
            }
        }
    }

    fn text(&mut self, path: &Path) -> io::Result<Result<String, String>> {
        let limit = self.limits.file_bytes_max;
        let mut bytes = Vec::new();
        // It may have become a pipe since it was looked at, whose opening would wait for a writer.
        let file =
            File::options().read(true).custom_flags(O_NONBLOCK).open(self.root.join(path))?;
        if !file.metadata()?.is_file() {
            return Ok(Err("not a plain file any more".to_owned()));
        }
        file.take(limit + 1).read_to_end(&mut bytes)?;
        let size = bytes.len() as u64;
        if size > limit {
            return Ok(Err(format!("not read: larger than {limit} bytes")));
        }
        self.total_bytes += size;
        if self.total_bytes > self.limits.total_bytes_max {
            let limit = self.limits.total_bytes_max;
            return Ok(Err(format!("not read: all manifests together exceed {limit} bytes")));
        }
        Ok(String::from_utf8(bytes).map_err(|_| "not text: want UTF-8".to_owned()))
    }

    fn skip(&mut self, path: &Path, why: impl Into<String>) {
        self.notice(path, NoticeKind::Skipped, why.into());
    }

    fn notice(&mut self, path: &Path, kind: NoticeKind, text: String) {
        self.scan.skipped.push(Notice { file: Some(path.to_owned()), line: None, kind, text });
    }
}

/// Whether a folder is the root of a mount. A bind mount may have the device of the folder that it lies in. A kernel
/// before 5.8 does not know.
fn is_mount_root(folder: &Path) -> bool {
    let stat = statx(CWD, folder, AtFlags::empty(), StatxFlags::empty());
    stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Whether a file is a manifest by its name.
fn is_manifest(path: &Path) -> bool {
    path.extension().and_then(|extension| extension.to_str()).is_some_and(|extension| {
        ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::{Uid, geteuid, setfsuid};

    use super::*;

    /// A user without any file of a test.
    const NOBODY: Uid = Uid::from_raw(65_534);

    /// No device, kind or options of a mount.
    const NONE: Option<&str> = None;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn write(folder: &tempfile::TempDir, path: &str, text: impl AsRef<[u8]>) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, text).expect("written");
    }

    fn look(folder: &tempfile::TempDir) -> Scan {
        scan(folder.path(), &ScanLimits::default()).expect("readable")
    }

    fn paths(scan: &Scan) -> Vec<&str> {
        scan.files.keys().map(|path| path.to_str().expect("text")).collect()
    }

    #[test]
    fn manifests_are_found_by_name_in_nested_folders() {
        let folder = folder();
        for path in
            ["b.yaml", "a/c.yml", "a/b/d.JSON", "notes.md", "x.yaml~", ".git/e.yaml", ".f.yaml"]
        {
            write(&folder, path, "a: 1");
        }
        assert_eq!(paths(&look(&folder)), ["a/b/d.JSON", "a/c.yml", "b.yaml"]);
        assert!(scan(&folder.path().join("absent"), &ScanLimits::default()).is_err());
    }

    #[test]
    fn a_data_directory_is_no_source_and_is_named_once() {
        let folder = folder();
        write(&folder, "web.yaml", "a: 1");
        write(&folder, "data/version", "1\n");
        write(&folder, "data/lock", "");
        write(&folder, "data/nodes/n/edged/pods/u/volumes/v/evil.yaml", "a: 1");
        write(&folder, "data/nodes/m/evil.yaml", "a: 1");
        let scan = look(&folder);
        assert_eq!(paths(&scan), ["web.yaml"]);
        assert_eq!(scan.data_directories, [PathBuf::from("data")]);
        assert_eq!(scan.skipped.len(), 1, "{:?}", scan.skipped);
        assert!(scan.skipped[0].to_string().starts_with("data: a data directory"));
        for inside in ["data", "data/nodes/n/edged"] {
            let refused = super::scan(&folder.path().join(inside), &ScanLimits::default());
            let refused = refused.expect_err(inside).to_string();
            assert!(refused.contains("it lies in the data directory"), "{refused}");
        }
    }

    #[test]
    fn links_are_followed_but_never_in_a_circle() {
        let folder = folder();
        write(&folder, "a/b.yaml", "a: 1");
        symlink("..", folder.path().join("a/loop")).expect("linked");
        symlink("a/b.yaml", folder.path().join("c.yaml")).expect("linked");
        symlink("nowhere", folder.path().join("d.yaml")).expect("linked");
        let scan = look(&folder);
        assert_eq!(paths(&scan), ["a/b.yaml", "c.yaml", "d.yaml"]);
        assert!(scan.files[Path::new("d.yaml")].is_err());
        assert_eq!(scan.skipped.len(), 1);
        assert!(scan.skipped[0].to_string().starts_with("a/loop: a link"), "{}", scan.skipped[0]);
    }

    #[test]
    fn a_folder_behind_a_link_that_leads_nowhere_or_in_a_circle_is_not_taken_for_empty() {
        let folder = folder();
        symlink("/nowhere/at/all", folder.path().join("away")).expect("linked");
        symlink("round", folder.path().join("round")).expect("linked");
        let scan = look(&folder);
        assert_eq!(scan.unreadable_folders, [PathBuf::from("away"), PathBuf::from("round")]);
        assert_eq!(scan.skipped.len(), 2, "{:?}", scan.skipped);
    }

    #[test]
    fn a_folder_on_another_device_is_a_mount() {
        let folder = folder();
        fs::create_dir(folder.path().join("a")).expect("created");
        assert!(look(&folder).mounts.is_empty());
        let device = |path: &str| fs::metadata(path).expect("there").dev();
        let (proc, here) = (device("/proc/self/fdinfo"), look(&folder).device);
        assert_ne!(proc, here, "procfs is a device of its own");
        symlink("/proc/self/fdinfo", folder.path().join("a/mount")).expect("linked");
        let mounts = look(&folder).mounts;
        assert_eq!(mounts.into_iter().collect::<Vec<_>>(), [(PathBuf::from("a/mount"), proc)]);
    }

    #[test]
    fn a_pipe_is_named_and_not_opened() {
        let folder = folder();
        let socket = folder.path().join("s.yaml");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        let status =
            std::process::Command::new("mkfifo").arg(folder.path().join("p.yaml")).status();
        assert!(status.expect("mkfifo runs").success());
        let scan = look(&folder);
        assert!(scan.files.is_empty());
        let skipped: Vec<String> = scan.skipped.iter().map(ToString::to_string).collect();
        assert_eq!(skipped.len(), 2, "{skipped:?}");
        assert!(skipped[0].starts_with("p.yaml: not a plain file"), "{skipped:?}");
    }

    #[test]
    fn every_bound_names_what_it_leaves_out() {
        let folder = folder();
        write(&folder, "a/b/c/deep.yaml", "a: 1");
        write(&folder, "large.yaml", "x".repeat(50));
        write(&folder, "other.yaml", "x".repeat(20));
        write(&folder, "p.yaml", [0xff, 0xfe]);
        write(&folder, "z.yaml", "a: 1");
        let limits =
            ScanLimits { depth_max: 2, files_max: 4, file_bytes_max: 40, total_bytes_max: 22 };
        let scan = scan(folder.path(), &limits).expect("readable");
        assert_eq!(scan.skipped.len(), 1);
        let reasons: Vec<String> =
            scan.files.values().map(|text| text.clone().err().unwrap_or_default()).collect();
        assert!(reasons[0].contains("larger than 40"), "{reasons:?}");
        assert_eq!(reasons[1], "");
        assert!(reasons[2].contains("UTF-8"), "{reasons:?}");
        assert!(reasons[3].contains("together exceed"), "{reasons:?}");
    }

    #[test]
    fn a_folder_that_cannot_be_entered_is_not_taken_for_empty() {
        let folder = folder();
        write(&folder, "locked/a.yaml", "a: 1");
        let locked = folder.path().join("locked");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).expect("locked");
        let scan = as_no_root(&folder, || look(&folder));
        assert_eq!(scan.unreadable_folders, [PathBuf::from("locked")]);
        assert!(scan.skipped[0].to_string().starts_with("locked: cannot be looked into"));
    }

    /// Runs `look` on a thread that has not the rights of root over files.
    fn as_no_root<T: Send>(folder: &tempfile::TempDir, look: impl FnOnce() -> T + Send) -> T {
        if !geteuid().is_root() {
            return look();
        }
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("open to all");
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                // Of this thread alone, which ends with it.
                setfsuid(NOBODY);
                look()
            });
            looking.join().expect("it looks")
        })
    }

    #[test]
    fn a_link_whose_target_goes_after_it_was_looked_at_has_not_left() {
        let folder = folder();
        write(&folder, "plain/a.yaml", "a: 1");
        symlink("nowhere", folder.path().join("link.yaml")).expect("linked");
        symlink("nowhere", folder.path().join("linked")).expect("linked");
        let limits = ScanLimits::default();
        let mut walk = Walk::new(folder.path(), &limits, 0);
        for path in ["link.yaml", "linked/b.yaml", "plain/gone.yaml"] {
            walk.read(path.into());
        }
        assert_eq!(paths(&walk.scan), ["link.yaml", "linked/b.yaml"]);
        assert!(walk.scan.files.values().all(Result::is_err), "{:?}", walk.scan.files);
        let gone = io::Error::from(ErrorKind::NotFound);
        for path in ["linked", "linked/inner", "plain/inner"] {
            walk.cannot_enter(path.into(), &gone);
        }
        let hidden = ["linked", "linked/inner"].map(PathBuf::from);
        assert_eq!(walk.scan.unreadable_folders, hidden);
        walk.visit("linked/c.yaml".into(), 0, 0);
        assert!(walk.scan.files[Path::new("linked/c.yaml")].is_err());
        walk.visit("plain/c.yaml".into(), 0, 0);
        assert_eq!(walk.scan.files.len(), 3, "it has left");
    }

    /// Runs a test on a thread with mounts of its own, which end with it; not without root.
    fn in_own_mounts(test: impl FnOnce(&tempfile::TempDir) + Send) {
        if !geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI must have the rights of root");
            eprintln!("NOT RUN: mounts need the rights of root");
            return;
        }
        std::thread::scope(|scope| {
            let testing = scope.spawn(|| {
                unshare(CloneFlags::CLONE_NEWNS).expect("mounts of its own");
                let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
                mount(NONE, "/", NONE, private, NONE).expect("mounts that are not shared");
                test(&folder());
            });
            testing.join().expect("it holds");
        });
    }

    fn bind(from: &Path, to: &Path) {
        mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE).expect("bound");
    }

    #[test]
    fn a_bind_mount_of_the_same_file_system_is_a_mount() {
        in_own_mounts(|folder| {
            write(folder, "source/a.yaml", "a: 1");
            write(folder, "manifests/b.yaml", "a: 1");
            let (root, source) = (folder.path().join("manifests"), folder.path().join("source"));
            let place = root.join("bound");
            fs::create_dir(&place).expect("created");
            let mounts = || {
                let scan = scan(&root, &ScanLimits::default()).expect("readable");
                scan.mounts.into_keys().collect::<Vec<_>>()
            };
            assert!(mounts().is_empty());
            bind(&source, &place);
            assert_eq!(fs::metadata(&place).expect("there").dev(), look(folder).device);
            assert_eq!(mounts(), [PathBuf::from("bound")]);
            umount2(&place, MntFlags::MNT_DETACH).expect("unmounted");
            bind(&source, &root);
            assert_eq!(mounts(), [PathBuf::new()], "the folder itself");
            umount2(&root, MntFlags::MNT_DETACH).expect("unmounted");
        });
    }
}
