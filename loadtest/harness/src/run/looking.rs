//! Looks at processes and sockets while a run goes on, from a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::latency::Latency;
use crate::light::WireCount;
use crate::processes::{CPU_EVERY, Costs, Sampler};
use crate::record::{Wire, WireAt};
use crate::target::Target;

/// What this program is called among the processes.
const ME: &str = "loadtest";

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Looking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Looked>,
}

/// What was seen.
#[derive(Default)]
pub(super) struct Looked {
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
            let mut wire = sockets.map(|sockets| WireLooks::new(sockets, measured));
            let mut next = measured;
            let last = measured + duration;
            while !stops.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now >= measured {
                    latencies.iter().for_each(|latency| latency.turn(now));
                }
                if now >= next && next <= last {
                    let mut processes = target.blocking_lock().processes();
                    processes.push((ME.to_owned(), std::process::id()));
                    sampler.look(&processes);
                    if let Some(wire) = &mut wire {
                        wire.look();
                    }
                    next += CPU_EVERY;
                }
                thread::sleep(TICK);
            }
            Looked { costs: sampler.costs(), wire: wire.map(|wire| wire.wire) }
        });
        Self { stop, thread }
    }

    /// What was seen.
    pub(super) fn end(self) -> Looked {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Looks at the sockets of light edges.
struct WireLooks {
    sockets: Arc<WireCount>,
    measured: Instant,
    last: Option<(Instant, u64, u64, u64)>,
    wire: Wire,
}

impl WireLooks {
    fn new(sockets: Arc<WireCount>, measured: Instant) -> Self {
        let counted_at = "the sockets of the light edges".to_owned();
        Self { sockets, measured, last: None, wire: Wire { counted_at, ..Wire::default() } }
    }

    fn look(&mut self) {
        let now = Instant::now();
        let (down, up) = (self.sockets.received(), self.sockets.sent());
        let connects = self.sockets.connects();
        if let Some((then, down_then, up_then, connects_then)) = self.last {
            let passed = (now - then).as_secs_f64().max(f64::EPSILON);
            let (down, up) = (down - down_then, up - up_then);
            self.wire.down_bytes += down;
            self.wire.up_bytes += up;
            self.wire.over_time.push(WireAt {
                at_s: now.saturating_duration_since(self.measured).as_secs_f64(),
                down_per_s: down as f64 / passed,
                up_per_s: up as f64 / passed,
                connects: connects - connects_then,
            });
        }
        self.wire.connects = connects;
        self.last = Some((now, down, up, connects));
    }
}
