//! The machine and the versions of a run: part of its record, because no figure means anything without.

use std::fs;
use std::path::Path;
use std::process::Command;

use headwater_e2e::running::headwater;
use procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

/// How this program was built; those beside it are built likewise.
pub const BUILD: &str = if cfg!(debug_assertions) { "dev" } else { "release" };

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model of its processor.
    pub cpu: String,
    /// Its cores.
    pub cores: usize,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Its kernel.
    pub kernel: String,
}

/// The programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// As `headwater --version` says it.
    pub headwater: String,
    /// The commit of the clone in which the harness was started, with `-dirty` where files differ.
    pub commit: Option<String>,
    /// [`BUILD`].
    pub build: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let memory = Meminfo::current().map_or(0, |memory| memory.mem_total);
        let cpu = CpuInfo::current().ok();
        let cpu = cpu.and_then(|cpu| cpu.model_name(0).map(str::to_owned));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: cpu.unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory,
            kernel: kernel.trim().to_owned(),
        }
    }
}

impl Versions {
    /// Those that lie beside this program.
    pub fn here() -> Self {
        let version = printed(headwater().arg("--version")).unwrap_or_default();
        Self {
            headwater: version.lines().next().unwrap_or_default().to_owned(),
            commit: commit(Path::new(".")),
            build: BUILD.to_owned(),
        }
    }
}

/// The commit of the clone that `root` lies in, with `-dirty` where files differ from it.
pub fn commit(root: &Path) -> Option<String> {
    let git = |args: &[&str]| printed(Command::new("git").arg("-C").arg(root).args(args));
    let commit = git(&["rev-parse", "HEAD"])?;
    // The page that a benchmark writes changes nothing that is measured.
    let besides = ":(top,exclude)loadtest/RESULTS.md";
    let changes = git(&["status", "--porcelain", "--", ":/", besides]);
    let is_dirty = changes.is_none_or(|changes| !changes.is_empty());
    Some(if is_dirty { commit + "-dirty" } else { commit })
}

/// What a command prints, if it succeeds.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
