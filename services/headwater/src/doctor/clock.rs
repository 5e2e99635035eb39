//! Checks of the machine's clocks. Nothing is ordered by them, but people read their times.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Check;

/// No build of this program is older, in seconds since the Unix epoch: 2025-01-01.
const OLDEST: u64 = 1_735_689_600;

/// No process of this build runs later, in seconds since the Unix epoch: 2100-01-01.
const NEWEST: u64 = 4_102_444_800;

/// The tolerated difference between the wall clock and the monotonic clock, in seconds.
const DRIFT_MAX: f64 = 5.0;

/// Clock sources that cost a trap at each read.
const SLOW_SOURCES: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

/// The file in which the kernel names its clock source.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Files and sockets of programs that synchronize the clock.
const KEEPERS: [&str; 5] = [
    "/run/systemd/timesync/synchronized",
    "/run/chrony/chronyd.pid",
    "/run/chronyd.pid",
    "/run/ntpd.pid",
    "/run/ntpd-rs/observe",
];

/// Checks the clocks.
pub(super) fn look() -> Vec<Check> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut checks = vec![judge_year(now)];
    checks.extend(judge_boot(now, &read("/proc/uptime"), &read("/proc/stat")));
    checks.extend(judge_source(read(SOURCE).trim()));
    checks.push(judge_keeper(KEEPERS.into_iter().find(|path| Path::new(path).exists())));
    checks
}

fn judge_year(now: f64) -> Check {
    let stamp = jiff::Timestamp::from_second(now as i64);
    let found = stamp.map_or_else(|error| error.to_string(), |stamp| stamp.to_string());
    if (OLDEST as f64..NEWEST as f64).contains(&now) {
        Check::ok("clock", found)
    } else {
        Check::fail("clock", found, "set the clock: certificates and `--at` depend on it")
    }
}

/// Checks whether the wall clock and the monotonic clock agree on the start of the machine.
fn judge_boot(now: f64, uptime: &str, stat: &str) -> Option<Check> {
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    let off = now - uptime - boot.trim().parse::<f64>().ok()?;
    let name = "clock steps";
    Some(if off.abs() <= DRIFT_MAX {
        Check::ok(name, "wall and monotonic clock agree")
    } else {
        let found = format!("the wall clock is {off:.0} s off the monotonic one");
        Check::warn(name, found, "the clock was set while the machine ran: printed times may jump")
    })
}

fn judge_source(source: &str) -> Option<Check> {
    let name = "clock source";
    if source.is_empty() {
        return None;
    }
    Some(if SLOW_SOURCES.contains(&source) {
        Check::warn(name, source, "each read of the clock is slow: choose tsc or kvm-clock")
    } else {
        Check::ok(name, source)
    })
}

fn judge_keeper(found: Option<&str>) -> Check {
    let name = "clock sync";
    match found {
        Some(path) => Check::ok(name, format!("kept ({path})")),
        None => Check::warn(
            name,
            "no program was found that synchronizes the clock",
            "run chrony, ntpd or systemd-timesyncd, unless the host of this machine does",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_clock_that_was_never_set_fails() {
        assert_eq!(judge_year(0.0).result, Verdict::Fail);
        assert_eq!(judge_year(OLDEST as f64).result, Verdict::Ok);
        assert_eq!(judge_year(1e11).result, Verdict::Fail);
    }

    #[test]
    fn clocks_that_disagree_are_named() {
        let boot = |now| judge_boot(now, "100.5 3.2\n", "cpu 1\nbtime 1000\n").map(|c| c.result);
        assert_eq!(boot(1101.0), Some(Verdict::Ok));
        assert_eq!(boot(9101.0), Some(Verdict::Warn));
        assert_eq!(judge_boot(1.0, "", ""), None, "the start time is unknown");
        assert_eq!(judge_source("tsc").map(|c| c.result), Some(Verdict::Ok));
        assert_eq!(judge_source("hpet").map(|c| c.result), Some(Verdict::Warn));
        assert_eq!(judge_keeper(None).result, Verdict::Warn);
    }
}
