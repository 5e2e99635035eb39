//! Objects of the cloud's picture or of a node's replica, present or past.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use headwater_controller::{Filter, Picture, as_deleted};
use headwater_event::{NodeName, ResourceKey, StreamId};
use headwater_hub::WallClock;
use headwater_log::history::PastState;
use headwater_object::ObjectType;
use headwater_object::payload::set_resource_version;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::{Operation, operation::Verb, operation_result::Outcome};
use headwater_proto::operator::{GetRequest, GetResponse};
use headwater_view::{Selection, StreamReader};
use serde_json::{Value, json};
use tonic::Status;

use super::mask::mask;
use super::past_position::PastPosition;
use super::past_statuses::PastStatuses;
use super::picture_list::PictureList;
use super::{OperatorDependencies, internal, stream_history};
use crate::node_view::NodeView;

/// The entries of one read from a replica.
const CHUNK_ENTRIES: usize = 256;

pub(super) type Objects = BTreeMap<ResourceKey, Value>;

/// The bytes of the objects of one response; one object may exceed it.
const RESPONSE_PART_BYTES: usize = 1 << 20;

/// The requested objects.
pub(super) struct ObjectList {
    pub(super) objects: Objects,
    /// `None`: they are of now.
    pub(super) past: Option<PastMoment>,
}

/// The moment of a past state.
pub(super) struct PastMoment {
    /// The position of each stream, in words.
    positions: Vec<String>,
    /// The moment, in milliseconds since the Unix epoch.
    moment_ms: i64,
    /// Whether the objects have the statuses of the moment; a stream at a seq has none.
    has_statuses: bool,
}

/// Streams the requested objects. The cloud's picture is read as the client receives.
pub(super) async fn get(
    dependencies: OperatorDependencies,
    request: GetRequest,
) -> Result<impl Stream<Item = Result<GetResponse, Status>> + Send, Status> {
    let is_present = request.node.is_empty() && request.at.is_empty();
    if is_present && dependencies.own_node().is_none() && !is_workload(&request) {
        let picture = dependencies.picture()?.clone();
        return Ok(pages(picture, dependencies.wall_clock.clone(), request).left_stream());
    }
    let found = find(&dependencies, &request).await?;
    let parts = parts(found, request.show_secrets);
    Ok(stream::iter(parts).map(Ok).right_stream())
}

/// Streams the pages of the picture: at least one, also of an empty list.
fn pages(
    picture: Picture,
    clock: WallClock,
    request: GetRequest,
) -> impl Stream<Item = Result<GetResponse, Status>> + Send {
    let state = (PictureList::new(picture), clock, request);
    stream::try_unfold(state, |(mut list, clock, request)| async move {
        let show_secrets = request.show_secrets;
        let form = move |key: ResourceKey, object| text(&key, object, show_secrets);
        let objects = list.next(&filter(&request), clock(), form).await?;
        let response = objects.map(|objects| GetResponse { objects, ..GetResponse::default() });
        Ok(response.map(|response| (response, (list, clock, request))))
    })
}

/// The responses of a list that was read at once: at least one. The first one has the moment.
fn parts(ObjectList { objects, past }: ObjectList, show_secrets: bool) -> Vec<GetResponse> {
    let first = match past {
        None => GetResponse::default(),
        Some(PastMoment { positions, moment_ms, has_statuses }) => GetResponse {
            positions,
            moment_ms,
            without_statuses: !has_statuses,
            ..GetResponse::default()
        },
    };
    let mut parts = vec![first];
    let mut bytes = 0;
    for (key, object) in objects {
        let object = text(&key, object, show_secrets);
        if bytes + object.len() > RESPONSE_PART_BYTES && bytes > 0 {
            parts.push(GetResponse::default());
            bytes = 0;
        }
        bytes += object.len();
        parts.last_mut().into_iter().for_each(|part| part.objects.push(object.clone()));
    }
    parts
}

