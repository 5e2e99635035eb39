//! An edge: databases that another program wrote, and requests of the node's programs.
//!
//! The edge is the real one, without threads, sockets or a hub; its clock jumps over every wait.

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use headwater_edge::{Edge, EdgeConfig, EdgeDependencies};
use headwater_event::upstream::encode_report;
use headwater_event::{
    Applied, Change, Checkpoint, HashKey, LogId, NodeName, ObjectHash, Report, ReportBody,
    ReportId, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_proto::local::meta_server::Meta;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::{Operation, StatusRequest, WatchRequest};
use headwater_store::key::Key;
use headwater_store::{Durability, Engine, MemoryEngine, TableId, WriteBatch, schema};
use headwater_view::{Advance, AdvanceMode, FoldBounds, StreamState};
use prost::Message;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::{Request, Status};
use uuid::Uuid;

/// Requests of one input: more find nothing that fewer would not.
const REQUESTS_MAX: usize = 24;

/// Watches that are held open by one input.
const WATCHES_MAX: usize = 70;

/// An answer takes no longer, on a clock that jumps over waits: a query waits a minute at most.
const ANSWERED_WITHIN: Duration = Duration::from_secs(300);

/// The tables of an outbox database.
const OUTBOX: [TableId; 5] = [
    TableId::OutboxReports,
    TableId::OutboxOrder,
    TableId::Identity,
    TableId::PodStatuses,
    TableId::AcknowledgedStatuses,
];

/// Any rows in the outbox of an edge, which starts on it, is asked, and starts again.
pub fn outbox(bytes: &[u8]) {
    let _ = outbox_of(&mut Unstructured::new(bytes));
}

/// Any operations and watches at the local API of an edge that holds a pod and what it names.
pub fn local(bytes: &[u8]) {
    let _ = run(
        async |input| {
            let bare = start(replica(), Arc::default()).expect("nothing is wrong with it");
            ask(&bare, input, REQUESTS_MAX).await
        },
        bytes,
    );
}

fn outbox_of(input: &mut Unstructured<'_>) -> Result<()> {
    let rows = rows(input)?;
    let rest = input.bytes(input.len())?;
    run(
        async |input| {
            let engine = Arc::new(MemoryEngine::new());
            schema::OUTBOX.check(&*engine).expect("it is new");
            engine.write(rows, Durability::Synced).expect("memory takes it");
            let _ = headwater_edge::read_outbox(&*engine, &node());
            for _ in 0..2 {
                // An edge that does not start says why.
                let Ok(bare) = start(replica(), engine.clone()) else { return Ok(()) };
                ask(&bare, input, 4).await?;
            }
            headwater_edge::read_outbox(&*engine, &node()).expect("an edge has run on it");
            Ok(())
        },
        rest,
    )
}

/// Runs a scene on a clock that jumps.
fn run(scene: impl AsyncFnOnce(&mut Unstructured<'_>) -> Result<()>, bytes: &[u8]) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(scene(&mut Unstructured::new(bytes)))
}

/// A running edge.
struct Running<M> {
    meta: M,
    tasks: JoinSet<()>,
}

fn start(
    state: Arc<MemoryEngine>,
    outbox: Arc<MemoryEngine>,
) -> std::result::Result<Running<impl Meta>, headwater_edge::StartError> {
    let config = EdgeConfig::new(node(), Vec::<std::net::SocketAddr>::new(), "none".into());
    let dial = Arc::new(|_| -> futures::future::BoxFuture<'static, _> {
        Box::pin(async { Err(Status::unavailable("there is no hub")) })
    });
    let bare = Edge::open(&config, state, outbox, EdgeDependencies::default(), dial)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async { drop(bare.replica.await) });
    tasks.spawn(async { drop(bare.syncer.await) });
    tasks.spawn(async { drop(bare.outbox.await) });
    tasks.spawn(bare.session);
    Ok(Running { meta: bare.meta, tasks })
}

