//! What a run ran on, and what ran: said in its record, because no figure means anything without.

use std::fs;
use std::process::Command;

use headwater_e2e::running::headwater;
use serde::{Deserialize, Serialize};

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
    /// How the harness was built; the programs beside it are built likewise.
    pub build: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let (cpu, memory) = (text("/proc/cpuinfo"), text("/proc/meminfo"));
        let kib = after(&memory, "MemTotal").unwrap_or_default();
        let kib = kib.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        Self {
            cpu: after(&cpu, "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib.unwrap_or_default() << 10,
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl Versions {
    /// Those that lie beside this program.
    pub fn here() -> Self {
        let first_line = |command: &mut Command| {
            let output = command.output().ok().filter(|output| output.status.success())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(text.lines().next()?.trim().to_owned())
        };
        let describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"];
        Self {
            headwater: first_line(headwater().arg("--version")).unwrap_or_default(),
            commit: first_line(Command::new("git").args(describe)),
            build: if cfg!(debug_assertions) { "dev" } else { "release" }.to_owned(),
        }
    }
}
