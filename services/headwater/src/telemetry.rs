//! What can be seen of a running process from outside: metrics, health, logs, traces.
//!
//! | module | what it owns |
//! |---|---|
//! | `log` | log lines: for people on a terminal, JSON otherwise |
//! | `traces` | spans, to an OTLP receiver if there is one |
//! | `families` | metrics that are read only when somebody asks |
//! | `process`, `stores` | what the process and its databases use |
//! | `health` | whether it lives, and whether it is ready |
//! | `server` | all of it over HTTP, at one address |
//!
//! Each part counts for itself, in the one registry that is made here and handed to it.

mod families;
pub(crate) mod health;
pub(crate) mod log;
mod process;
pub(crate) mod server;
pub(crate) mod stores;
pub(crate) mod traces;

use headwater_rocks::Shared;
use prometheus::{IntGauge, Opts, Registry};

use self::process::ProcessCollector;
use self::stores::Stores;

/// The registry of a process, and the databases that are counted in it.
pub(crate) struct Metrics {
    /// Where every part registers what it counts.
    pub(crate) registry: Registry,
    /// The open databases.
    pub(crate) stores: Stores,
}

impl Metrics {
    /// A registry with what every process has; databases share `memory`.
    ///
    /// # Errors
    /// When a name is taken twice: a defect.
    pub(crate) fn new(memory: &Shared) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let build = Opts::new("headwater_build_info", "The build that runs; always 1.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        let build = IntGauge::with_opts(build)?;
        build.set(1);
        registry.register(Box::new(build))?;
        registry.register(Box::new(ProcessCollector::new()?))?;
        let stores = Stores::new(memory.clone());
        registry.register(Box::new(stores.collector()?))?;
        Ok(Self { registry, stores })
    }
}
