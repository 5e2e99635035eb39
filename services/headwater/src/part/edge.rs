//! `headwater edge`: the edge of one node, with its pod worker unless that is a process of its own.
//!
//! A stop leaves the pods running, as a crash does; the next start adopts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_cli::args::edge::Edge as EdgeArgs;
use headwater_cli::exit::{CommandResult, Failure};
use headwater_event::NodeName;
use headwater_operator::{OperatorDependencies, PartKind};
use headwater_rocks::Budget;
use headwater_telemetry::health::Health;

use super::{Part, PartDependencies};
use crate::node::{Node, NodeMetrics, NodeSettings, cuts};
use crate::part;
use crate::pod_runtime::{PodRuntime, shared_rights};
use crate::settings::edge::EdgeSettings;

/// An edge as a process.
pub(crate) struct EdgePart {
    name: NodeName,
    node: Node,
    /// What an operator should know of it.
    notes: Vec<String>,
}

/// Runs an edge until a signal ends it.
pub(crate) fn run(args: &EdgeArgs) -> CommandResult {
    part::run::<EdgePart>(&args.process, &args.flags())
}

impl Part for EdgePart {
    const NAME: &'static str = "edge";
    const BUDGET: Budget = Budget::EDGE;
    type Settings = EdgeSettings;

    async fn start(
        settings: EdgeSettings,
        dependencies: &PartDependencies,
    ) -> Result<Self, Failure> {
        let tls = settings.tls().connector()?;
        let hubs = settings.hubs().map_err(|wrong| Failure::Usage(wrong.reason))?;
        let local_user = settings.local_user().map_err(Failure::Usage)?;
        let pod_bounds = settings.pod_bounds();
        let kubelet = settings.kubelet.door().map_err(|wrong| Failure::Usage(wrong.reason))?;
        let runs_pods = settings.edged.then_some(settings.runtime).flatten();
        let notes = shared_rights(runs_pods, settings.allow_root);
        let name = settings.node.ok_or_else(|| Failure::Usage("which node?".to_owned()))?;
        if cuts::is_cut(&dependencies.data.node(&name)) {
            tracing::warn!(node = %name, "its link is still cut: `headwater link restore {name}`");
        }
        let node_settings = NodeSettings {
            hubs,
            tls,
            sync_interval: settings.sync_interval,
            runtime: settings.runtime.filter(|_| settings.edged).map(|kind| PodRuntime {
                kind,
                allow_root: settings.allow_root,
                cri: settings.cri,
            }),
            pod_bounds,
            kubelet,
            streams: settings.streams,
            has_reserve: true,
            local_user,
            local_socket: settings.api_socket,
        };
        let metrics = NodeMetrics::new(&dependencies.metrics)?;
        let node =
            Node::start(&name, node_settings, &dependencies.data, &dependencies.memory, &metrics)
                .await?;
        Ok(Self { name, node, notes })
    }

    fn health(&self, health: &mut Health) {
        self.node.check("", health);
    }

    fn operator_dependencies(
        &self,
        dependencies: &PartDependencies,
    ) -> Option<OperatorDependencies> {
        let view = self.node.view();
        Some(OperatorDependencies {
            nodes: Arc::new(BTreeMap::from([(self.name.clone(), view)])),
            notes: self.notes.clone(),
            ..dependencies.operator_dependencies(PartKind::Edge)
        })
    }

    async fn hand_over(self) {
        self.node.leave().await;
    }
}
