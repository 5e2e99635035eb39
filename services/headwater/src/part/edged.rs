//! `headwater edged`: the pods of one node, by what its edge says over its local API.
//!
//! It knows nothing of hubs and of the network. A stop leaves the pods running, as a crash does;
//! the next start adopts them.

use headwater_edged::{Edged, EdgedConfig, EdgedMetrics, Handle};
use headwater_rocks::{Budget, create_durably};
use headwater_telemetry::health::Health;

use super::{Ground, Part};
use crate::exit::{CommandResult, Failure};
use crate::node::runtime;
use crate::operator::Sight;
use crate::settings::edged::EdgedSettings;
use crate::{cli, part};

/// A pod worker as a process.
pub(crate) struct EdgedPart {
    edged: Handle,
}

/// Runs a pod worker until it is told to stop.
pub(crate) fn run(args: &cli::edge::Edged) -> CommandResult {
    part::run::<EdgedPart>(&args.process, &args.flags())
}

impl Part for EdgedPart {
    const NAME: &'static str = "edged";
    /// It has no database.
    const BUDGET: Budget = Budget { cache_bytes: 0, write_buffer_bytes: 0 };
    type Settings = EdgedSettings;

    async fn start(settings: EdgedSettings, ground: &Ground) -> Result<Self, Failure> {
        let (Some(node), Some(socket), Some(kind)) =
            (settings.node, settings.edge, settings.runtime)
        else {
            return Err(Failure::Usage("which node, which edge, which runtime?".to_owned()));
        };
        let dir = ground.data.node(&node);
        create_durably(&dir)?;
        let socket = std::path::absolute(socket)?;
        let runtime = runtime(kind, settings.allow_root)?;
        let metrics = EdgedMetrics::new(&ground.metrics.registry)?.of(&node);
        let config = EdgedConfig::new(node, socket, dir.join("edged"), runtime);
        let edged = Edged::spawn(EdgedConfig { metrics, ..config }).await?;
        Ok(Self { edged })
    }

    /// What starts is ready: it runs what its edge says as soon as there is one.
    fn health(&self, _health: &mut Health) {}

    /// What runs here its edge knows, and tells.
    fn sight(&self, _ground: &Ground) -> Option<Sight> {
        None
    }

    async fn hand_over(self) {
        self.edged.stop().await;
    }
}
