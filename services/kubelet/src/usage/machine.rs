//! What all processes of the machine use, from the files of the kernel.

use std::io;
use std::time::Duration;

use headwater_edged::runtime::ProcessUsage;
use jiff::Timestamp;
use procfs::{CpuTime, Current as _, CurrentSI as _, KernelStats, LoadAverage, Meminfo, ProcError};

/// The machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MachineUsage {
    /// When it was started.
    pub(super) started: Timestamp,
    /// What all of its processes use.
    pub(super) processes: ProcessUsage,
    /// Memory that is not in the working set, in bytes.
    pub(super) memory_available_bytes: u64,
}

/// Measures the machine.
///
/// # Errors
/// A file of the kernel cannot be read.
pub(super) fn measure() -> io::Result<MachineUsage> {
    let failed = |error: ProcError| io::Error::other(error.to_string());
    let stats = KernelStats::current().map_err(failed)?;
    let memory = Meminfo::current().map_err(failed)?;
    let threads = LoadAverage::current().map_err(failed)?.max;
    let started = i64::try_from(stats.btime).ok().and_then(|it| Timestamp::from_second(it).ok());
    Ok(MachineUsage {
        started: started.unwrap_or(Timestamp::UNIX_EPOCH),
        processes: ProcessUsage {
            cpu_ns: u64::try_from(busy(&stats.total).as_nanos()).unwrap_or(u64::MAX),
            count: threads.into(),
            ..memory_used(&memory)
        },
        memory_available_bytes: memory.mem_total.saturating_sub(memory_used(&memory).memory_bytes),
    })
}

/// The time in which the processors ran processes or the kernel. The time of guests is in that of users (`proc_stat(5)`),
/// and stolen time is another machine's.
fn busy(time: &CpuTime) -> Duration {
    let interrupts = [time.irq_duration(), time.softirq_duration()];
    let ran = [time.user_duration(), time.nice_duration(), time.system_duration()];
    ran.into_iter().chain(interrupts.into_iter().flatten()).sum()
}

/// Memory as a kubelet counts it for the root of all cgroups.
fn memory_used(memory: &Meminfo) -> ProcessUsage {
    let used = memory.mem_total.saturating_sub(memory.mem_free);
    ProcessUsage {
        memory_used_bytes: used,
        memory_bytes: used.saturating_sub(memory.inactive_file.unwrap_or(0)),
        memory_anonymous_bytes: memory.anon_pages.unwrap_or(0),
        ..ProcessUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use procfs::{FromBufReadSI as _, FromRead as _, current_system_info};

    use super::*;

    #[test]
    fn time_without_work_and_time_of_other_machines_do_not_count() {
        let text = "cpu 100 20 30 4000 500 6 7 800 90 10\n\
                    cpu0 100 20 30 4000 500 6 7 800 90 10\n\
                    ctxt 1\nbtime 1700000000\nprocesses 1\n";
        let stats = KernelStats::from_buf_read(text.as_bytes(), current_system_info());
        let stats = stats.expect("the kernel's form");
        let ticks = 100 + 20 + 30 + 6 + 7;
        let tick = stats.total.user_duration() / 100;
        assert_eq!(busy(&stats.total), tick * ticks);
    }

    #[test]
    fn files_that_the_kernel_gets_back_are_not_in_the_working_set() {
        let text = "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 0 kB\nCached: 0 kB\n\
                    SwapCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nInactive(file): 200 kB\n\
                    SwapTotal: 0 kB\nSwapFree: 0 kB\nDirty: 0 kB\nWriteback: 0 kB\n\
                    AnonPages: 50 kB\nMapped: 0 kB\nSlab: 0 kB\nCommitted_AS: 0 kB\n\
                    VmallocTotal: 0 kB\nVmallocUsed: 0 kB\nVmallocChunk: 0 kB\n";
        let used = memory_used(&Meminfo::from_read(text.as_bytes()).expect("the kernel's form"));
        let kib = [used.memory_used_bytes, used.memory_bytes, used.memory_anonymous_bytes];
        assert_eq!(kib.map(|bytes| bytes >> 10), [700, 500, 50]);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let machine = measure().expect("the files of this kernel");
        assert!(machine.started > Timestamp::UNIX_EPOCH && machine.started < Timestamp::now());
        assert!(machine.processes.cpu_ns > 0 && machine.processes.count > 0);
        assert!(machine.processes.memory_bytes > 0 && machine.memory_available_bytes > 0);
    }
}
