//! The nodes of `up`, which start side by side.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use futures::StreamExt as _;
use futures::stream;
use headwater_event::NodeName;
use headwater_telemetry::error_chain;

use crate::node::{Node, NodeError};

/// Nodes that start at the same time. A start waits for the disk, for a container runtime, and for pods of a former runtime
/// to end.
const STARTS_MAX: usize = 8;

/// Nodes that do not start, each with the reason.
#[derive(Debug)]
pub(super) struct NodesNotStarted(BTreeMap<NodeName, String>);

/// What became of the starts of nodes.
struct Starts<T> {
    started: BTreeMap<NodeName, T>,
    failed: BTreeMap<NodeName, String>,
}

impl fmt::Display for NodesNotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (node, reason)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}node {node} does not start: {reason}")?;
        }
        Ok(())
    }
}

impl Error for NodesNotStarted {}

/// Starts every node with `start_one`.
///
/// # Errors
/// Every node that does not start. The others have ended, and their pods run on.
pub(super) async fn start<'n, F>(
    names: &'n [NodeName],
    start_one: impl Fn(&'n NodeName) -> F,
) -> Result<BTreeMap<NodeName, Node>, NodesNotStarted>
where
    F: Future<Output = Result<Node, NodeError>>,
{
    let Starts { started, failed } = side_by_side(names, start_one).await;
    if failed.is_empty() {
        return Ok(started);
    }
    for node in started.into_values() {
        node.leave().await;
    }
    Err(NodesNotStarted(failed))
}

async fn side_by_side<'n, T, E, F>(
    names: &'n [NodeName],
    start_one: impl Fn(&'n NodeName) -> F,
) -> Starts<T>
where
    E: Error,
    F: Future<Output = Result<T, E>>,
{
    let starts = names.iter().map(|name| {
        let starting = start_one(name);
        async move { (name, starting.await) }
    });
    let ends: Vec<(&NodeName, Result<T, E>)> =
        stream::iter(starts).buffer_unordered(STARTS_MAX).collect().await;
    let mut starts = Starts { started: BTreeMap::new(), failed: BTreeMap::new() };
    for (name, end) in ends {
        match end {
            Ok(node) => {
                starts.started.insert(name.clone(), node);
            }
            Err(error) => {
                starts.failed.insert(name.clone(), error_chain(&error));
            }
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::sync::Barrier;

    use super::*;

    fn names(count: usize) -> Vec<NodeName> {
        (0..count).map(|number| format!("gw-{number}").parse().expect("a name")).collect()
    }

    #[tokio::test]
    async fn nodes_start_side_by_side() {
        let names = names(STARTS_MAX);
        // None of them gets past it before all have begun.
        let all = Barrier::new(STARTS_MAX);
        let starts = side_by_side(&names, |name| {
            let all = &all;
            async move {
                all.wait().await;
                Ok::<_, io::Error>(name.clone())
            }
        });
        let starts = tokio::time::timeout(std::time::Duration::from_secs(20), starts).await;
        let starts = starts.expect("no start waits for another one");
        assert_eq!(starts.started.len(), STARTS_MAX);
        assert!(starts.failed.is_empty());
    }

    #[tokio::test]
    async fn every_node_that_does_not_start_is_named() {
        let names = names(3);
        let starts = side_by_side(&names, |name| async move {
            if name.as_str() == "gw-1" { Ok(()) } else { Err(io::Error::other("no room")) }
        });
        let starts = starts.await;
        assert_eq!(starts.started.len(), 1);
        assert_eq!(
            NodesNotStarted(starts.failed).to_string(),
            "node gw-0 does not start: no room; node gw-2 does not start: no room"
        );
    }
}
