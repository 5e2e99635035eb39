//! The machine that was measured on, and how busy it is.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is said of the machine and the build beside every row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    /// Of the sources that were built.
    pub(crate) commit: String,
    /// Level of optimisation of our own crates.
    pub(crate) optimised: String,
}

impl Machine {
    /// This machine, and the sources below `root`.
    pub(crate) fn here(root: &Path) -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processors.lines().find_map(|line| line.strip_prefix("model name"));
        let processor = processor.map(|name| name.trim_start_matches([' ', '\t', ':']).to_owned());
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = kib.and_then(|kib| kib.trim().split(' ').next()?.parse::<u64>().ok());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: processor.unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib.unwrap_or_default() >> 20,
            kernel: kernel.trim().to_owned(),
            commit: commit(root),
            optimised: optimised().to_owned(),
        }
    }
}

/// The load of the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

/// What cargo was told about our own crates; the dependencies have a level of their own.
fn optimised() -> &'static str {
    option_env!("CARGO_PROFILE_DEV_OPT_LEVEL").unwrap_or("1")
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

/// What each core has done since the machine started, in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(Vec<Core>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Core {
    busy: u64,
    all: u64,
}

impl Cores {
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let one = |line: &str| {
            let rest = line.strip_prefix("cpu")?;
            rest.starts_with(|it: char| it.is_ascii_digit()).then_some(())?;
            let ticks: Vec<u64> =
                rest.split_whitespace().skip(1).map_while(|tick| tick.parse().ok()).collect();
            // user nice system idle iowait irq softirq steal; guests are counted as users.
            let all = ticks.iter().take(8).sum();
            let idle: u64 = ticks.iter().skip(3).take(2).sum();
            Some(Core { busy: all - idle, all })
        };
        Self(text.lines().filter_map(one).collect())
    }

    /// The part of the time since `before` in which the busiest core did something.
    pub(crate) fn busiest_since(&self, before: &Self) -> f64 {
        let shares = self.0.iter().zip(&before.0).map(|(now, before)| {
            let all = now.all.saturating_sub(before.all);
            now.busy.saturating_sub(before.busy) as f64 / all.max(1) as f64
        });
        shares.fold(0.0, f64::max)
    }
}

/// Time on a processor of a process and all its threads, as the kernel accounts for it.
pub(crate) fn processor_time(process: u32) -> Option<Duration> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let nanos = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(nanos.sum()))
}

/// Memory of a process in bytes: its own, and its share of what it has in common with others.
pub(crate) fn memory_bytes(process: u32) -> Option<u64> {
    rolled_up(process, "Pss:")
}

/// The part of it that is no file: without the program's own text, which the system may drop.
pub(crate) fn anonymous_bytes(process: u32) -> Option<u64> {
    rolled_up(process, "Pss_Anon:")
}

fn rolled_up(process: u32, field: &str) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_core_counts() {
        let before = "cpu  20 0 0 40 0 0 0 0\ncpu0 10 0 0 20 0 0 0 0\ncpu1 10 0 0 20 0 0 0 0\n";
        let after = "cpu  39 0 0 61 0 0 0 0\ncpu0 19 0 0 20 1 0 0 0\ncpu1 10 0 0 30 0 0 0 0\n";
        let busiest = Cores::parse(after).busiest_since(&Cores::parse(before));
        assert!((busiest - 0.9).abs() < 1e-9, "{busiest}");
    }

    #[test]
    fn this_process_can_be_looked_at() {
        assert!(memory_bytes(std::process::id()).expect("Linux") > 0);
        assert!(processor_time(std::process::id()).expect("Linux") > Duration::ZERO);
        assert!(load() >= 0.0);
    }
}
