//! The machine that was measured on, and the build.

use std::path::Path;
use std::process::Command;

use headwater_loadtest::machine;
use serde::{Deserialize, Serialize};

/// The machine and the build, which every row names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    /// Of the sources that were built.
    pub(crate) commit: String,
    /// By which profile.
    pub(crate) build: String,
}

impl Machine {
    /// This machine, and the sources below `root`.
    pub(crate) fn here(root: &Path) -> Self {
        let machine::Machine { cpu, cores, memory_bytes, kernel } = machine::Machine::here();
        Self {
            processor: if cpu.is_empty() { "unknown".to_owned() } else { cpu },
            cores,
            memory_gib: memory_bytes >> 30,
            kernel,
            commit: commit(root),
            build: machine::BUILD.to_owned(),
        }
    }
}

fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    // What is written here itself changes nothing that is measured.
    let dirty = git(&["status", "--porcelain", "--", ".", ":!loadtest/RESULTS.md", RESULTS]);
    if dirty.is_some_and(|changes| !changes.is_empty()) { commit + " and changes" } else { commit }
}

const RESULTS: &str = ":!loadtest/results.json";
