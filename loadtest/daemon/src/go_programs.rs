//! Programs that Go builds from modules, once on a machine, into the user's cache.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache::CacheFolder;
use crate::error::DaemonError;
use crate::go_build::GoBuild;

/// The length of a key, in characters: enough for a folder name that is never taken twice.
const KEY_CHARS: usize = 16;

/// Programs, and the source from which Go builds them: a module of ours that requires others.
#[derive(Clone, Debug)]
pub struct GoPrograms {
    /// What they are, with the version: `Kubernetes v1.36.3`.
    pub name: String,
    /// The files of the module, each with its path.
    pub files: Vec<(&'static str, &'static str)>,
    /// Programs of modules that it requires, which are built too, beside those that its file names as tools.
    pub more: &'static [&'static str],
    /// Build tags, with commas between them.
    pub tags: &'static str,
    /// The flags of the linker.
    pub linker_flags: String,
    /// The packages that are compiled. The count is for display alone.
    pub packages: usize,
    /// What they take with an empty cache, for display: `12 min on two cores`.
    pub took: &'static str,
}

impl GoPrograms {
    /// Finds the programs in a folder of the cache, or builds them there: several processes may ask at the same
    /// time, and one builds. Returns the folder with each program under the name of its package. `finish` adds to
    /// what was built, before it appears there.
    ///
    /// # Errors
    /// The program `go` is missing, or the build fails.
    pub fn prepare(
        &self,
        cache: &CacheFolder,
        go: &OsStr,
        finish: impl FnOnce(&Path) -> Result<(), DaemonError>,
    ) -> Result<PathBuf, DaemonError> {
        let key = self.key(&version_of(go)?);
        let home = cache.path().join(&key);
        let partial = cache.path().join(format!("{key}.partial"));
        if home.is_dir() && !partial.exists() {
            return Ok(home);
        }
        let _lock = cache.lock(|| eprintln!("waiting: another process builds {}", self.name))?;
        if !home.is_dir() {
            self.build(go, &partial, &home, finish)?;
        }
        // Also those of a process that was killed before it removed them.
        fs::remove_dir_all(&partial).or_else(absent).map_err(DaemonError::file(&partial))?;
        Ok(home)
    }

    /// Builds them in `partial`; they appear at `home` when they are whole.
    fn build(
        &self,
        go: &OsStr,
        partial: &Path,
        home: &Path,
        finish: impl FnOnce(&Path) -> Result<(), DaemonError>,
    ) -> Result<(), DaemonError> {
        eprintln!("building {} into {}, once on this machine", self.name, home.display());
        let output = partial.join("output");
        fs::remove_dir_all(&output).or_else(absent).map_err(DaemonError::file(&output))?;
        fs::create_dir_all(&output).map_err(DaemonError::file(&output))?;
        GoBuild { go, programs: self, folder: partial }.run(&output)?;
        finish(&output)?;
        fs::rename(&output, home).map_err(DaemonError::file(home))
    }

    /// The key of what this Go builds from the source, for a folder name.
    fn key(&self, go: &str) -> String {
        let mut hash = blake3::Hasher::new();
        let texts = self.files.iter().flat_map(|(name, text)| [*name, *text]);
        let more = self.more.iter().copied();
        let tags = Some(self.tags).filter(|tags| !tags.is_empty());
        for text in texts.chain([self.linker_flags.as_str(), go]).chain(more).chain(tags) {
            // With its length, so that no text continues in the next one.
            hash.update(&text.len().to_le_bytes()).update(text.as_bytes());
        }
        hash.finalize().to_hex()[..KEY_CHARS].to_owned()
    }

    /// Writes the files into `folder`.
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

/// The version of `module` that the file `go.mod` requires, such as `v1.36.3`; empty if it requires none.
pub fn required_version<'a>(go_mod: &'a str, module: &str) -> &'a str {
    let lines = go_mod.lines().map(str::split_whitespace);
    let mut versions =
        lines.filter_map(|mut words| (words.next()? == module).then(|| words.next())?);
    versions.next().unwrap_or_default()
}

/// The version that `go` reports.
fn version_of(go: &OsStr) -> Result<String, DaemonError> {
    // Not where a `go.mod` could choose another one.
    let output = Command::new(go).arg("version").current_dir("/").stdin(Stdio::null()).output();
    let program = go.display().to_string();
    let output = output.map_err(|source| DaemonError::Program { program, source })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
