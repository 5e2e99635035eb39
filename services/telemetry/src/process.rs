//! Resources of the process, under the names that Prometheus client libraries share.

use std::fs;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::scraped_family::{ScrapedFamily, number};

const CPU: ScrapedFamily = ScrapedFamily::counter(
    "process_cpu_seconds_total",
    "Total user and system CPU time spent in seconds.",
);
const OPEN_FDS: ScrapedFamily =
    ScrapedFamily::gauge("process_open_fds", "Number of open file descriptors.");
const MAX_FDS: ScrapedFamily =
    ScrapedFamily::gauge("process_max_fds", "Maximum number of open file descriptors.");
const VIRTUAL: ScrapedFamily =
    ScrapedFamily::gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.");
const RESIDENT: ScrapedFamily =
    ScrapedFamily::gauge("process_resident_memory_bytes", "Resident memory size in bytes.");
const THREADS: ScrapedFamily =
    ScrapedFamily::gauge("process_threads", "Number of OS threads in the process.");
const START_TIME: ScrapedFamily = ScrapedFamily::gauge(
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
);

const FAMILIES: [ScrapedFamily; 7] =
    [CPU, OPEN_FDS, MAX_FDS, VIRTUAL, RESIDENT, THREADS, START_TIME];

/// The unit of times in `/proc/PID/stat`, per second: part of Linux's interface to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads the resources of this process at each scrape.
pub struct ProcessCollector {
    descs: Vec<Desc>,
    start_time: Option<f64>,
}

/// The fields read from `/proc/self/status`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    virtual_bytes: Option<u64>,
    resident_bytes: Option<u64>,
    threads: Option<u64>,
}

impl ProcessCollector {
    /// A collector for this process.
    ///
    /// # Errors
    /// When a name is malformed: a defect.
    pub fn new() -> Result<Self, prometheus::Error> {
        let descs = FAMILIES.iter().map(|family| family.desc(&[])).collect::<Result<_, _>>()?;
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Ok(Self { descs, start_time: start_time(&read("/proc/self/stat"), &read("/proc/stat")) })
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let status = Status::parse(&fs::read_to_string("/proc/self/status").unwrap_or_default());
        // The directory itself is open while it is read.
        let open_fds = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as u64 - 1);
        let max_fds = getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| number(soft));
        let found = [
            (CPU, cpu_seconds()),
            (OPEN_FDS, open_fds.map(number)),
            (MAX_FDS, max_fds),
            (VIRTUAL, status.virtual_bytes.map(number)),
            (RESIDENT, status.resident_bytes.map(number)),
            (THREADS, status.threads.map(number)),
            (START_TIME, self.start_time),
        ];
        // A value that the system does not have is absent.
        let found = found.into_iter().filter_map(|(family, value)| Some((family, value?)));
        found.map(|(family, value)| family.with(vec![(Vec::new(), value)])).collect()
    }
}

impl Status {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let bytes = |name| field(name).map(|kib| kib << 10);
        Self {
            virtual_bytes: bytes("VmSize:"),
            resident_bytes: bytes("VmRSS:"),
            threads: field("Threads:"),
        }
    }
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Some(number(u64::try_from(micros).ok()?) / 1e6)
}

/// Start time of a process, from its `stat` and the machine's, in seconds since the Unix epoch.
fn start_time(of_process: &str, of_machine: &str) -> Option<f64> {
    // The second field is the program's name in parentheses, which may hold anything.
    let after_name = of_process.rsplit_once(')')?.1;
    let ticks: f64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    let boot = of_machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_parsed() {
        let status = "Name:\theadwater\nVmSize:\t   2048 kB\nVmRSS:\t     12 kB\nThreads:\t7\n";
        let (virtual_bytes, resident_bytes) = (Some(2 << 20), Some(12 << 10));
        let expected = Status { virtual_bytes, resident_bytes, threads: Some(7) };
        assert_eq!(Status::parse(status), expected);
        assert_eq!(Status::parse(""), Status::default());

        let stat = "7 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 250 20";
        assert_eq!(start_time(stat, "cpu 1 2\nbtime 1000\n"), Some(1002.5));
        assert_eq!(start_time("", ""), None);
    }

    #[test]
    fn the_collector_reads_this_process() {
        let collector = ProcessCollector::new().expect("names");
        let families = collector.collect();
        let names: Vec<_> = families.iter().map(MetricFamily::name).collect();
        assert_eq!(names, FAMILIES.map(|family| family.name));
        for family in &families {
            let metric = &family.get_metric()[0];
            let value = metric.get_gauge().get_value() + metric.get_counter().get_value();
            assert!(value > 0.0, "{}", family.name());
        }
    }
}