/// An object as JSON text, a Secret's values hidden unless they are to be shown.
fn text(key: &ResourceKey, mut object: Value, show_secrets: bool) -> Bytes {
    if !show_secrets {
        mask(key.kind(), &mut object);
    }
    object.to_string().into()
}

/// Returns the requested objects, present or past.
pub(super) async fn find(
    dependencies: &OperatorDependencies,
    request: &GetRequest,
) -> Result<ObjectList, Status> {
    let filter = filter(request);
    if is_workload(request) {
        return Ok(ObjectList { objects: workloads(dependencies, request)?, past: None });
    }
    let at = PastPosition::parse(&request.at, (dependencies.wall_clock)());
    let at = at.map_err(|status| Status::invalid_argument(format!("--at {}", status.message())))?;
    match (request.node.is_empty(), at) {
        (true, None) => Ok(ObjectList { objects: now(dependencies, &filter).await?, past: None }),
        (false, None) => {
            let (node, view) = dependencies.node(&request.node)?;
            Ok(ObjectList { objects: of_replica(&node, &view, &filter).await?, past: None })
        }
        (true, Some(PastPosition::Seq(_))) => Err(Status::invalid_argument(
            "--at with a seq needs --node, because a seq belongs to one stream",
        )),
        (true, Some(PastPosition::Time(ms))) => {
            dependencies.logs()?;
            let streams = dependencies.known_streams()?;
            let mut found = past_at_time(dependencies, &filter, &streams, ms).await?;
            add_past_statuses(dependencies, &filter, None, ms, &mut found.objects).await?;
            Ok(found)
        }
        (false, Some(at)) => {
            dependencies.logs()?;
            let node = dependencies.named(&request.node)?;
            let private = StreamId::node(&node);
            match at {
                PastPosition::Seq(_) => past_at_seq(dependencies, &filter, &private, at).await,
                PastPosition::Time(ms) => {
                    let streams = [private, StreamId::Cluster];
                    let mut found = past_at_time(dependencies, &filter, &streams, ms).await?;
                    let objects = &mut found.objects;
                    add_past_statuses(dependencies, &filter, Some(&node), ms, objects).await?;
                    Ok(found)
                }
            }
        }
    }
}

