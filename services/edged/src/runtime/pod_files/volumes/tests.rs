//! Files replaced together, and links that stay inside.

use std::collections::BTreeSet;

use super::*;
use crate::container::claim::{Claim, ClaimName, ReclaimPolicy};

fn files(all: &[(&str, &str)]) -> BTreeMap<String, VolumeFile> {
    let file =
        |text: &str| VolumeFile { bytes: Some(text.as_bytes().to_vec()), mode: 0o640, owner: None };
    all.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect()
}

fn visible(dir: &Path) -> BTreeSet<String> {
    let names = entries(dir).expect("listed");
    let names = names.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with("..")).collect()
}

#[test]
fn a_volume_shows_exactly_its_files_after_every_replacement() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("volume");
    for all in [
        &[("a", "1"), ("deep/b", "2")][..],
        &[("a", "1"), ("deep/b", "3"), ("deep/c", "4")],
        &[("c", "5")],
        &[],
        &[("a", "6")],
    ] {
        replace_files(&dir, &files(all), Audience::Users).expect("replaced");
        let first = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
        let wanted: BTreeSet<String> = all.iter().map(|(name, _)| first(name)).collect();
        assert_eq!(visible(&dir), wanted);
        for (name, text) in all {
            let path = dir.join(name);
            assert_eq!(fs::read_to_string(&path).expect("a file"), *text);
            assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o640);
        }
        let hidden = entries(&dir).expect("listed").len() - wanted.len();
        assert_eq!(hidden, 2, "the link and what it points at, and nothing older");
    }
}

#[test]
fn a_file_without_content_stays_as_it_is_and_moves_on_with_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let replace = |all: &BTreeMap<String, VolumeFile>| {
        write_files(dir.path(), dir.path(), all, Audience::Users).expect("replaced");
        visible(dir.path()).into_iter().map(|name| {
            let text = fs::read_to_string(dir.path().join(&name)).expect("a file");
            (name, text)
        })
    };
    let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    };
    let kept = || VolumeFile { bytes: None, mode: 0o600, owner: None };
    let mut all = files(&[("a", "1")]);
    all.insert("token".to_owned(), kept());
    assert!(replace(&all).eq(pairs(&[("a", "1")])), "there is none to keep");
    assert!(
        replace(&files(&[("a", "1"), ("token", "t")])).eq(pairs(&[("a", "1"), ("token", "t")]))
    );
    let mut all = files(&[("a", "2")]);
    all.insert("token".to_owned(), kept());
    assert!(replace(&all).eq(pairs(&[("a", "2"), ("token", "t")])));
    let token = fs::metadata(dir.path().join("token")).expect("a file");
    assert_eq!(token.permissions().mode() & 0o777, 0o600);
    let moved = dir.path().join("moved");
    write_files(&moved, dir.path(), &all, Audience::Users).expect("moved");
    assert_eq!(fs::read_to_string(moved.join("token")).expect("a file"), "t");
}

#[test]
fn a_file_is_given_to_its_owner_where_containers_are_other_users() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = nix::unistd::geteuid().as_raw();
    let other = if own == 0 { 4711 } else { own };
    let mut all = files(&[("a", "1")]);
    let bytes = Some(b"t".to_vec());
    all.insert("token".to_owned(), VolumeFile { bytes, mode: 0o600, owner: Some(other) });
    for (audience, owner) in [(Audience::Owner, own), (Audience::Users, other)] {
        write_files(dir.path(), dir.path(), &all, audience).expect("replaced");
        let token = fs::metadata(dir.path().join("token")).expect("a file");
        assert_eq!((token.uid(), token.mode() & 0o777), (owner, 0o600), "{audience:?}");
        let before = fs::read_link(dir.path().join(DATA)).expect("a link");
        write_files(dir.path(), dir.path(), &all, audience).expect("replaced");
        assert_eq!(fs::read_link(dir.path().join(DATA)).expect("a link"), before, "unchanged");
    }
}

#[test]
fn unchanged_files_are_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let all = files(&[("a", "1")]);
    replace_files(dir.path(), &all, Audience::Users).expect("replaced");
    let before = fs::read_link(dir.path().join(DATA)).expect("a link");
    replace_files(dir.path(), &all, Audience::Users).expect("replaced");
    assert_eq!(fs::read_link(dir.path().join(DATA)).expect("a link"), before);
}

#[test]
fn an_open_file_keeps_its_content_while_the_volume_moves_on() {
    use std::io::Read as _;
    let dir = tempfile::tempdir().expect("a directory");
    replace_files(dir.path(), &files(&[("a", "old")]), Audience::Users).expect("replaced");
    let mut open = fs::File::open(dir.path().join("a")).expect("opened");
    replace_files(dir.path(), &files(&[("a", "new")]), Audience::Users).expect("replaced");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("read");
    assert_eq!(text, "old");
    assert_eq!(fs::read_to_string(dir.path().join("a")).expect("a file"), "new");
}

#[test]
fn a_host_path_must_be_of_its_type() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "x").expect("written");
    let (absent, made) = (dir.path().join("deep/absent"), dir.path().join("made"));
    for (path, kind, is_fine) in [
        (dir.path(), "Directory", true),
        (&file, "Directory", false),
        (&file, "File", true),
        (&absent, "File", false),
        (&absent, "Directory", false),
        (&absent, "", true),
        (&absent, "Directory", true),
        (&made, "DirectoryOrCreate", true),
        (&file, "", true),
        (Path::new("relative"), "", false),
    ] {
        assert_eq!(host_path("v", path, kind).is_ok(), is_fine, "{} {kind}", path.display());
    }
    for path in [absent, made] {
        let mode = fs::metadata(path).expect("it was created").mode();
        assert_eq!(mode & 0o7777, 0o755);
    }
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "x");
}

