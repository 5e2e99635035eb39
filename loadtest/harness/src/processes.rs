//! The costs of processes during a run: processor time and memory of each, and the load of every core
//! of the machine with any process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::kernel::{Cores, memory_bytes, processor_time};

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
    /// The mean load of each core over the measured time, with any process.
    pub cores_busy_mean: Vec<f64>,
    /// The part of the time of all cores that a hypervisor took for others: what runs is late then,
    /// whatever its priority.
    #[serde(default)]
    pub stolen_mean: f64,
    /// Look by look.
    pub cores_over_time: Vec<CoresAt>,
}

/// Looks at processes again and again.
#[derive(Debug)]
pub struct Sampler {
    began: Instant,
    last: Option<Instant>,
    memory_last: Option<Instant>,
    /// Processor time of each process at the look before.
    taken: HashMap<u32, Duration>,
    records: Vec<ProcessRecord>,
    cores: Cores,
    cores_first: Cores,
    over_time: Vec<CoresAt>,
}

impl Sampler {
    /// Times count from `began`, the first measured moment.
    pub fn new(began: Instant) -> Self {
        Self {
            began,
            last: None,
            memory_last: None,
            taken: HashMap::new(),
            records: Vec::new(),
            cores: Cores::default(),
            cores_first: Cores::default(),
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
            let Some(taken) = processor_time(*id) else { continue };
            // One that was started since is new, and what it used before this look is its own.
            let before = self.taken.insert(*id, taken);
            let first = if passed.is_none() { taken } else { Duration::ZERO };
            let used = taken.saturating_sub(before.unwrap_or(first)).as_secs_f64();
            let record = record(&mut self.records, name);
            record.cpu_s += used;
            let pss_bytes = sees_memory.then(|| memory_bytes(*id)).flatten();
            record.pss_bytes_max = record.pss_bytes_max.max(pss_bytes);
            record.pss_bytes_last = pss_bytes.or(record.pss_bytes_last);
            if let Some(passed) = passed.filter(|passed| *passed > 0.0) {
                record.over_time.push(ProcessAt { at_s, cores: used / passed, pss_bytes });
            }
        }
        let cores = Cores::now();
        if passed.is_some() {
            self.over_time.push(CoresAt { at_s, busy: cores.busy_since(&self.cores) });
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
            cores_busy_mean: self.cores.busy_since(&self.cores_first),
            stolen_mean: self.cores.stolen_since(&self.cores_first),
            processes: self.records,
            cores_over_time: self.over_time,
        }
    }
}

impl Costs {
    /// How busy the machine was, in words.
    pub fn of_the_machine(&self) -> String {
        let busy = self.cores_busy_mean.iter().map(|busy| format!("{:.0} %", busy * 100.0));
        let busy = busy.collect::<Vec<_>>().join(", ");
        let stolen = self.stolen_mean * 100.0;
        format!("cores busy, whoever kept them so: {busy}; taken by a hypervisor: {stolen:.1} %")
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The processor time of this thread, in nanoseconds.
    fn processor_ns() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a thread");
        text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
    }

    #[test]
    fn this_process_has_cost_something() {
        let me = [("me".to_owned(), std::process::id())];
        let mut sampler = Sampler::new(Instant::now());
        sampler.look(&me);
        // Several ticks of the processor's clock.
        let until_ns = processor_ns() + 50_000_000;
        while processor_ns() < until_ns {}
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
        let costs = |busy| Costs { cores_busy_mean: busy, ..Costs::default() };
        let said = costs(vec![0.2, 0.95]).saturated().expect("0.95");
        assert!(said.starts_with("core 1 was 95 % busy"), "{said}");
        assert_eq!(costs(vec![0.85, 0.2]).saturated(), None);
        let shown = Costs { stolen_mean: 0.042, ..costs(vec![0.2, 0.95]) }.of_the_machine();
        assert!(shown.contains("20 %, 95 %; ") && shown.ends_with("4.2 %"), "{shown}");
        assert_eq!(costs(Vec::new()).saturated(), None);
    }
}