/// Whether a request is for workloads, which are not replicated.
pub(super) fn is_workload(request: &GetRequest) -> bool {
    ObjectType::workload_named(&request.r#type).is_some()
}

/// Returns the workloads of the controller's source, with the counts of their pods.
fn workloads(dependencies: &OperatorDependencies, request: &GetRequest) -> Result<Objects, Status> {
    let plural = ObjectType::workload_named(&request.r#type).map_or("workloads", |of| of.plural);
    if !request.node.is_empty() || !request.at.is_empty() {
        return Err(Status::invalid_argument(format!(
            "{plural} are not replicated, so that no node and no log has them: remove --node and --at"
        )));
    }
    let picture = dependencies.picture()?;
    let found = picture.workloads(&filter(request), (dependencies.wall_clock)());
    let Some(found) = found.map_err(|error| internal(&error))? else {
        return Err(Status::failed_precondition(format!(
            "the controller's source has no workloads, so that there are no {plural}: the objects \
             socket gets their pods. Ask the cluster that they come from"
        )));
    };
    let keyed = found.into_iter().filter_map(|object| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name")?);
        let key = ResourceKey::new(namespace, &request.r#type, name).ok()?;
        Some((key, object))
    });
    Ok(keyed.collect())
}

/// Returns the selection of objects of a request.
pub(super) fn filter(request: &GetRequest) -> Filter<'_> {
    Filter { kind: &request.r#type, namespace: &request.namespace, name: &request.name }
}

/// Returns the objects for a request without a node: of the replica at an edge, else of the
/// picture.
pub(super) async fn now(
    dependencies: &OperatorDependencies,
    filter: &Filter<'_>,
) -> Result<Objects, Status> {
    match dependencies.own_node() {
        Some((node, view)) => of_replica(node, view, filter).await,
        None => {
            let mut list = PictureList::new(dependencies.picture()?.clone());
            let now_ms = (dependencies.wall_clock)();
            let mut objects = Objects::new();
            while let Some(page) = list.next(filter, now_ms, |key, object| (key, object)).await? {
                objects.extend(page);
            }
            Ok(objects)
        }
    }
}

/// Returns the objects of a node in this process, with the statuses that it reported.
async fn of_replica(
    node: &NodeName,
    view: &NodeView,
    filter: &Filter<'_>,
) -> Result<Objects, Status> {
    let state = view.replica().ok_or_else(|| {
        let why =
            view.failure().map_or_else(|| "it does not run".to_owned(), |failure| failure.reason);
        Status::unavailable(format!("the edge of node {node}: {why}"))
    })?;
    let mut objects = {
        let snapshot = state.snapshot();
        replica(&StreamReader::new(&*snapshot), filter).map_err(|error| internal(&error))?
    };
    if let Some(socket) = view.socket() {
        add_statuses(socket, &mut objects).await?;
    }
    Ok(objects)
}

/// Adds the statuses that all nodes, or `only` one, had reported by a time.
async fn add_past_statuses(
    dependencies: &OperatorDependencies,
    filter: &Filter<'_>,
    only: Option<&NodeName>,
    ms: i64,
    objects: &mut Objects,
) -> Result<(), Status> {
    let past = PastStatuses::read(&*dependencies.logs()?.upstream, ms)
        .await
        .map_err(|error| internal(&error))?;
    for (node, reported) in past.nodes().filter(|(node, _)| only.is_none_or(|only| only == *node)) {
        let Ok(key) = ResourceKey::new(None, "node", node.as_str()) else { continue };
        if filter.matches(&key) {
            let object = objects.entry(key).or_insert_with(|| reported.clone());
            object["status"] = reported["status"].clone();
        }
    }
    for (key, pod) in objects.iter_mut().filter(|(key, _)| key.kind() == "pod") {
        let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let Ok(node) = text("/spec/nodeName").parse::<NodeName>() else { continue };
        if let Some(status) = past.status(key, &node, text("/metadata/uid")) {
            pod["status"] = status;
        }
    }
    Ok(())
}

/// Returns a node's private stream at a seq, and its shared streams at the same time.
async fn past_at_seq(
    dependencies: &OperatorDependencies,
    filter: &Filter<'_>,
    private: &StreamId,
    at: PastPosition,
) -> Result<ObjectList, Status> {
    let own = stream_history::fold(dependencies, private, at.until()).await?;
    let moment_ms = own.time_ms;
    let then = PastPosition::Time(moment_ms).until();
    let shared = stream_history::fold(dependencies, &StreamId::Cluster, then).await?;
    let positions = vec![position(private, &own), position(&StreamId::Cluster, &shared)];
    let mut objects = Objects::new();
    add_past(&mut objects, filter, &own);
    add_past(&mut objects, filter, &shared);
    Ok(ObjectList { objects, past: Some(PastMoment { positions, moment_ms, has_statuses: false }) })
}

/// Returns streams at a time. Statuses are added afterwards.
async fn past_at_time(
    dependencies: &OperatorDependencies,
    filter: &Filter<'_>,
    streams: &[StreamId],
    moment_ms: i64,
) -> Result<ObjectList, Status> {
    let (mut objects, mut positions) = (Objects::new(), Vec::new());
    let mut is_before_all = true;
    for stream in streams {
        let past = stream_history::fold_at_time(dependencies, stream, moment_ms).await?;
        is_before_all &= past.seq.0 == 0;
        positions.push(position(stream, &past));
        add_past(&mut objects, filter, &past);
    }
    if is_before_all {
        return Err(stream_history::outside(dependencies, streams, moment_ms).await?);
    }
    Ok(ObjectList { objects, past: Some(PastMoment { positions, moment_ms, has_statuses: true }) })
}

fn position(stream: &StreamId, past: &PastState) -> String {
    format!("{stream} seq {}", past.seq)
}

fn add_past(objects: &mut Objects, filter: &Filter<'_>, past: &PastState) {
    for (key, entry) in &past.entries {
        if let Some(key) = key.resource().filter(|key| filter.matches(key)) {
            objects.insert(
                key.clone(),
                versioned(&entry.applied.object, &entry.applied.resource_version),
            );
        }
    }
}

/// Returns the requested objects of a replica.
fn replica(
    reader: &StreamReader<'_>,
    filter: &Filter<'_>,
) -> Result<Objects, headwater_store::EngineError> {
    let selection = match filter.kind {
        "" => Selection::All,
        kind => Selection::Kind(kind),
    };
    let mut objects = Objects::new();
    for position in reader.streams()? {
        for entry in reader.all_entries(&position.stream, selection, CHUNK_ENTRIES) {
            let (key, entry) = entry?;
            if let Some(key) = key.resource().filter(|key| filter.matches(key)) {
                objects.insert(key.clone(), versioned(&entry.object, &entry.resource_version));
            }
        }
    }
    Ok(objects)
}

/// Adds the statuses that the node's pod worker reported to the edge. Returns the pods that have one.
async fn add_statuses(
    socket: &std::path::Path,
    objects: &mut Objects,
) -> Result<BTreeSet<ResourceKey>, Status> {
    let mut reported = BTreeSet::new();
    let namespaces: BTreeSet<String> = objects
        .keys()
        .filter(|key| key.kind() == "pod")
        .filter_map(|key| key.namespace().map(str::to_owned))
        .collect();
    if namespaces.is_empty() {
        return Ok(reported);
    }
    let channel =
        crate::client::channel(socket.to_owned()).await.map_err(|error| internal(&error))?;
    let mut edge =
        MetaClient::new(channel).max_decoding_message_size(crate::client::RESPONSE_BYTES_MAX);
    for namespace in namespaces {
        let operation = Operation {
            id: namespace.clone(),
            source: "operator".to_owned(),
            verb: Verb::Query.into(),
            resource: format!("{namespace}/podstatus"),
            ..Operation::default()
        };
        let result = edge.operate(operation).await?.into_inner();
        let Some(Outcome::Objects(found)) = result.outcome else { continue };
        for status in found.objects {
            let Ok(key) = status.key.parse::<ResourceKey>() else { continue };
            let key = key.with_kind("pod");
            let Some(pod) = objects.get_mut(&key) else { continue };
            if pod.pointer("/metadata/uid").and_then(Value::as_str) == Some(status.uid.as_str()) {
                pod["status"] = value(&status.object);
                reported.insert(key);
            }
        }
    }
    Ok(reported)
}

/// Of pods that left the replica, those that the node's pod worker has not ended.
pub(super) async fn ending_at(
    view: &NodeView,
    mut pods: Objects,
    now_ms: i64,
) -> Result<Objects, Status> {
    let Some(socket) = view.socket().filter(|_| !pods.is_empty()) else {
        return Ok(Objects::new());
    };
    let reported = add_statuses(socket, &mut pods).await?;
    let ending = pods.into_iter().filter(|(key, _)| reported.contains(key));
    Ok(ending.map(|(key, pod)| (key, as_deleted(pod, now_ms))).collect())
}

/// The object of a payload, with its resource version.
fn versioned(payload: &[u8], resource_version: &str) -> Value {
    let mut object = value(payload);
    set_resource_version(&mut object, resource_version);
    object
}

/// Parses an object's JSON, which the source has checked.
fn value(object: &[u8]) -> Value {
    serde_json::from_slice(object).unwrap_or_else(|error| json!({"unreadable": error.to_string()}))
}
