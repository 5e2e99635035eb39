//! The tree on disk: every text file of ours, and the crates among them.

use std::fs;
use std::path::Path;

use super::Finding;
use super::manifest::Manifest;
use crate::step::Failure;

/// The entries allowed at the top; anything else belongs in one of the folders.
const TOP_LEVEL: [&str; 19] = [
    ".cargo",
    ".ci",
    ".git",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "clippy.toml",
    "deny.toml",
    "loadtest",
    "ops",
    "proto",
    "rustfmt.toml",
    "services",
    "storage",
];

/// Entries that development creates there and git ignores.
const IGNORED: [&str; 2] = ["target", "headwater-data"];

/// The endings of files that the rules read; other files are data.
const TEXT: [&str; 8] = ["md", "proto", "rs", "sh", "toml", "yaml", "yml", "run"];

/// One file.
pub(crate) struct File {
    /// From the top of the clone, with `/`.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

/// Every text file of the clone, in order of path.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    top: Vec<String>,
}

/// A package of the workspace.
pub(crate) struct Crate {
    /// From the top of the clone.
    pub(crate) folder: String,
    pub(crate) manifest: Manifest,
}

impl Tree {
    /// A tree of these files, for tests of rules.
    #[cfg(test)]
    pub(crate) fn of(files: Vec<File>) -> Self {
        Self { files, top: Vec::new() }
    }

    /// Reads the clone at `root`.
    ///
    /// # Errors
    /// When a folder or a text file cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self { files: Vec::new(), top: Vec::new() };
        for name in names(root)? {
            if IGNORED.contains(&name.as_str()) {
                continue;
            }
            if name != ".git" {
                tree.add(root, &name)?;
            }
            tree.top.push(name);
        }
        Ok(tree)
    }

    fn add(&mut self, root: &Path, path: &str) -> Result<(), Failure> {
        let on_disk = root.join(path);
        if on_disk.is_dir() {
            for name in names(&on_disk)? {
                self.add(root, &format!("{path}/{name}"))?;
            }
        } else if path.rsplit_once(['.', '/']).is_some_and(|(_, last)| TEXT.contains(&last)) {
            let text = fs::read_to_string(&on_disk)
                .map_err(|error| Failure::new(format!("cannot read {path}: {error}")))?;
            self.files.push(File { path: path.to_owned(), text });
        }
        Ok(())
    }

    /// The rule of the top level.
    pub(crate) fn top_level(&self) -> Vec<Finding> {
        let strangers = self.top.iter().filter(|name| !TOP_LEVEL.contains(&name.as_str()));
        strangers.map(|name| Finding::of(name, "nothing new at the top level")).collect()
    }

    /// The text of one file, empty where there is none.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str())
    }

    /// Every package below the top.
    ///
    /// # Errors
    /// A manifest is not TOML.
    pub(crate) fn crates(&self) -> Result<Vec<Crate>, Failure> {
        let manifests = self.files.iter().filter_map(|file| {
            let folder = file.path.strip_suffix("/Cargo.toml")?;
            let manifest = Manifest::parse(&file.text)
                .map_err(|error| Failure::new(format!("{}: {error}", file.path)));
            Some(manifest.map(|manifest| Crate { folder: folder.to_owned(), manifest }))
        });
        manifests.collect()
    }

    /// The Rust files of one package.
    pub(crate) fn rust_files_of(&self, one: &Crate) -> Vec<&File> {
        let inside = format!("{}/", one.folder);
        let rust = |file: &&File| file.path.starts_with(&inside) && file.path.ends_with(".rs");
        self.files.iter().filter(rust).collect()
    }
}

fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = folder
        .read_dir()
        .map_err(|error| Failure::new(format!("cannot list {}: {error}", folder.display())))?;
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_at_the_top_is_found() {
        let top = ["Cargo.toml", "notes.txt", "services"].map(str::to_owned).to_vec();
        let findings = Tree { files: Vec::new(), top }.top_level();
        assert_eq!(findings, [Finding::of("notes.txt", "nothing new at the top level")]);
    }

    #[test]
    fn crates_are_found_by_their_manifest() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let tree = Tree::of(vec![
            file("Cargo.toml", "[workspace]\n"),
            file("storage/a/Cargo.toml", "[package]\nname = \"headwater-a\"\n"),
            file("storage/a/src/lib.rs", ""),
            file("storage/ab/src/lib.rs", ""),
        ]);
        let crates = tree.crates().expect("every manifest is TOML");
        assert_eq!(crates.len(), 1);
        assert_eq!(crates[0].manifest.name, "headwater-a");
        let files: Vec<_> = tree.rust_files_of(&crates[0]).iter().map(|f| &f.path).collect();
        assert_eq!(files, ["storage/a/src/lib.rs"]);
    }
}
