//! Images made by hand: an OCI layout in one tar, with one layer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::{DaemonError, find_program, run, search_path};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::error::LabError;

/// The image of the process that holds a pod's namespaces.
pub const PAUSE_IMAGE: &str = "localhost/headwater/pause:1";

/// An image with a shell and the usual small programs.
pub const BUSYBOX_IMAGE: &str = "localhost/headwater/busybox:1";

const PAUSE_SOURCE: &str = include_str!("../image/pause.c");

/// The users of the image with a shell.
const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// An image of one layer.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    entries: Vec<Entry>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    user: String,
}

/// The parts of an image, each of which has its [`blob_digest`] as its name.
#[derive(Clone, Debug)]
pub struct ImageBlobs {
    /// The files.
    pub layer: Vec<u8>,
    /// The configuration, which names the files.
    pub config: Vec<u8>,
    /// The manifest, which names both.
    pub manifest: Vec<u8>,
}

/// A file of an image.
#[derive(Clone, Debug)]
struct Entry {
    path: String,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    File { mode: u32, bytes: Vec<u8> },
    Folder { mode: u32 },
    Link { target: String },
}

impl Image {
    /// An image without files.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            entries: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            user: String::new(),
        }
    }

    /// [`PAUSE_IMAGE`].
    ///
    /// # Errors
    /// The compiler fails.
    pub fn pause() -> Result<Self, LabError> {
        let program = compile(PAUSE_SOURCE)?;
        Ok(Self::new(PAUSE_IMAGE).file("pause", 0o755, program).entrypoint(["/pause"]))
    }

    /// [`BUSYBOX_IMAGE`].
    ///
    /// # Errors
    /// Busybox is not installed.
    pub fn busybox() -> Result<Self, LabError> {
        let missing = LabError::MissingProgram { program: "busybox", package: "busybox-static" };
        let path = find_program("busybox", &search_path([])).ok_or(missing)?;
        let program = fs::read(&path).map_err(DaemonError::file(&path))?;
        let list = Command::new(&path).arg("--list").output().map_err(DaemonError::file(&path))?;
        let mut image = Self::new(BUSYBOX_IMAGE);
        for folder in ["bin", "etc", "proc", "sys", "dev"] {
            image = image.folder(folder, 0o755);
        }
        image = image.folder("tmp", 0o1777).file("bin/busybox", 0o755, program);
        image = image.file("etc/passwd", 0o644, PASSWD).file("etc/group", 0o644, GROUP);
        for name in String::from_utf8_lossy(&list.stdout).lines().filter(|name| *name != "busybox")
        {
            image = image.link(&format!("bin/{name}"), "/bin/busybox");
        }
        Ok(image)
    }

    /// The same content under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn file(self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(path, Content::File { mode, bytes: bytes.into() })
    }

    /// Adds a folder.
    #[must_use]
    pub fn folder(self, path: &str, mode: u32) -> Self {
        self.with(path, Content::Folder { mode })
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn link(self, path: &str, target: &str) -> Self {
        self.with(path, Content::Link { target: target.to_owned() })
    }

    /// The command that a container runs if its pod names none.
    #[must_use]
    pub fn entrypoint<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.entrypoint = words.map(str::to_owned).to_vec();
        self
    }

    /// The arguments of the command, if a container's pod names neither arguments nor a command.
    #[must_use]
    pub fn command<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.command = words.map(str::to_owned).to_vec();
        self
    }

    /// The user of a container whose pod names none.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn with(mut self, path: &str, content: Content) -> Self {
        self.entries.push(Entry { path: path.to_owned(), content });
        self
    }

    /// Writes the image as a tar that `ctr images import` and `skopeo` read.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), LabError> {
        let archive = self.archive().map_err(DaemonError::file(file))?;
        Ok(fs::write(file, archive).map_err(DaemonError::file(file))?)
    }

    /// Writes the image into a folder, which is made if it is not there, and returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_into(&self, folder: &Path) -> Result<PathBuf, LabError> {
        fs::create_dir_all(folder).map_err(DaemonError::file(folder))?;
        let file = folder.join(self.name.replace(['/', ':'], "-")).with_extension("tar");
        self.write(&file)?;
        Ok(file)
    }

    /// What a registry serves of the image.
    ///
    /// # Errors
    /// A file has a path that no tar can have.
    pub fn blobs(&self) -> std::io::Result<ImageBlobs> {
        let layer = self.layer()?;
        let digest = blob_digest(&layer);
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint, "Cmd": self.command,
                "User": self.user, "Env": ["PATH=/bin"],
            },
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        Ok(ImageBlobs { layer, config, manifest })
    }

    fn archive(&self) -> std::io::Result<Vec<u8>> {
        let ImageBlobs { layer, config, manifest } = self.blobs()?;
        let mut named = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        named["annotations"] = json!({"io.containerd.image.name": self.name});
        let index = json!({"schemaVersion": 2, "manifests": [named]}).to_string();
        let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string();
        let mut archive = Builder::new(Vec::new());
        append(&mut archive, "oci-layout", 0o644, layout.as_bytes())?;
        append(&mut archive, "index.json", 0o644, index.as_bytes())?;
        for blob in [&layer, &config, &manifest] {
            let path = format!("blobs/{}", blob_digest(blob).replace(':', "/"));
            append(&mut archive, &path, 0o644, blob)?;
        }
        archive.into_inner()
    }

    fn layer(&self) -> std::io::Result<Vec<u8>> {
        let mut layer = Builder::new(Vec::new());
        for Entry { path, content } in &self.entries {
            match content {
                Content::File { mode, bytes } => append(&mut layer, path, *mode, bytes)?,
                Content::Folder { mode } => {
                    let mut header = header(EntryType::Directory, *mode, 0);
                    layer.append_data(&mut header, format!("{path}/"), std::io::empty())?;
                }
                Content::Link { target } => {
                    layer.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
                }
            }
        }
        layer.into_inner()
    }
}

