//! What everything in one run shares: its chance, its trace, its counts, its clocks.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};
use tokio::time::Instant;
use uuid::Uuid;

/// The wall clock at the beginning of a run.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// Ten years, by which wall clocks jump.
pub(crate) const TEN_YEARS_MS: i64 = 10 * 365 * 24 * 3600 * 1000;

/// What everything in one run shares. Clones are the same.
#[derive(Clone)]
pub(crate) struct Frame(Arc<Inner>);

struct Inner {
    began: Instant,
    chance: Mutex<Xoshiro256PlusPlus>,
    /// Draws what no fault depends on. It is apart, so that such a draw does not change what a
    /// seed means.
    side_chance: Mutex<Xoshiro256PlusPlus>,
    trace: Mutex<Trace>,
    /// By how much virtual weeks went by at once.
    passed_ms: Mutex<i64>,
    /// Whether faults have stopped.
    calm: AtomicBool,
    /// Whether a trace that is kept is printed as it comes: of a run that does not end.
    is_live: bool,
}

/// What happened, in order.
struct Trace {
    hasher: blake3::Hasher,
    lines: u64,
    kept: Option<Vec<String>>,
    counts: BTreeMap<&'static str, u64>,
    broken: Option<String>,
}

/// The wall clock of one process; it may be wrong by years.
#[derive(Clone)]
pub(crate) struct WallClock {
    frame: Frame,
    skew_ms: Arc<Mutex<i64>>,
}

impl Frame {
    /// A frame of the run with this seed, which begins now.
    pub(crate) fn new(seed: u64, keeps: bool) -> Self {
        let trace = Trace {
            hasher: blake3::Hasher::new(),
            lines: 0,
            kept: keeps.then(Vec::new),
            counts: BTreeMap::new(),
            broken: None,
        };
        Self(Arc::new(Inner {
            began: Instant::now(),
            // Named, so that a release of `rand` does not change what a seed means.
            chance: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
            side_chance: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(!seed)),
            trace: Mutex::new(trace),
            passed_ms: Mutex::new(0),
            calm: AtomicBool::new(false),
            is_live: std::env::var_os("HEADWATER_SIM_LIVE").is_some(),
        }))
    }

    /// Virtual milliseconds since the run began.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Virtual weeks go by at once.
    pub(crate) fn pass(&self, ms: i64) {
        *lock(&self.0.passed_ms) += ms;
    }

    /// The right time, milliseconds since the Unix epoch.
    pub(crate) fn true_ms(&self) -> i64 {
        START_MS.saturating_add_unsigned(self.now_ms()) + *lock(&self.0.passed_ms)
    }

    /// A clock that is right so far.
    pub(crate) fn wall_clock(&self) -> WallClock {
        WallClock { frame: self.clone(), skew_ms: Arc::default() }
    }

    /// Faults stop.
    pub(crate) fn calm_down(&self) {
        self.0.calm.store(true, Ordering::Relaxed);
    }

    /// Whether they have.
    pub(crate) fn is_calm(&self) -> bool {
        self.0.calm.load(Ordering::Relaxed)
    }

    /// Any number.
    pub(crate) fn draw(&self) -> u64 {
        lock(&self.0.chance).next_u64()
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// An index of a list of this length.
    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Whether something happens that happens in so many of a thousand cases.
    pub(crate) fn happens(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// Milliseconds up to `max`.
    pub(crate) fn delay(&self, max_ms: u64) -> Duration {
        Duration::from_millis(self.below(max_ms + 1))
    }

    /// A UUID.
    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_u64_pair(self.draw(), self.draw())
    }

    /// The id of a topic.
    pub(crate) fn topic_uuid(&self) -> Uuid {
        let mut chance = lock(&self.0.side_chance);
        Uuid::from_u64_pair(chance.next_u64(), chance.next_u64())
    }

    /// Where in its range the age of a session lies, in `[0, 1)`.
    pub(crate) fn session_age(&self) -> f64 {
        lock(&self.0.side_chance).random()
    }

    /// Notes what happened.
    pub(crate) fn note(&self, what: impl Display) {
        let line = format!("{:>9} {what}", self.now_ms());
        let mut trace = lock(&self.0.trace);
        trace.hasher.update(line.as_bytes());
        trace.hasher.update(b"\n");
        trace.lines += 1;
        if let Some(kept) = &mut trace.kept {
            if self.0.is_live {
                eprintln!("{line}");
            }
            kept.push(line);
        }
    }

    /// Counts something that is to be seen to happen.
    pub(crate) fn count(&self, what: &'static str) {
        *lock(&self.0.trace).counts.entry(what).or_default() += 1;
    }

    /// A fault strikes.
    pub(crate) fn fault(&self, what: &'static str, detail: impl Display) {
        self.count(what);
        self.note(format_args!("fault {what} {detail}"));
    }

    /// An invariant broke; the first one counts.
    pub(crate) fn broken(&self, what: impl Display) {
        self.note(format_args!("BROKEN {what}"));
        let mut trace = lock(&self.0.trace);
        trace.broken.get_or_insert_with(|| what.to_string());
    }

    /// Notes what broke, if something did.
    pub(crate) fn check<T, E: Display>(&self, checked: Result<T, E>) -> Option<T> {
        checked.map_err(|broken| self.broken(broken)).ok()
    }

    /// What broke.
    pub(crate) fn first_broken(&self) -> Option<String> {
        lock(&self.0.trace).broken.clone()
    }

    /// The hash of the trace so far, its length, its lines if they are kept, and the counts.
    pub(crate) fn summary(&self) -> (String, u64, Vec<String>, BTreeMap<&'static str, u64>) {
        let trace = lock(&self.0.trace);
        let hash = trace.hasher.finalize().to_hex().to_string();
        (hash, trace.lines, trace.kept.clone().unwrap_or_default(), trace.counts.clone())
    }
}

impl WallClock {
    /// What it shows.
    pub(crate) fn now_ms(&self) -> i64 {
        self.frame.true_ms() + *lock(&self.skew_ms)
    }

    /// Makes it wrong by so much.
    pub(crate) fn jump(&self, skew_ms: i64) {
        *lock(&self.skew_ms) = skew_ms;
    }
}

/// Locks what no two threads ever want.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
