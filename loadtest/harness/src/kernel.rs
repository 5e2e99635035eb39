//! What the kernel accounts for: processor time and memory of a process, how busy each core was.

use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::process::Process;
use procfs::{CpuTime, Current, CurrentSI, KernelStats, LoadAverage};

/// What each core has done since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores(Vec<Core>);

/// Ticks of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Core {
    busy: u64,
    /// Of them, those in which a hypervisor ran others.
    stolen: u64,
    all: u64,
}

impl Cores {
    /// As it is now.
    pub fn now() -> Self {
        let stats = KernelStats::current().map(|stats| stats.cpu_time).unwrap_or_default();
        Self(stats.iter().map(Core::from).collect())
    }

    /// The part of the time of all cores since `before` that a hypervisor took for others.
    pub fn stolen_since(&self, before: &Self) -> f64 {
        let both = || self.0.iter().zip(&before.0);
        let stolen: u64 = both().map(|(now, then)| now.stolen.saturating_sub(then.stolen)).sum();
        let all: u64 = both().map(|(now, then)| now.all.saturating_sub(then.all)).sum();
        stolen as f64 / all.max(1) as f64
    }

    /// The fraction of the time since `before` in which each core was busy, with any process.
    pub fn busy_since(&self, before: &Self) -> Vec<f64> {
        let both = self.0.iter().zip(&before.0);
        both.map(|(now, before)| {
            let all = now.all.saturating_sub(before.all);
            now.busy.saturating_sub(before.busy) as f64 / all.max(1) as f64
        })
        .collect()
    }
}

impl From<&CpuTime> for Core {
    /// Guests are counted as users already.
    fn from(time: &CpuTime) -> Self {
        let rest = [time.irq, time.softirq, time.steal].into_iter().flatten().sum::<u64>();
        let busy = time.user + time.nice + time.system + rest;
        let all = busy + time.idle + time.iowait.unwrap_or_default();
        Self { busy, stolen: time.steal.unwrap_or_default(), all }
    }
}

/// Time on a processor of a process and all its threads, those that have ended included; `None`:
/// there is no such process.
pub fn processor_time(process: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(pid(process)?).ok()?;
    clock.now().ok().map(Duration::from)
}

/// Memory of a process in bytes: its own, and its share of what it has in common with others (PSS).
pub fn memory_bytes(process: u32) -> Option<u64> {
    rolled_up(process, "Pss")
}

/// The part of it that is no file: without the program's own text, which the system may drop.
pub fn anonymous_bytes(process: u32) -> Option<u64> {
    rolled_up(process, "Pss_Anon")
}

/// All that processes have in memory together, in bytes: what each has alone, and what each has in common with others once.
/// Processes of one program have its text in common: as one process they would have it once, too.
pub fn joint_bytes(processes: &[u32]) -> Option<u64> {
    let mut alone = 0;
    let mut common = 0;
    for process in processes {
        let of = |field| rolled_up(*process, field);
        alone += of("Private_Clean")? + of("Private_Dirty")?;
        common = common.max(of("Shared_Clean")? + of("Shared_Dirty")?);
    }
    Some(alone + common)
}

/// The load of the last minute.
pub fn load() -> f64 {
    LoadAverage::current().map_or(f64::NAN, |load| load.one.into())
}

fn rolled_up(process: u32, field: &str) -> Option<u64> {
    let process = Process::new(pid(process)?.as_raw()).ok()?;
    let maps = process.smaps_rollup().ok()?.memory_map_rollup;
    maps.0.into_iter().next()?.extension.map.get(field).copied()
}

fn pid(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_core_did_not_idle_away_it_was_busy() {
        let core = |(busy, stolen, all)| Core { busy, stolen, all };
        let cores = |of: [(u64, u64, u64); 2]| Cores(of.map(core).into());
        let (before, now) =
            (cores([(20, 1, 100), (10, 0, 40)]), cores([(29, 3, 120), (10, 0, 60)]));
        assert_eq!(now.busy_since(&before), [0.45, 0.0]);
        assert_eq!((now.stolen_since(&before), before.stolen_since(&before)), (0.05, 0.0));
        let now = Cores::now();
        assert!(!now.0.is_empty() && now.0.iter().all(|core| core.busy <= core.all), "{now:?}");
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let me = std::process::id();
        assert!(processor_time(me).expect("Linux") > Duration::ZERO);
        assert!(memory_bytes(me).expect("Linux") >= anonymous_bytes(me).expect("Linux"));
        assert!(anonymous_bytes(me).expect("Linux") > 0 && load() >= 0.0);
        assert_eq!((processor_time(u32::MAX), memory_bytes(u32::MAX)), (None, None));
    }
}