fn append(tar: &mut Builder<Vec<u8>>, path: &str, mode: u32, bytes: &[u8]) -> std::io::Result<()> {
    // A length of memory fits.
    let mut header = header(EntryType::Regular, mode, bytes.len() as u64);
    tar.append_data(&mut header, path, bytes)
}

/// The header of an entry that belongs to root and has no time, so that equal images are equal
/// bytes.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": blob_digest(blob), "size": blob.len()})
}

/// The name of a blob, as `sha256:` and 64 digits.
pub fn blob_digest(blob: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, blob);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

/// The name of this machine's architecture in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A small program without libraries.
fn compile(source: &str) -> Result<Vec<u8>, LabError> {
    let scratch = tempfile::tempdir().map_err(DaemonError::file(std::env::temp_dir()))?;
    let (text, program) = (scratch.path().join("program.c"), scratch.path().join("program"));
    fs::write(&text, source).map_err(DaemonError::file(&text))?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-static", "-Os", "-s", "-o"]).arg(&program).arg(&text);
    run("compiling a program for an image", &mut compiler)?;
    Ok(fs::read(&program).map_err(DaemonError::file(&program))?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn entries(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().expect("a tar");
        let read = entries.map(|entry| {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            (path, bytes)
        });
        read.collect()
    }

    #[test]
    fn every_digest_of_an_image_names_a_blob_of_it() {
        let image = Image::new("localhost/x:1").folder("etc", 0o755).file("etc/a", 0o600, "text");
        let image = image.link("b", "/etc/a").entrypoint(["/b"]).user("7");
        let files = entries(&image.archive().expect("memory"));
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().expect("a digest");
            let blob = &files[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(descriptor["size"], blob.len());
            assert_eq!(blob_digest(blob), digest);
            blob
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        let index = json(&files["index.json"]);
        let manifest = json(blob(&index["manifests"][0]));
        let config = json(blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(config["config"]["User"], "7");
        let layer = entries(layer);
        assert_eq!(layer.keys().collect::<Vec<_>>(), ["b", "etc/", "etc/a"]);
        assert_eq!(layer["etc/a"], b"text");
    }
}