/// A pod worker's directory, in which the volumes of a pod are written.
struct Node {
    dir: tempfile::TempDir,
    paths: Paths,
    claims: ClaimDirectories,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = Paths::new(dir.path().join("edged"));
        Self { dir, claims: ClaimDirectories::new(paths.clone()), paths }
    }

    fn write(&self, pod: &PodUid, contents: &[(&str, VolumeContent)]) -> Result<(), RuntimeError> {
        let volumes: Vec<Volume> = contents
            .iter()
            .map(|(name, content)| Volume {
                name: (*name).to_owned(),
                content: content.clone(),
                is_secret: false,
            })
            .collect();
        let memory = SecretMemory::open(self.paths.dir());
        let (paths, claims) = (&self.paths, &self.claims);
        write(paths, claims, &memory, pod, &volumes, Audience::Users, None)
    }
}

/// A file that only its owner reads, in a folder below `root`.
fn private_file(root: &Path) -> std::path::PathBuf {
    let file = root.join("deep/file");
    create(&root.join("deep"), 0o755).expect("folders");
    fs::write(&file, "").expect("written");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("its own");
    file
}

#[test]
fn files_of_local_volumes_and_claims_are_the_pods_groups_once_a_pod_and_those_of_a_host_path_stay()
{
    let node = Node::new();
    let (local, host) = (node.dir.path().join("local"), node.dir.path().join("host"));
    let data = node.paths.claim_data("c1");
    let files: Vec<_> = [&local, &data, &host].map(|root| private_file(root)).into();
    // The own group: another one needs rights that a test may lack.
    let id = nix::unistd::getegid().as_raw();
    let group = Some(VolumeGroup { id, gives_files: true, only_on_mismatch: false });
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let name = ClaimName { namespace: "shop".to_owned(), name: "data".to_owned() };
    let (uid, policy) = ("c1".to_owned(), ReclaimPolicy::Retain);
    let claim = Claim { name, uid, policy, is_deleting: false };
    let volumes = [
        ("local", VolumeContent::Local { path: text(&local), is_block: false, group }),
        ("claim", VolumeContent::Claim { claim, group }),
        ("host", VolumeContent::Host { path: text(&host), kind: String::new() }),
    ];
    let modes = || -> Vec<u32> {
        let found = files.iter().map(|file| fs::metadata(file).expect("a file").mode());
        found.map(|mode| mode & 0o7777).collect()
    };
    let pod: PodUid = "u1".to_owned().try_into().expect("a UID");
    node.write(&pod, &volumes).expect("written");
    assert_eq!(modes(), [0o660, 0o660, 0o600]);
    let root = fs::metadata(&local).expect("a folder");
    assert_eq!((root.gid(), root.mode() & 0o2770), (id, 0o2770));
    let names = visible(&node.paths.volumes(&pod));
    assert_eq!(names, ["claim", "host", "local"].map(str::to_owned).into());
    for root in [&local, &data, &host] {
        private_file(root);
    }
    node.write(&pod, &volumes).expect("written again");
    assert_eq!(modes(), [0o600; 3], "a pod that runs has them");
    let pod = "u2".to_owned().try_into().expect("a UID");
    node.write(&pod, &volumes).expect("written for the next pod");
    assert_eq!(modes(), [0o660, 0o660, 0o600]);
}

#[test]
fn a_local_volume_that_is_not_there_is_refused_and_not_made() {
    let node = Node::new();
    let absent = node.dir.path().join("absent");
    let path = absent.to_string_lossy().into_owned();
    let local = VolumeContent::Local { path: path.clone(), is_block: false, group: None };
    let pod = "u1".to_owned().try_into().expect("a UID");
    let refused = node.write(&pod, &[("data", local)]).expect_err("it is not there").to_string();
    assert!(refused.contains(&format!("path {path:?} does not exist")), "{refused}");
    assert!(!absent.exists());
}

#[test]
fn a_pipe_of_the_host_is_no_file_and_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    assert!(host_path("v", &pipe, "FileOrCreate").is_err());
}

#[test]
fn a_mount_below_another_replaces_nothing_that_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let (pod, host) = (dir.path().join("pod"), dir.path().join("host"));
    let volumes = pod.join("volumes");
    for folder in [&volumes.join("inner"), &host] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(host.join("passwd"), "precious").expect("written");
    symlink(&host, volumes.join("outer")).expect("a volume of the host");
    let mount = |volume: &str, path: &str| Mount {
        volume: volume.to_owned(),
        path: path.into(),
        is_absolute: true,
        ..Mount::default()
    };
    let laid = |path| {
        let mounts = [mount("outer", "etc"), mount("inner", path)];
        root(&Layout {
            root: pod.join("rootfs"),
            volumes: volumes.clone(),
            mounts: mounts.into(),
            working_dir: None,
        })
    };
    let error = laid("etc/passwd").expect_err("something is there").to_string();
    assert!(error.contains("inner") && error.contains("/etc/passwd"), "{error}");
    assert_eq!(fs::read_to_string(host.join("passwd")).expect("it is there"), "precious");
    laid("etc/absent").expect("nothing is there");
    laid("etc/absent").expect("and again");
}