/// Asks; each question is answered, or refused in words, and its owner goes on.
async fn ask<M: Meta>(edge: &Running<M>, input: &mut Unstructured<'_>, most: usize) -> Result<()> {
    let mut watches = Vec::new();
    for _ in 0..most {
        if input.is_empty() {
            break;
        }
        match input.arbitrary::<u8>()? {
            0..64 => {
                let request = watch(input)?;
                let times = if input.ratio(1, 64)? { WATCHES_MAX } else { 1 };
                for _ in 0..times {
                    match in_time(edge.meta.watch(Request::new(request.clone()))).await {
                        Ok(events) => watches.push(Box::pin(events.into_inner())),
                        Err(status) => assert_in_words(&status),
                    }
                }
            }
            64..96 => {
                // The first is all of its listing; others are never read.
                if let Some(events) = watches.first_mut() {
                    let next = tokio::time::timeout(Duration::from_millis(1), events.next()).await;
                    if let Ok(Some(Err(status))) = next {
                        assert_in_words(&status);
                    }
                }
            }
            _ => {
                let operation = operation(input)?;
                let id = operation.id.clone();
                match in_time(edge.meta.operate(Request::new(operation))).await {
                    Ok(result) => {
                        let result = result.into_inner();
                        assert_eq!(result.id, id, "the answer is to another question");
                        if let Some(Outcome::Failure(failure)) = &result.outcome {
                            assert!(!failure.message.is_empty(), "refused without a word");
                        }
                        assert!(result.outcome.is_some(), "an answer without content");
                    }
                    Err(status) => assert_in_words(&status),
                }
            }
        }
    }
    let status = in_time(edge.meta.status(Request::new(StatusRequest {}))).await;
    let status = status.expect("it goes on, whatever it was asked").into_inner();
    assert_eq!(status.node, node().as_str());
    assert_eq!(edge.tasks.len(), 4);
    Ok(())
}

async fn in_time<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(ANSWERED_WITHIN, answer).await.expect("it is answered")
}

fn assert_in_words(status: &Status) {
    assert!(!status.message().is_empty(), "refused without a word: {:?}", status.code());
}

fn node() -> NodeName {
    "a".parse().expect("a node name")
}

