//! `headwater hub`: it folds the log and serves edges. Several hubs may run on one log.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_cli::args::part::Hub as HubArgs;
use headwater_cli::exit::{CommandResult, Failure};
use headwater_event::PresenceUpdate;
use headwater_hub::{
    Hub, HubConfig, HubDependencies, HubHandle, HubMetrics, HubView, PresenceFeed,
};
use headwater_lane::{LaneAsker, LaneClient, LaneMetrics};
use headwater_operator::{Logs, OperatorDependencies, PartKind};
use headwater_rocks::{Budget, Role};
use headwater_session::HubSettings as SessionSettings;
use headwater_store::schema;
use headwater_telemetry::health::{CheckKind, Health};
use tokio_util::task::AbortOnDropHandle;

use super::{Part, PartDependencies};
use crate::data_dir::HUB_ADDRESS;
use crate::hub_fleet::HubFleetServer;
use crate::node::cuts;
use crate::requests::LaneRequestHandler;
use crate::settings::hub::HubSettings;
use crate::{database, part};

/// A hub as a process.
pub(crate) struct HubPart {
    hub: HubHandle,
    logs: Logs,
    /// The kubelet's servers of its nodes.
    fleet: Option<HubFleetServer>,
    /// The task of the lane to the active controller.
    _lane: AbortOnDropHandle<()>,
}

/// The updates of a feed, for one stream to the controller.
fn presence(feed: PresenceFeed) -> BoxStream<'static, PresenceUpdate> {
    let next = |mut feed: PresenceFeed| async move {
        let update = feed.next().await;
        Some((update, feed))
    };
    futures::stream::unfold(feed, next).boxed()
}

/// Runs a hub until a signal ends it.
pub(crate) fn run(args: &HubArgs) -> CommandResult {
    part::run::<HubPart>(&args.process, &args.flags())
}

impl Part for HubPart {
    const NAME: &'static str = "hub";
    const BUDGET: Budget = Budget::CLOUD_PART;
    type Settings = HubSettings;

    async fn start(
        settings: HubSettings,
        dependencies: &PartDependencies,
    ) -> Result<Self, Failure> {
        // Each hub has its own name, so that each shows its own lag.
        let name = format!("{}.{}", Self::NAME, settings.name);
        let logs =
            part::log::open_when_reachable(&settings.kafka, &name, &dependencies.metrics.registry)
                .await?;
        let path = dependencies.data.part(Self::NAME).join("store");
        let engine = database::open(&path, Role::Fold, &dependencies.memory, schema::HUB)?;
        dependencies.metrics.stores.opened("hub", None, &engine);
        let tls = settings.tls().acceptor()?;
        let listen = settings.kubelet.door().map_err(|wrong| Failure::Usage(wrong.reason))?;
        let (name_of_hub, lane_tls) = (settings.name.clone(), settings.tls().connector()?);
        let limits = settings.limits();
        let (asker, asks) = LaneAsker::new();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let hub = Hub::start(
            HubConfig {
                name: settings.name,
                listen: settings.listen.unwrap_or(any),
                tls,
                settings: SessionSettings::default(),
                limits,
            },
            HubDependencies {
                downstream: logs.downstream.clone(),
                upstream: logs.upstream.clone(),
                engine,
                requests: Arc::new(LaneRequestHandler(asker)),
                wall_clock: dependencies.clock.clone(),
                metrics: HubMetrics::new(&dependencies.metrics.registry)?,
            },
        )
        .await?;
        dependencies.data.set_address(HUB_ADDRESS, Some(hub.address()))?;
        tracing::info!(address = %hub.address(), "edges may connect");
        let view = hub.view();
        let fleet = HubFleetServer::start(view.clone(), &listen).await?;
        let lane = LaneClient {
            hub: name_of_hub,
            tls: lane_tls,
            controller: view.writer_address(),
            presence: Box::new(move || presence(view.presence())),
            asks,
            metrics: LaneMetrics::new(&dependencies.metrics.registry)?,
        };
        let lane = AbortOnDropHandle::new(tokio::spawn(lane.run()));
        for node in cuts::all(dependencies.data.root()) {
            tracing::warn!(%node, "its link is still cut: `headwater link restore {node}`");
            hub.view().set_link(&node, true);
        }
        Ok(Self { hub, logs, fleet, _lane: lane })
    }

    fn health(&self, health: &mut Health) {
        check(self.hub.view(), health);
    }

    fn operator_dependencies(
        &self,
        dependencies: &PartDependencies,
    ) -> Option<OperatorDependencies> {
        let (view, base) = (self.hub.view(), dependencies.operator_dependencies(PartKind::Hub));
        let others = base.troubles.clone();
        Some(OperatorDependencies {
            logs: Some(self.logs.clone()),
            hub: Some(self.hub.view()),
            troubles: Arc::new(move || view.troubles().into_iter().chain(others()).collect()),
            ..base
        })
    }

    async fn hand_over(self) {
        if let Some(fleet) = self.fleet {
            fleet.end().await;
        }
        self.hub.stop().await;
    }
}

/// Adds the check of readiness of a hub.
pub(crate) fn check(hub: HubView, health: &mut Health) {
    health.check(CheckKind::Ready, "hub", move || {
        let is_whole = hub.is_reconciled();
        if is_whole {
            Ok(())
        } else {
            Err("the fold has not reached the end of the log yet".to_owned())
        }
    });
}
