//! Reports the Node object to the edge: when it changes, and at a fixed period.

use std::sync::Arc;

use headwater_event::NodeName;
use headwater_proto::local::operation::Verb;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::object::{NodeFacts, node};
use super::pressure::Pressures;
use crate::api::client::EdgeClient;
use crate::backoff::Backoff;
use crate::config::Settings;
use crate::static_pods::StaticPods;

/// Registers the node, then reports it when its facts, pressures or static pods change, when `resend` is notified,
/// and at least every report period, until cancelled.
pub(crate) async fn report(
    gather: impl Fn() -> NodeFacts + Send + 'static,
    mut measured: watch::Receiver<Pressures>,
    mut static_pods: watch::Receiver<StaticPods>,
    edge: EdgeClient,
    settings: Settings,
    resend: Arc<Notify>,
    cancel: CancellationToken,
) {
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    let mut reported: Option<(NodeFacts, Pressures, Node, Instant)> = None;
    let mut is_due = true;
    while !cancel.is_cancelled() {
        let (facts, pressures) = (gather(), *measured.borrow_and_update());
        let stale = reported.as_ref().is_none_or(|(before, pressures_before, _, at)| {
            let is_same = *before == facts && *pressures_before == pressures;
            !is_same || at.elapsed() >= settings.node_report
        });
        let mut pause = settings.node_check;
        if is_due || stale {
            let before = reported.as_ref().map(|(_, _, node, _)| node);
            let node = node(&facts, pressures, before, Timestamp::now());
            let verb = if before.is_none() { Verb::Insert } else { Verb::Update };
            match send(&edge, verb, &node, &facts.name).await {
                true => {
                    backoff.reset();
                    is_due = false;
                    reported = Some((facts, pressures, node, Instant::now()));
                }
                false => pause = backoff.next_wait(),
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = resend.notified() => is_due = true,
            // Without the task that measures, the pressures stay as they are.
            Ok(()) = measured.changed() => {}
            // They are among the facts.
            Ok(()) = static_pods.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn send(edge: &EdgeClient, verb: Verb, node: &Node, name: &NodeName) -> bool {
    let content = match serde_json::to_vec(node) {
        Ok(content) => content,
        Err(error) => {
            tracing::error!(%error, "the node cannot be encoded as JSON");
            return false;
        }
    };
    match edge.operate(verb, format!("null/node/{name}"), content, None).await {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(%error, "the edge did not accept the node yet");
            false
        }
    }
}
