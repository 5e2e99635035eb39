//! What processes cost while a run goes on: processor time and memory of each, and how busy every
//! core of the machine was, whoever kept it busy.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// Between two looks at processor time.
pub const CPU_EVERY: Duration = Duration::from_secs(1);

/// Between two looks at memory: each walks the pages of every process and stops it from taking
/// more meanwhile.
pub const MEMORY_EVERY: Duration = Duration::from_secs(5);

/// A core that was busier than this on average marks the run as saturated.
pub const CORE_SHARE_MAX: f64 = 0.85;

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// What it is: a part, an edge by its node, `broker`, or `loadtest`, this program.
    pub name: String,
    /// Cores that it kept busy on average, over the measured time.
    pub cores_mean: f64,
    /// Processor time over the measured time, seconds.
    pub cpu_s: f64,
    /// The most memory seen, its share of shared pages included (PSS), bytes.
    pub pss_bytes_max: Option<u64>,
    /// The last memory seen, likewise.
    pub pss_bytes_last: Option<u64>,
    /// Look by look.
    pub over_time: Vec<ProcessAt>,
}

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessAt {
    /// Seconds from the first measured moment.
    pub at_s: f64,
    /// Cores that it kept busy since the look before.
    pub cores: f64,
    /// Memory, where this look was at it too.
    pub pss_bytes: Option<u64>,
}

/// The machine at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresAt {
    /// Seconds from the first measured moment.
    pub at_s: f64,
    /// The busy part of each core since the look before.
    pub busy: Vec<f64>,
}

/// What is known of all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Each process.
    pub processes: Vec<ProcessRecord>,
    /// The busy part of each core on average over the measured time, whoever kept it busy.
    pub cores_busy_mean: Vec<f64>,
    /// Look by look.
    pub cores_over_time: Vec<CoresAt>,
}

/// Looks at processes again and again.
#[derive(Debug)]
pub struct Sampler {
    began: Instant,
    ticks_per_second: f64,
    last: Option<Instant>,
    memory_last: Option<Instant>,
    /// Ticks of each process at the look before.
    ticks: HashMap<u32, u64>,
    records: Vec<ProcessRecord>,
    cores: Vec<CoreTicks>,
    cores_first: Vec<CoreTicks>,
    over_time: Vec<CoresAt>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CoreTicks {
    busy: u64,
    all: u64,
}

impl Sampler {
    /// Times count from `began`, the first measured moment.
    pub fn new(began: Instant) -> Self {
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
        Self {
            began,
            // What Linux has had on every architecture for decades.
            ticks_per_second: ticks.map_or(100.0, |ticks| ticks as f64),
            last: None,
            memory_last: None,
            ticks: HashMap::new(),
            records: Vec::new(),
            cores: Vec::new(),
            cores_first: Vec::new(),
            over_time: Vec::new(),
        }
    }

    /// Looks at `processes`. The first look is where their costs begin.
    pub fn look(&mut self, processes: &[(String, u32)]) {
        let now = Instant::now();
        let at_s = now.saturating_duration_since(self.began).as_secs_f64();
        let passed = self.last.map(|last| now.saturating_duration_since(last).as_secs_f64());
        let sees_memory = self.memory_last.is_none_or(|last| now - last >= MEMORY_EVERY);
        if sees_memory {
            self.memory_last = Some(now);
        }
        for (name, id) in processes {
            let Some(ticks) = cpu_ticks(*id) else { continue };
            // One that was started since is new, and what it used before this look is its own.
            let before = self.ticks.insert(*id, ticks);
            let first = if passed.is_none() { ticks } else { 0 };
            let used = ticks.saturating_sub(before.unwrap_or(first)) as f64 / self.ticks_per_second;
            let record = record(&mut self.records, name);
            record.cpu_s += used;
            let pss_bytes = sees_memory.then(|| pss_bytes(*id)).flatten();
            record.pss_bytes_max = record.pss_bytes_max.max(pss_bytes);
            record.pss_bytes_last = pss_bytes.or(record.pss_bytes_last);
            if let Some(passed) = passed.filter(|passed| *passed > 0.0) {
                record.over_time.push(ProcessAt { at_s, cores: used / passed, pss_bytes });
            }
        }
        let cores = core_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default());
        if passed.is_some() {
            self.over_time.push(CoresAt { at_s, busy: busy(&self.cores, &cores) });
        } else {
            self.cores_first.clone_from(&cores);
        }
        self.cores = cores;
        self.last = Some(now);
    }

