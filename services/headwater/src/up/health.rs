//! What makes the whole alive, and what makes it ready.

use std::collections::BTreeMap;

use headwater_event::NodeName;
use tokio::task::JoinHandle;

use super::cloud::Cloud;
use super::node::Node;
use crate::telemetry::Metrics;
use crate::telemetry::health::{Health, Question};

/// The checks of everything that runs here. A node without a hub is ready.
pub(super) fn of(
    cloud: &Cloud,
    nodes: &BTreeMap<NodeName, Node>,
    metrics: &Metrics,
    answering: &JoinHandle<()>,
) -> Health {
    let mut health = Health::default();
    let operator = answering.abort_handle();
    health.check(Question::Live, "operator", move || {
        runs(!operator.is_finished(), "nobody answers the operator API")
    });
    let publishing = cloud.controller.progress();
    health.check(Question::Live, "publishing", move || {
        runs(publishing.has_changed().is_ok(), "the task that publishes has ended")
    });
    for (name, node) in nodes {
        let supervisor = node.supervisor();
        health.check(Question::Live, format!("{name}.supervisor"), move || {
            runs(!supervisor.is_finished(), "nobody starts the edge again")
        });
    }
    let stores = metrics.stores.clone();
    health.check(Question::Ready, "log", move || stores.takes_writes("log"));
    let progress = cloud.controller.progress();
    health.check(Question::Ready, "controller", move || {
        let progress = progress.borrow();
        match &progress.trouble {
            _ if progress.reconciled => Ok(()),
            Some(trouble) => Err(trouble.clone()),
            None => Err("the sources have not all listed".to_owned()),
        }
    });
    let hub = cloud.hub.view();
    health.check(Question::Ready, "hub", move || {
        runs(hub.is_reconciled(), "the log is not folded to its end yet")
    });
    for (name, node) in nodes {
        let view = node.view();
        health.check(Question::Ready, format!("{name}.edge"), move || match view.edge() {
            Some(_) => Ok(()),
            None => Err(view.trouble().unwrap_or_else(|| "its databases are not open".to_owned())),
        });
    }
    health
}

fn runs(is_so: bool, otherwise: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise.to_owned()) }
}
