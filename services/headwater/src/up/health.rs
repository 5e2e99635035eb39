//! What makes the whole alive, and what makes it ready.

use std::collections::BTreeMap;

use headwater_event::NodeName;
use tokio::task::JoinHandle;

use super::cloud::Cloud;
use super::node::Node;
use crate::part;
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
    for (name, node) in nodes {
        let supervisor = node.supervisor();
        health.check(Question::Live, format!("{name}.supervisor"), move || {
            runs(!supervisor.is_finished(), "nobody starts the edge again")
        });
    }
    // What is on Kafka is none of this process's databases.
    if cloud.has_embedded_log() {
        let stores = metrics.stores.clone();
        health.check(Question::Ready, "log", move || stores.takes_writes("log"));
    }
    part::controller::check(&cloud.controller, &mut health);
    part::hub::check(cloud.hub.view(), &mut health);
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