    /// What was seen, over the time between the first look and the last.
    pub fn costs(mut self) -> Costs {
        let seconds = self.over_time.last().map_or(0.0, |last| last.at_s.max(f64::EPSILON));
        for record in &mut self.records {
            record.cores_mean = if seconds > 0.0 { record.cpu_s / seconds } else { 0.0 };
        }
        Costs {
            cores_busy_mean: busy(&self.cores_first, &self.cores),
            processes: self.records,
            cores_over_time: self.over_time,
        }
    }
}

impl Costs {
    /// Why the figures are those of a machine at its end, if they are.
    pub fn saturated(&self) -> Option<String> {
        let busiest = self.cores_busy_mean.iter().copied().enumerate();
        let (core, busy) = busiest.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        (busy > CORE_SHARE_MAX).then(|| {
            let percent = busy * 100.0;
            format!("core {core} was {percent:.0} % busy: latencies are those of a full machine")
        })
    }
}

fn record<'r>(records: &'r mut Vec<ProcessRecord>, name: &str) -> &'r mut ProcessRecord {
    let at = records.iter().position(|record| record.name == name);
    let at = at.unwrap_or_else(|| {
        records.push(ProcessRecord { name: name.to_owned(), ..ProcessRecord::default() });
        records.len() - 1
    });
    &mut records[at]
}

/// User and system time of a process, in ticks.
fn cpu_ticks(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program stands in brackets and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn pss_bytes(id: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Of each core, from the text of `/proc/stat`.
fn core_ticks(stat: &str) -> Vec<CoreTicks> {
    let cores = stat.lines().filter(|line| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    cores
        .map(|line| {
            let fields: Vec<u64> =
                line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
            // The first eight; guest time is in the first two already.
            let all: u64 = fields.iter().take(8).sum();
            let idle: u64 = fields.iter().skip(3).take(2).sum();
            CoreTicks { busy: all.saturating_sub(idle), all }
        })
        .collect()
}

fn busy(before: &[CoreTicks], after: &[CoreTicks]) -> Vec<f64> {
    let both = before.iter().zip(after);
    both.map(|(before, after)| {
        let all = after.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { after.busy.saturating_sub(before.busy) as f64 / all as f64 }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_cost_something() {
        let me = [("me".to_owned(), std::process::id())];
        let mut sampler = Sampler::new(Instant::now());
        sampler.look(&me);
        let began = Instant::now();
        let mut number = 1_u64;
        while began.elapsed() < Duration::from_millis(150) {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        assert_ne!(number, 0);
        sampler.look(&me);
        let costs = sampler.costs();
        let record = &costs.processes[0];
        assert_eq!((record.name.as_str(), record.over_time.len()), ("me", 1));
        assert!(record.cpu_s > 0.0 && record.pss_bytes_max.is_some_and(|pss| pss > 1 << 20));
        assert!(!costs.cores_busy_mean.is_empty());
        assert!(costs.cores_busy_mean.iter().all(|busy| (0.0..=1.0).contains(busy)));
    }

    #[test]
    fn a_busy_core_marks_the_run() {
        let stat =
            "cpu  1 1 1 1\ncpu0 10 0 10 70 10 0 0 0 5 0\ncpu1 90 0 5 5 0 0 0 0 0 0\nintr 1\n";
        let cores = core_ticks(stat);
        assert_eq!(cores, [CoreTicks { busy: 20, all: 100 }, CoreTicks { busy: 95, all: 100 }]);
        let none = [CoreTicks::default(); 2];
        let costs = |busy| Costs { cores_busy_mean: busy, ..Costs::default() };
        let said = costs(busy(&none, &cores)).saturated().expect("0.95");
        assert!(said.starts_with("core 1 was 95 % busy"), "{said}");
        assert_eq!(costs(vec![0.85, 0.2]).saturated(), None);
        assert_eq!(costs(Vec::new()).saturated(), None);
    }
}
