//! One run of the simulation, from its seed to its end.

use std::collections::BTreeMap;

use crate::faults::strike;
use crate::frame::Frame;
use crate::settle::settle;
use crate::world::World;

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// What broke first.
    pub broken: Option<String>,
    /// The BLAKE3 hash of its trace.
    pub trace: String,
    /// How many lines the trace has.
    pub lines: u64,
    /// The trace, where it was kept.
    pub kept: Vec<String>,
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// How long it took in the simulated world, milliseconds.
    pub virtual_ms: u64,
}

/// Runs the world of this seed; `keeps` its trace, line by line.
///
/// # Panics
/// Where the code under test does, or when no runtime can be made.
pub fn run(seed: u64, keeps: bool) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the machine");
    runtime.block_on(async {
        let frame = Frame::new(seed, keeps);
        let mut world = World::new(frame.clone()).await;
        strike(&mut world).await;
        if frame.first_broken().is_none() {
            settle(&mut world).await;
        }
        let (trace, lines, kept, counts) = frame.summary();
        let (broken, virtual_ms) = (frame.first_broken(), frame.now_ms());
        Run { seed, broken, trace, lines, kept, counts, virtual_ms }
    })
}

impl Run {
    /// What broke, and how to see it again.
    pub fn failure(&self) -> Option<String> {
        let (seed, broken) = (self.seed, self.broken.as_ref()?);
        Some(format!(
            "seed {seed}: {broken}\n  again: cargo run -p headwater-sim -- --seed {seed} --trace"
        ))
    }
}
