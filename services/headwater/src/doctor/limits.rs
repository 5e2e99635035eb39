//! Checks of the kernel and of the limits of a process.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};

use super::Check;

/// The oldest kernel on which Headwater is known to run.
const KERNEL_MIN: (u32, u32) = (4, 18);

/// Open files that a few nodes, their databases and the log need.
const FILES_FAIL: u64 = 512;
const FILES_WARN: u64 = 4096;

/// Processes that a node's pods need: a shim and a process for each container.
const PROCESSES_WARN: u64 = 1024;

/// Watches of folders: one for each folder of manifests, and those of other programs of the user.
const WATCHES_WARN: u64 = 8192;
const INSTANCES_WARN: u64 = 64;

/// Checks the kernel's version.
pub(super) fn kernel() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    judge_kernel(release.trim())
}

/// Checks whether pods of this user's processes are kept away from the edge.
pub(super) fn pods() -> Check {
    let name = "pods of `process`";
    match headwater_edged::shared_rights(false) {
        None => Check::ok(name, "each runs as the user that its spec names"),
        Some(found) => {
            let advice = "run `headwater edged` as root from its own unit, and the edge as another \
                          user; or run only manifests whose commands you would type";
            Check::warn(name, found, advice)
        }
    }
}

/// Checks the limits of this user's processes.
pub(super) fn look() -> Vec<Check> {
    let soft = |of| getrlimit(of).map(|(soft, _)| soft).ok();
    let number = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
    let mut checks = Vec::new();
    checks.extend(soft(Resource::RLIMIT_NOFILE).map(judge_files));
    checks.extend(soft(Resource::RLIMIT_NPROC).map(|found| {
        judge("processes", found, PROCESSES_WARN, "raise it: `ulimit -u`, or TasksMax= of the unit")
    }));
    checks.extend(number("/proc/sys/fs/inotify/max_user_watches").map(|found| {
        let advice = "raise it: `sysctl fs.inotify.max_user_watches=65536`";
        judge("inotify watches", found, WATCHES_WARN, advice)
    }));
    checks.extend(number("/proc/sys/fs/inotify/max_user_instances").map(|found| {
        let advice = "raise it: `sysctl fs.inotify.max_user_instances=512`";
        judge("inotify instances", found, INSTANCES_WARN, advice)
    }));
    checks
}

fn judge_kernel(release: &str) -> Check {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    match version {
        Some(version) if version >= KERNEL_MIN => Check::ok("kernel", release),
        Some(_) => {
            let (major, minor) = KERNEL_MIN;
            let advice = format!("use kernel {major}.{minor} or newer");
            Check::warn("kernel", release, advice)
        }
        None => Check::warn("kernel", "unknown", "run headwater on Linux"),
    }
}

fn judge_files(found: u64) -> Check {
    let advice = "raise it: `ulimit -n`, or LimitNOFILE= of the unit";
    if found < FILES_FAIL {
        Check::fail("open files", limit_text(found), advice)
    } else {
        judge("open files", found, FILES_WARN, advice)
    }
}

fn judge(name: &str, found: u64, warn: u64, advice: &str) -> Check {
    if found < warn {
        Check::warn(name, limit_text(found), advice)
    } else {
        Check::ok(name, limit_text(found))
    }
}

fn limit_text(limit: u64) -> String {
    if limit == nix::sys::resource::RLIM_INFINITY {
        "no limit".to_owned()
    } else {
        format!("at most {limit}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn low_limits_and_old_kernels_are_named() {
        assert_eq!(judge_kernel("6.8.0-41-generic").result, Verdict::Ok);
        assert_eq!(judge_kernel("4.9.1").result, Verdict::Warn);
        assert_eq!(judge_kernel("").result, Verdict::Warn);
        assert_eq!(judge_files(256).result, Verdict::Fail);
        assert_eq!(judge_files(1024).result, Verdict::Warn);
        assert_eq!(judge_files(1 << 20).result, Verdict::Ok);
        assert_eq!(judge_files(u64::MAX).found, "no limit");
        assert!(look().len() >= 2, "the system reports limits");
    }
}
