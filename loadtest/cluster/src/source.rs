//! The source of the programs: a Go module of ours that depends on Kubernetes.

use std::fs;
use std::path::Path;

use headwater_daemon::DaemonError;

/// The module that provides the control plane.
const KUBERNETES: &str = "k8s.io/kubernetes ";

/// The packages that report the version; a release sets the same variables.
const VERSION_PACKAGES: [&str; 2] =
    ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];

/// The length of a key, in characters: enough for a folder name that is never taken twice.
const KEY_CHARS: usize = 16;

/// The files of a Go module.
#[derive(Debug)]
pub(crate) struct Source {
    files: Vec<(&'static str, &'static str)>,
}

impl Source {
    /// The control plane, and the suite of tests.
    pub(crate) fn control_plane() -> Self {
        Self::of([
            ("go.mod", include_str!("../control-plane/go.mod")),
            ("go.sum", include_str!("../control-plane/go.sum")),
            ("main.go", include_str!("../control-plane/main.go")),
            ("suite/main.go", include_str!("../control-plane/suite/main.go")),
        ])
    }

    /// Files with their names.
    pub(crate) fn of(files: impl Into<Vec<(&'static str, &'static str)>>) -> Self {
        Self { files: files.into() }
    }

    /// The version of Kubernetes that the module requires, such as `v1.36.3`; none if it requires
    /// none.
    pub(crate) fn version(&self) -> &'static str {
        let lines = self.files.iter().flat_map(|(_, text)| text.lines());
        let mut versions = lines.filter_map(|line| line.trim().strip_prefix(KUBERNETES));
        versions.next().unwrap_or_default()
    }

    /// The linker's flags: no symbol tables, and the version, which the modules do not know.
    pub(crate) fn linker_flags(&self) -> String {
        let mut flags = "-s -w".to_owned();
        let version = self.version();
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
        let variables = [
            ("gitVersion", version),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ];
        for package in VERSION_PACKAGES {
            for (name, value) in variables {
                flags += &format!(" -X {package}.{name}={value}");
            }
        }
        flags
    }

    /// The key of what this Go builds from the source, for a folder name.
    pub(crate) fn key(&self, go: &str) -> String {
        let mut hash = blake3::Hasher::new();
        let flags = self.linker_flags();
        let texts = self.files.iter().flat_map(|(name, text)| [*name, *text]);
        for text in texts.chain([flags.as_str(), go]) {
            // With its length, so that no text continues in the next one.
            hash.update(&text.len().to_le_bytes()).update(text.as_bytes());
        }
        hash.finalize().to_hex()[..KEY_CHARS].to_owned()
    }

    /// Writes the files into `folder`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), DaemonError> {
        for (name, text) in &self.files {
            let path = folder.join(name);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).map_err(DaemonError::file(parent))?;
            fs::write(&path, text).map_err(DaemonError::file(&path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_reports_the_version_that_the_module_requires() {
        let source = Source::control_plane();
        assert!(source.version().starts_with("v1.36."), "{}", source.version());
        let flags = source.linker_flags();
        for package in VERSION_PACKAGES {
            for variable in [&format!("gitVersion={}", source.version()), "gitMinor=36"] {
                assert!(flags.contains(&format!("-X {package}.{variable}")), "{flags}");
            }
        }
    }

    #[test]
    fn every_file_and_the_version_of_go_change_the_key() {
        let key = |module, main, go| Source::of([("go.mod", module), ("main.go", main)]).key(go);
        let keys = [
            key("module a", "package main", "go1.26.8"),
            key("module b", "package main", "go1.26.8"),
            key("module a", "package other", "go1.26.8"),
            key("module a", "package main", "go1.26.9"),
            key("module a", "package maingo1.26.8", ""),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert_eq!(one.len(), KEY_CHARS);
            assert!(!keys[..at].contains(one), "{at}: {keys:?}");
        }
    }
}
