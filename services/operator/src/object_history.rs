//! The history of an object: its events and those of the objects that it names, from the downstream
//! log, and the reports of its node, from the upstream log. It names changed fields, never values.

mod change;
mod report;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use alphanumeric_sort::compare_str;
use bytes::Bytes;
use headwater_controller::Filter;
use headwater_event::{EntryKey, Event, NodeName, ResourceKey, StreamId};
use headwater_log::history::{HistoryItem, StreamHistory};
use headwater_object::references::references;
use headwater_proto::operator::{
    StoryEvent, StoryReference, StoryRequest, StoryResponse, StoryStream,
};
use headwater_view::StreamReader;
use serde_json::Value;
use tonic::Status;

use super::objects::{self, Objects};
use super::{OperatorDependencies, internal, stream_history};

/// The most events, and the most reports, of one response.
const EVENTS_MAX: usize = 1_000;

/// The most pods in the list of the users of an object.
const USED_BY_MAX: usize = 1_000;

/// The most streams of one response. A ConfigMap may be in the streams of thousands of nodes, and each
/// is read from the start of the log.
const STREAMS_MAX: usize = 8;

/// Returns the events and reports of an object.
pub(super) async fn object_history(
    dependencies: &OperatorDependencies,
    request: &StoryRequest,
) -> Result<StoryResponse, Status> {
    let namespace = Some(request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let key = ResourceKey::new(namespace, &request.r#type, &request.name)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let most = usize::try_from(request.events_max).unwrap_or(EVENTS_MAX).clamp(1, EVENTS_MAX);
    let mut history = StoryResponse::default();
    let mut wanted = BTreeSet::from([key.clone()]);
    let mut streams: Vec<StreamId> = match key.kind() {
        "node" => key.name().parse().ok().map(|node| StreamId::node(&node)).into_iter().collect(),
        "service" | "endpoints" | "endpointslice" | "namespace" => vec![StreamId::Cluster],
        "pod" => {
            let pod = pods(dependencies, &key, key.name()).await?.remove(&key);
            let node = pod.as_ref().and_then(node_of);
            if let Some(pod) = &pod {
                history.references = named(dependencies, &key, pod, node.as_ref())?;
                wanted.extend(references(&key, pod).into_iter().map(|reference| reference.key));
            }
            node.map(|node| StreamId::node(&node)).into_iter().collect()
        }
        _ => {
            let pods = users(dependencies, &key).await?;
            history.used_by = pods
                .keys()
                .take(USED_BY_MAX)
                .map(|pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name()))
                .collect();
            streams_of(pods.into_values().flatten())
        }
    };
    if !request.node.is_empty() && streams != [StreamId::Cluster] {
        streams = vec![StreamId::node(&dependencies.named(&request.node)?)];
    }
    // An edge has no log, so it knows only the references.
    let Some(logs) = &dependencies.logs else { return Ok(history) };
    history.more_streams = streams.len().saturating_sub(STREAMS_MAX) as u64;
    // For a node, every event of its stream counts.
    let wanted = (key.kind() != "node").then_some(wanted);
    for stream in streams.into_iter().take(STREAMS_MAX) {
        let (events, earlier_events) = events(dependencies, &stream, wanted.as_ref(), most).await?;
        let stream = stream.to_string();
        history.streams.push(StoryStream { stream, events, earlier_events });
    }
    if key.kind() == "pod" {
        let (reports, earlier) = report::reports(&*logs.upstream, &key, most).await?;
        (history.reports, history.earlier_reports) = (reports, earlier);
    }
    Ok(history)
}

/// The streams of these nodes, each once, node/node-2 before node/node-10.
fn streams_of(nodes: impl Iterator<Item = NodeName>) -> Vec<StreamId> {
    let nodes: BTreeSet<NodeName> = nodes.collect();
    let mut nodes: Vec<NodeName> = nodes.into_iter().collect();
    nodes.sort_by(|a, b| compare_str(a.as_str(), b.as_str()));
    nodes.iter().map(StreamId::node).collect()
}

/// The pods of the key's namespace as this part has them, with this name if given.
async fn pods(
    dependencies: &OperatorDependencies,
    key: &ResourceKey,
    name: &str,
) -> Result<Objects, Status> {
    let namespace = key.namespace().unwrap_or_default();
    let filter = Filter { kind: "pod", namespace, name };
    objects::now(dependencies, &filter).await
}

fn node_of(pod: &Value) -> Option<NodeName> {
    pod.pointer("/spec/nodeName")?.as_str()?.parse().ok()
}

/// Returns the objects that a pod names, and whether each is present at the pod's node.
fn named(
    dependencies: &OperatorDependencies,
    key: &ResourceKey,
    pod: &Value,
    node: Option<&NodeName>,
) -> Result<Vec<StoryReference>, Status> {
    let replica =
        node.and_then(|node| dependencies.nodes.get(node)).and_then(|view| view.replica());
    let is_present = |key: &ResourceKey| match (&replica, node) {
        (Some(state), Some(node)) => StreamReader::new(&**state)
            .entry(&StreamId::node(node), &EntryKey::from(key.clone()))
            .map(|entry| entry.is_some())
            .map_err(|error| internal(&error)),
        _ => Ok(dependencies.picture()?.object(key).is_some()),
    };
    references(key, pod)
        .into_iter()
        .map(|reference| {
            Ok(StoryReference {
                present: is_present(&reference.key)?,
                key: reference.key.to_string(),
                required: reference.required,
            })
        })
        .collect()
}

/// Returns the pods that name an object, each with its node.
async fn users(
    dependencies: &OperatorDependencies,
    key: &ResourceKey,
) -> Result<BTreeMap<ResourceKey, Option<NodeName>>, Status> {
    let all = pods(dependencies, key, "").await?.into_iter();
    let users = all.filter(|(pod, object)| {
        references(pod, object).iter().any(|reference| reference.key == *key)
    });
    Ok(users.map(|(pod, object)| (pod, node_of(&object))).collect())
}

/// Returns the newest wanted events of a stream (`None`: all), and the number of earlier ones.
async fn events(
    dependencies: &OperatorDependencies,
    stream: &StreamId,
    wanted: Option<&BTreeSet<ResourceKey>>,
    most: usize,
) -> Result<(Vec<StoryEvent>, u64), Status> {
    let metadata = stream_history::log_metadata(dependencies).await?;
    let now_ms = (dependencies.wall_clock)();
    let mut history =
        StreamHistory::open(&*dependencies.logs()?.downstream, metadata, stream, now_ms)
            .await
            .map_err(|error| internal(&error))?;
    let mut newest = VecDeque::with_capacity(most);
    let mut earlier = 0;
    // The previous bytes of each entry, to name the fields that an event changed.
    let mut before: BTreeMap<EntryKey, Bytes> = BTreeMap::new();
    loop {
        let envelope = match history.next().await.map_err(|error| internal(&error))? {
            HistoryItem::Event(envelope) => envelope,
            HistoryItem::Hole(_) | HistoryItem::Malformed(_) => continue,
            HistoryItem::End => return Ok((newest.into(), earlier)),
        };
        let Some(key) = envelope.event.key().cloned() else { continue };
        let is_wanted =
            wanted.is_none_or(|wanted| key.resource().is_some_and(|key| wanted.contains(key)));
        if !is_wanted {
            continue;
        }
        let kind = envelope.event.kind();
        let change = match envelope.event {
            Event::Applied(applied) => {
                let was = before.insert(key.clone(), applied.object.clone());
                change::of(was.as_deref(), &applied.object)
            }
            Event::Removed(_) => {
                before.remove(&key);
                "removed".to_owned()
            }
            Event::Head => String::new(),
        };
        if newest.len() == most {
            newest.pop_front();
            earlier += 1;
        }
        newest.push_back(StoryEvent {
            seq: envelope.seq.0,
            time_ms: envelope.time_ms,
            kind,
            writer_epoch: envelope.epoch.0,
            key: key.as_str().to_owned(),
            change,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_several_nodes_is_in_the_stream_of_each_once() {
        let nodes = ["node-10", "node-2", "node-10"].map(|node| node.parse().expect("a name"));
        let streams: Vec<String> =
            streams_of(nodes.into_iter()).iter().map(ToString::to_string).collect();
        assert_eq!(streams, ["node/node-2", "node/node-10"]);
    }
}
