//! `headwater edged`: the pod worker of one node. The edge's local API sends it the node's pods.
//!
//! It uses neither hubs nor the network. A stop leaves the pods running, as a crash does; the next
//! start adopts them.

use headwater_cli::args::edge::Edged as EdgedArgs;
use headwater_cli::exit::{CommandResult, Failure};
use headwater_edged::{Edged, EdgedConfig, EdgedMetrics, Handle};
use headwater_operator::OperatorDependencies;
use headwater_rocks::{Budget, create_durably};
use headwater_telemetry::health::Health;

use super::{Part, PartDependencies};
use crate::node::pod_server::{PodDoors, PodServer, SharedSocket};
use crate::part;
use crate::pod_runtime::PodRuntime;
use crate::settings::edged::EdgedSettings;

/// A pod worker as a process.
pub(crate) struct EdgedPart {
    edged: Handle,
    pod_server: PodServer,
}

/// Runs a pod worker until a signal ends it.
pub(crate) fn run(args: &EdgedArgs) -> CommandResult {
    part::run::<EdgedPart>(&args.process, &args.flags())
}

impl Part for EdgedPart {
    const NAME: &'static str = "edged";
    /// It has no database.
    const BUDGET: Budget = Budget { cache_bytes: 0, write_buffer_bytes: 0 };
    type Settings = EdgedSettings;

    async fn start(
        settings: EdgedSettings,
        dependencies: &PartDependencies,
    ) -> Result<Self, Failure> {
        let bounds = settings.pod_bounds();
        let listen = settings.kubelet.door().map_err(|wrong| Failure::Usage(wrong.reason))?;
        let streams_user = settings.streams_user().map_err(Failure::Usage)?;
        let (Some(node), Some(socket), Some(kind)) =
            (settings.node, settings.edge, settings.runtime)
        else {
            let what = "set --node NAME, --edge SOCKET and --runtime RUNTIME";
            return Err(Failure::Usage(what.to_owned()));
        };
        let dir = dependencies.data.node(&node);
        create_durably(&dir)?;
        let socket = std::path::absolute(socket)?;
        let runtime = PodRuntime { kind, allow_root: settings.allow_root, cri: settings.cri };
        let edged_dir = dir.join("edged");
        let runtime = runtime.open(&node, &edged_dir).await?;
        let shared = settings.streams_socket.zip(streams_user);
        let shared = shared.map(|(socket, user)| SharedSocket { socket, user });
        let doors = PodDoors::open(dependencies.data.pod_socket(&node)?, &listen, shared).await?;
        let metrics = EdgedMetrics::new(&dependencies.metrics.registry)?.of(&node);
        let mut config = EdgedConfig::new(node, socket, edged_dir, runtime);
        bounds.set(&mut config);
        let config = EdgedConfig { metrics, kubelet_port: doors.port, ..config };
        let edged = Edged::spawn(config).await?;
        let pod_server = doors.serve(edged.pods());
        Ok(Self { edged, pod_server })
    }

    /// Adds no check: a started worker is ready, and waits for its edge.
    fn health(&self, _health: &mut Health) {}

    /// Returns `None`: the operator API of the edge answers for the pods.
    fn operator_dependencies(
        &self,
        _dependencies: &PartDependencies,
    ) -> Option<OperatorDependencies> {
        None
    }

    async fn hand_over(self) {
        self.pod_server.end().await;
        self.edged.stop().await;
    }
}
