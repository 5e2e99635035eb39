//! Looks at processes and sockets while a run goes on, from a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::wire::WireLooks;
use crate::latency::Latency;
use crate::light::WireCount;
use crate::processes::{CPU_EVERY, Costs, Sampler};
use crate::record::Wire;
use crate::target::Target;

/// What this program is called among the processes.
const ME: &str = "loadtest";

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Looking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Observations>,
}

/// What was seen.
#[derive(Default)]
pub(super) struct Observations {
    pub(super) costs: Costs,
    pub(super) wire: Option<Wire>,
}

impl Looking {
    /// Looks from `measured` on for `duration`, and ends the intervals of `latencies` until it is
    /// ended itself.
    pub(super) fn start(
        target: Arc<Mutex<Target>>,
        latencies: Vec<Arc<Latency>>,
        sockets: Option<Arc<WireCount>>,
        measured: Instant,
        duration: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let thread = thread::spawn(move || {
            let mut sampler = Sampler::new(measured);
            let mut wire = WireLooks::new(sockets, measured);
            let mut next = measured;
            let last = measured + duration;
            while !stops.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now >= measured {
                    latencies.iter().for_each(|latency| latency.turn(now));
                }
                if now >= next && next <= last {
                    let (mut processes, hub) = {
                        let mut target = target.blocking_lock();
                        (target.processes(), target.metrics(target.hub_part()))
                    };
                    processes.push((ME.to_owned(), std::process::id()));
                    sampler.look(&processes);
                    wire.look(hub);
                    next += CPU_EVERY;
                }
                thread::sleep(TICK);
            }
            Observations { costs: sampler.costs(), wire: wire.end() }
        });
        Self { stop, thread }
    }

    /// What was seen.
    pub(super) fn end(self) -> Observations {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