/// A replica with a pod, what it names, and a service.
fn replica() -> Arc<MemoryEngine> {
    let engine = Arc::new(MemoryEngine::new());
    schema::NODE_STATE.check(&*engine).expect("it is new");
    let mut state = StreamState::open(engine.clone(), FoldBounds::default()).expect("empty");
    let log_id = LogId { number: 1, uuid: Uuid::from_u128(1) };
    let (private, shared) = (StreamId::node(&node()), StreamId::Cluster);
    for (stream, keys) in [
        (private, &["ns/pod/p", "ns/configmap/c", "ns/secret/s", "null/node/a"][..]),
        (shared, &["ns/service/w"]),
    ] {
        let (mut changes, mut hash) = (Vec::new(), StateHash::EMPTY);
        for key in keys {
            let key = key.parse().expect("an entry key");
            let object = Bytes::from_static(br#"{"metadata":{"uid":"u"},"spec":{}}"#);
            hash.add(&HashKey::new(&log_id), &key, &ObjectHash::of(&object));
            let (uid, resource_version) = ("u".to_owned(), "1".to_owned());
            changes.push(Change::Applied(Applied { key, uid, resource_version, object }));
        }
        let to = Checkpoint { log_id, epoch: WriterEpoch(1), seq: Seq(keys.len() as u64) };
        let advance = Advance::new(stream, AdvanceMode::Snapshot, Seq::ZERO, to, hash, changes);
        state.apply_advance(advance, &mut Vec::new()).expect("it adds up");
    }
    state.commit(Durability::Synced).expect("memory takes it");
    engine
}

/// What an outbox keeps of a report.
#[derive(Clone, PartialEq, Message)]
struct ReportRow {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
    #[prost(bytes = "bytes", tag = "3")]
    header: Bytes,
    #[prost(string, optional, tag = "4")]
    traceparent: Option<String>,
}

/// Rows: as an edge writes them with other numbers and texts in them, and any at all.
fn rows(input: &mut Unstructured<'_>) -> Result<WriteBatch> {
    let mut batch = WriteBatch::default();
    for _ in 0..input.int_in_range(0..=6_u8)? {
        let table = *input.choose(&OUTBOX)?;
        let mut key = vec![table.prefix()];
        let is_well_formed = input.ratio(7, 8)?;
        let value = match table {
            TableId::Identity if is_well_formed => identity(input)?,
            TableId::OutboxReports if is_well_formed => {
                let id = report_id(input)?;
                id.encode_key(&mut key);
                report(input, id)?
            }
            TableId::PodStatuses | TableId::AcknowledgedStatuses if is_well_formed => {
                text(input, &["ns/pod/p", "ns/pod/q", "ns/podstatus/p", "null/node/a"])?
                    .encode_key(&mut key);
                // The UID, and a status or a hash of 32 bytes.
                let length = *input.choose(&[0_u8, 2, 31, 32, 33])?;
                let mut row = vec![0x0a, 1, b'u', 0x12, length];
                row.extend(std::iter::repeat_n(b'7', usize::from(length)));
                row
            }
            _ => {
                key.extend(input.arbitrary::<Vec<u8>>()?);
                input.arbitrary()?
            }
        };
        batch.put(key, value);
    }
    Ok(batch)
}

fn identity(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let row = serde_json::json!({
        "incarnation": if input.ratio(1, 8)? { number(input)? } else { 1 },
        "boot": {"number": number(input)?, "nonce": number(input)?},
        "reserved_through": number(input)?,
        "base": if input.arbitrary()? { Some(number(input)?) } else { None },
        "full_since": if input.arbitrary()? { Some(report_id(input)?) } else { None },
    });
    Ok(row.to_string().into())
}

fn report_id(input: &mut Unstructured<'_>) -> Result<ReportId> {
    let incarnation = headwater_event::Incarnation(number(input)?);
    Ok(ReportId { incarnation, boot: number(input)?, seq: number(input)? })
}

fn report(input: &mut Unstructured<'_>, id: ReportId) -> Result<Vec<u8>> {
    let key = text(input, &["ns/pod/p", "ns/pod/q", "ns/configmap/c"])?.parse();
    let Ok(key) = key else { return input.arbitrary() };
    let content = Bytes::from(text(input, &["{}", "null", "[]", "1e999"])?);
    let uid = text(input, &["u", "v", ""])?;
    let body = match input.int_in_range(0..=4_u8)? {
        0 => ReportBody::Node { object: content },
        1 => ReportBody::PodStatus { pod: key, uid, status: content },
        2 => ReportBody::PodTerminated { pod: key, uid },
        3 => ReportBody::Event { key, object: content },
        _ => ReportBody::Message { key, content },
    };
    let report = Report { id, body, traceparent: None };
    let node = *input.choose(&["a", "b"])?;
    let node = node.parse().expect("a node name");
    let Ok(record) = encode_report(&node, &report) else { return input.arbitrary() };
    let (key, value, header) = (record.key, record.value, record.header);
    let traceparent = Some(text(input, &["00-1-2-03"])?);
    Ok(ReportRow { key, value, header, traceparent }.encode_to_vec())
}

fn operation(input: &mut Unstructured<'_>) -> Result<Operation> {
    let verb = if input.ratio(1, 16)? {
        input.arbitrary()?
    } else {
        input.int_in_range(0..=Verb::ControllerUnpublishVolume as i32 + 1)?
    };
    Ok(Operation {
        id: text(input, &["1", ""])?,
        parent_id: text(input, &["1", ""])?,
        source: text(input, &["edged", "function", "mesh", "function-manager", "metamanager", ""])?,
        verb,
        resource: text(
            input,
            &[
                "ns/pod/p",
                "ns/podstatus/p",
                "ns/podstatus/gone",
                "null/node/a",
                "null/node/b",
                "ns/pod",
                "ns/podstatus",
                "ns/secret/absent",
                "ns/volumeattachment/v",
                "null/connection/a",
                "ns/service/w",
                "ns/function/f",
                "ns/lease/l",
                "a/b/c/d",
                "/",
                "",
            ],
        )?,
        content: Bytes::from(text(
            input,
            &[
                "{}",
                "{\"uid\":\"u\"}",
                "{\"uid\":\"u\",\"status\":{}}",
                "{\"uid\":\"v\",\"status\":{\"phase\":\"Running\"}}",
                "{\"uid\":\"u\",\"status\":1e999}",
                "{\"connected\":true}",
                "{\"metadata\":{\"name\":\"a\"}}",
                "null",
                "",
            ],
        )?),
    })
}

fn watch(input: &mut Unstructured<'_>) -> Result<WatchRequest> {
    let mut types = Vec::new();
    for _ in 0..input.int_in_range(0..=3_u8)? {
        types.push(text(input, &["pod", "podstatus", "service", ""])?);
    }
    if input.ratio(1, 32)? {
        types.resize(usize::from(input.arbitrary::<u16>()?), String::new());
    }
    let subscriber = text(input, &["edged", "mesh", "function"])?;
    Ok(WatchRequest { subscriber, types, namespace: text(input, &["", "ns", "none"])? })
}

/// Mostly one of these, now and then any text.
fn text(input: &mut Unstructured<'_>, usual: &[&str]) -> Result<String> {
    Ok(match input.ratio(7, 8)? {
        true => (*input.choose(usual)?).to_owned(),
        false => input.arbitrary()?,
    })
}

/// Small numbers, and those at which counting ends.
fn number(input: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match input.arbitrary::<u8>()? {
        small @ 0..200 => u64::from(small),
        near @ 200..230 => u64::MAX - u64::from(near - 200) * 100,
        near @ 230..250 => i64::MAX as u64 + u64::from(near) - 240,
        _ => input.arbitrary()?,
    })
}
