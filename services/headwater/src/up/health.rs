//! The checks of liveness and readiness of `up`.

use std::collections::BTreeMap;

use headwater_event::NodeName;
use headwater_telemetry::health::{CheckKind, Health};
use tokio::task::JoinHandle;

use super::cloud::Cloud;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::part;

/// Creates the checks of all parts.
pub(super) fn of(
    cloud: &Cloud,
    nodes: &BTreeMap<NodeName, Node>,
    metrics: &Metrics,
    answering: &JoinHandle<()>,
) -> Health {
    let mut health = Health::default();
    let operator = answering.abort_handle();
    health.check(CheckKind::Live, "operator", move || {
        runs(!operator.is_finished(), "the operator API has ended")
    });
    // A log on Kafka has no database in this process.
    if cloud.has_embedded_log() {
        let stores = metrics.stores.clone();
        health.check(CheckKind::Ready, "log", move || stores.takes_writes("log"));
    }
    part::controller::check(&cloud.controller, &cloud.sink_troubles, &mut health);
    part::hub::check(cloud.hub.view(), &mut health);
    for (name, node) in nodes {
        node.check(&format!("{name}."), &mut health);
    }
    health
}

fn runs(is_so: bool, otherwise: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise.to_owned()) }
}
