//! A hub in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use headwater_hub::{
    Hub, HubConfig, HubDependencies, HubHandle, HubLimits, HubMetrics, NoRequestHandler,
};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_log::Log;
use headwater_session::HubSettings;
use headwater_store::Engine;
use prometheus::Registry;
use tokio::runtime::Runtime;

use crate::clock::{memory_log, wall_clock};

/// Starts a hub that folds `downstream` into `engine`, as a hub is by default.
///
/// # Errors
/// When it does not start.
pub(crate) fn start(
    runtime: &Runtime,
    downstream: Arc<dyn Log>,
    engine: Arc<dyn Engine>,
) -> Result<HubHandle, Failure> {
    let config = HubConfig {
        name: "hub".to_owned(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        tls: None,
        settings: HubSettings::default(),
        limits: HubLimits::default(),
    };
    let dependencies = HubDependencies {
        downstream,
        upstream: Arc::new(memory_log(1)),
        engine,
        requests: Arc::new(NoRequestHandler),
        wall_clock: wall_clock(),
        metrics: HubMetrics::new(&Registry::new()).tried("registering metrics")?,
    };
    runtime.block_on(Hub::start(config, dependencies)).tried("starting a hub")
}
