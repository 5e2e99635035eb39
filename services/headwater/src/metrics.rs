//! The metrics registry of a process, with the collectors of every process.

use headwater_rocks::DatabaseMemory;
use headwater_telemetry::process::ProcessCollector;
use prometheus::{IntGauge, Opts, Registry};

use crate::stores::Stores;

/// The registry of a process, and its open databases.
pub(crate) struct Metrics {
    /// The registry; every service registers its own metrics in it.
    pub(crate) registry: Registry,
    /// The open databases.
    pub(crate) stores: Stores,
}

impl Metrics {
    /// Creates a registry with the metrics of every process; databases share `memory`.
    ///
    /// # Errors
    /// When a name is registered twice: a defect.
    pub(crate) fn new(memory: &DatabaseMemory) -> Result<Self, prometheus::Error> {
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
