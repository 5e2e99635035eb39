//! Both ends of the protocol, each against any peer and any shell.

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use headwater_event::{
    Applied, Assignment, Boot, Change, Checkpoint, DigestKey, EntryDigest, Envelope, Event,
    Identity, Incarnation, LogId, NodeName, ObjectHash, RemovalRuns, Removed, Report, ReportBody,
    ReportId, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_session::message::{
    Ack, Compare, Dial, DialId, DialSupport, Divergence, EdgeHeartbeat, EdgeMessage, Goodbye,
    Hello, HubHeartbeat, HubMessage, ParkNotice, Push, PushMode, PushedChange, Refusal,
    RefusalCode, RefusedReport, ReplicaPosition, Reports, ReportsAcked, Request, RequestError,
    RequestVerb, Response, StreamProgress, Summary, Welcome,
};
use headwater_session::{
    EdgeInput, EdgeSession, EdgeSettings, EdgeState, HubInput, HubOutput, HubSession, HubSettings,
    MemorySource, Readiness,
};
use uuid::Uuid;

/// Inputs of one session: more find nothing that fewer would not.
const INPUTS_MAX: usize = 64;

/// What one input may bring out, at most: a window of small frames.
const OUTPUTS_MAX: usize = 10_000;

/// The edge's end.
pub fn edge(bytes: &[u8]) {
    let _ = edge_of(&mut Unstructured::new(bytes));
}

fn edge_of(input: &mut Unstructured<'_>) -> Result<()> {
    let identity = identity(input)?;
    let state = EdgeState { identity, positions: positions(input)?, assignment: None };
    let settings = EdgeSettings { window_bytes: 600, ..EdgeSettings::default() };
    let mut session = EdgeSession::new(settings, state);
    for _ in 0..INPUTS_MAX {
        if input.is_empty() {
            break;
        }
        let outputs = session.step(edge_input(input)?);
        assert!(outputs.len() < OUTPUTS_MAX, "{} outputs of one input", outputs.len());
        for stream in session.streams() {
            assert!(stream.durable <= stream.applied.map_or(Seq::ZERO, |at| at.seq));
            assert!(stream.received <= stream.tail);
        }
    }
    Ok(())
}

/// The hub's end.
pub fn hub(bytes: &[u8]) {
    let _ = hub_of(&mut Unstructured::new(bytes));
}

fn hub_of(input: &mut Unstructured<'_>) -> Result<()> {
    let source = source();
    let window_bytes = input.int_in_range(0..=3_000)?;
    let tail_events_max = input.int_in_range(0..=10)?;
    let settings = HubSettings { window_bytes, tail_events_max, ..HubSettings::default() };
    let mut session = HubSession::new(settings, node());
    let mut is_closed = false;
    for _ in 0..INPUTS_MAX {
        if input.is_empty() {
            break;
        }
        let outputs = session.step(&source, hub_input(input)?);
        assert!(outputs.len() < OUTPUTS_MAX, "{} outputs of one input", outputs.len());
        assert!(!is_closed || outputs.is_empty(), "a message follows the end");
        for output in outputs {
            match output {
                HubOutput::Close(_) => is_closed = true,
                HubOutput::Send(HubMessage::Push(push)) => {
                    assert!(push.stream.readable_by(&node()), "another node's stream");
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn node() -> NodeName {
    "a".parse().expect("a node name")
}

/// Small numbers, which often fit, and the largest.
fn number(input: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match input.arbitrary::<u8>()? {
        255 => u64::MAX,
        254 => u64::MAX - 1,
        253 => input.arbitrary()?,
        small => u64::from(small % 8),
    })
}

fn seq(input: &mut Unstructured<'_>) -> Result<Seq> {
    number(input).map(Seq)
}

fn stream(input: &mut Unstructured<'_>) -> Result<StreamId> {
    let text = input.choose(&["cluster", "node/a", "node/b"])?;
    Ok(text.parse().expect("a stream"))
}

fn log_id(input: &mut Unstructured<'_>) -> Result<LogId> {
    let number = if input.ratio(1, 4)? { number(input)? } else { 1 };
    Ok(LogId { number, uuid: Uuid::from_u128(if input.ratio(1, 8)? { 2 } else { 1 }) })
}

fn checkpoint(input: &mut Unstructured<'_>) -> Result<Checkpoint> {
    let (log_id, epoch, seq) = (log_id(input)?, WriterEpoch(number(input)?), seq(input)?);
    Ok(Checkpoint { log_id, epoch, seq })
}

fn hash(input: &mut Unstructured<'_>) -> Result<StateHash> {
    Ok(if input.ratio(1, 4)? { StateHash::from_bytes(&[7; 32]) } else { StateHash::EMPTY })
}

fn position(input: &mut Unstructured<'_>) -> Result<ReplicaPosition> {
    let (stream, checkpoint, hash) = (stream(input)?, checkpoint(input)?, hash(input)?);
    Ok(ReplicaPosition { stream, checkpoint, hash })
}

fn positions(input: &mut Unstructured<'_>) -> Result<Vec<ReplicaPosition>> {
    some(input, position)
}

fn progress(input: &mut Unstructured<'_>) -> Result<Vec<StreamProgress>> {
    some(input, |input| {
        let (stream, applied, durable) = (stream(input)?, seq(input)?, seq(input)?);
        Ok(StreamProgress { stream, applied, durable })
    })
}

/// None to three of something.
fn some<'a, T>(
    input: &mut Unstructured<'a>,
    one: impl Fn(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    (0..input.int_in_range(0..=3)?).map(|_| one(input)).collect()
}

fn identity(input: &mut Unstructured<'_>) -> Result<Identity> {
    let node = input.choose(&["a", "a", "a", "b"])?.parse().expect("a node name");
    let incarnation = Incarnation(number(input)?);
    let boot = Boot { number: number(input)?, nonce: number(input)? };
    Ok(Identity { node, incarnation, boot })
}

fn report_id(input: &mut Unstructured<'_>) -> Result<ReportId> {
    let incarnation = Incarnation(number(input)?);
    Ok(ReportId { incarnation, boot: number(input)?, seq: number(input)? })
}

fn reports(input: &mut Unstructured<'_>) -> Result<Vec<Report>> {
    some(input, |input| {
        let body = ReportBody::Node { object: Bytes::from_static(b"{}") };
        Ok(Report { id: report_id(input)?, body, traceparent: None })
    })
}

fn change(input: &mut Unstructured<'_>) -> Result<PushedChange> {
    let key = input.choose(&["ns/pod/a", "ns/pod/b", "!streams", "!snapshot-request"])?;
    let key = key.parse().expect("an entry key");
    let object = input.choose(&[r#"["cluster"]"#, "[]", "not JSON", "{}"])?;
    let (uid, resource_version) = (String::new(), String::new());
    let change = if input.ratio(1, 3)? {
        Change::Removed(Removed { key, uid })
    } else {
        let object = Bytes::from_static(object.as_bytes());
        Change::Applied(Applied { key, uid, resource_version, object })
    };
    Ok(change.into())
}

fn push(input: &mut Unstructured<'_>) -> Result<Push> {
    Ok(Push {
        stream: stream(input)?,
        mode: *input.choose(&[
            PushMode::Tail,
            PushMode::Delta,
            PushMode::Snapshot,
            PushMode::Correction,
        ])?,
        from: seq(input)?,
        to: checkpoint(input)?,
        gone: gone(input)?,
        changes: some(input, change)?,
        hash: hash(input)?,
        part: *input.choose(&[0, 0, 1, 2, u32::MAX])?,
        last_part: input.arbitrary()?,
    })
}

/// What nothing or a few entries say of what is gone; sometimes anything.
fn gone(input: &mut Unstructured<'_>) -> Result<RemovalRuns> {
    Ok(match input.arbitrary::<u8>()? % 8 {
        0 => RemovalRuns::from_runs(input.arbitrary()?),
        1 | 2 => RemovalRuns::of(input.arbitrary::<[bool; 2]>()?),
        _ => RemovalRuns::default(),
    })
}

/// That of the hub's state, which is zero here, or another.
fn nonce(input: &mut Unstructured<'_>) -> Result<u64> {
    if input.ratio(1, 8)? { input.arbitrary() } else { Ok(0) }
}

/// Of what the hub holds as well, or of something else.
fn digests(input: &mut Unstructured<'_>) -> Result<Vec<EntryDigest>> {
    some(input, |input| {
        if input.arbitrary()? {
            return Ok(EntryDigest::from_bytes(input.arbitrary()?));
        }
        let key = "ns/pod/a".parse().expect("an entry key");
        Ok(DigestKey::new(0).digest(&key, "", "", &ObjectHash::of(&[b'x'; 200])))
    })
}

fn request(input: &mut Unstructured<'_>) -> Result<Request> {
    let key = "ns/pod/a".parse().expect("a key");
    let verb = *input.choose(&[
        None,
        Some(RequestVerb::Get),
        Some(RequestVerb::Token),
        Some(RequestVerb::Csr),
    ])?;
    let body = Bytes::new();
    Ok(Request { id: number(input)?, timeout_ms: number(input)?, verb, key, body })
}

fn response(input: &mut Unstructured<'_>) -> Result<Response> {
    Ok(Response { id: number(input)?, outcome: Err(RequestError::NotFound) })
}

fn refusal() -> Refusal {
    Refusal { code: RefusalCode::Unavailable, message: String::new() }
}

const DIAL_SUPPORTS: [DialSupport; 3] =
    [DialSupport::None, DialSupport::Taken, DialSupport::Confirmed];

fn edge_message(input: &mut Unstructured<'_>) -> Result<EdgeMessage> {
    Ok(match input.arbitrary::<u8>()? % 8 {
        0 => EdgeMessage::Hello(Hello {
            protocol: if input.ratio(1, 8)? { input.arbitrary()? } else { 1 },
            identity: identity(input)?,
            positions: positions(input)?,
            window_bytes: number(input)?,
            connection: number(input)?,
            dials: *input.choose(&DIAL_SUPPORTS)?,
        }),
        1 => {
            let received_bytes =
                if input.arbitrary()? { number(input)? } else { input.int_in_range(0..=3_000)? };
            EdgeMessage::Ack(Ack { received_bytes, progress: progress(input)? })
        }
        2 => EdgeMessage::Divergence(Divergence { stream: stream(input)?, seq: seq(input)? }),
        3 => {
            let after = if input.arbitrary()? { Some(report_id(input)?) } else { None };
            EdgeMessage::Reports(Reports { after, reports: reports(input)? })
        }
        4 => EdgeMessage::Heartbeat(EdgeHeartbeat {
            outbox_depth: number(input)?,
            time_ms: input.arbitrary()?,
            meta_sync_ms: input.arbitrary()?,
            consumes_cluster: input.arbitrary()?,
            lacks_worker: input.arbitrary()?,
        }),
        5 => EdgeMessage::Summary(Summary {
            stream: stream(input)?,
            nonce: nonce(input)?,
            digests: digests(input)?,
        }),
        6 => EdgeMessage::DialReceipt,
        _ => EdgeMessage::Request(request(input)?),
    })
}

fn hub_message(input: &mut Unstructured<'_>) -> Result<HubMessage> {
    Ok(match input.arbitrary::<u8>()? % 16 {
        0 | 1 => HubMessage::Welcome(Welcome {
            protocol: if input.ratio(1, 8)? { input.arbitrary()? } else { 1 },
            log_id: log_id(input)?,
            streams: some(input, stream)?,
            known: if input.ratio(1, 4)? { Some(identity(input)?) } else { None },
            verbs: RequestVerb::ALL.to_vec(),
            takes_events: input.arbitrary()?,
        }),
        2 => HubMessage::ReportsAcked(reports_acked(input)?),
        3 => HubMessage::Heartbeat(HubHeartbeat { tails: positions(input)? }),
        4 => HubMessage::Response(response(input)?),
        5 => HubMessage::ParkNotice(ParkNotice { stream: stream(input)?, reason: String::new() }),
        6 => HubMessage::Refusal(refusal()),
        7 => HubMessage::Goodbye(Goodbye { reason: String::new() }),
        8 => HubMessage::Dial(Dial { id: DialId(input.arbitrary()?), within_ms: number(input)? }),
        9 => HubMessage::Compare(Compare { stream: stream(input)?, nonce: nonce(input)? }),
        _ => HubMessage::Push(push(input)?),
    })
}

fn reports_acked(input: &mut Unstructured<'_>) -> Result<ReportsAcked> {
    let through = report_id(input)?;
    let refused =
        some(input, |input| Ok(RefusedReport { id: report_id(input)?, reason: String::new() }))?;
    Ok(ReportsAcked { through, refused })
}

fn edge_input(input: &mut Unstructured<'_>) -> Result<EdgeInput> {
    Ok(match input.arbitrary::<u8>()? % 24 {
        0 | 1 => EdgeInput::Connected,
        2 => EdgeInput::Disconnected,
        3..=6 => EdgeInput::Applied {
            stream: stream(input)?,
            checkpoint: checkpoint(input)?,
            hash: hash(input)?,
        },
        7 | 8 => EdgeInput::Durable { stream: stream(input)?, checkpoint: checkpoint(input)? },
        9 => EdgeInput::Reported,
        10 => EdgeInput::Outbox { reports: reports(input)?, is_end: input.arbitrary()? },
        11 => EdgeInput::BootRaised(identity(input)?),
        12 => EdgeInput::Asked(request(input)?),
        13 => EdgeInput::Heartbeat(EdgeHeartbeat::default()),
        14 => EdgeInput::Tick(number(input)?),
        15 | 16 => EdgeInput::Summarized {
            stream: stream(input)?,
            nonce: nonce(input)?,
            digests: digests(input)?,
        },
        17 => EdgeInput::AckDue,
        _ => EdgeInput::Received(hub_message(input)?),
    })
}

fn hub_input(input: &mut Unstructured<'_>) -> Result<HubInput> {
    Ok(match input.arbitrary::<u8>()? % 16 {
        0 | 1 => HubInput::Admitted { known: None },
        2 => HubInput::Admitted { known: Some(identity(input)?) },
        3 => HubInput::Dismissed(refusal()),
        4 | 5 => HubInput::Advanced,
        6 => HubInput::Appended(reports_acked(input)?),
        7 => HubInput::Answered(response(input)?),
        8 => HubInput::Tick(number(input)?),
        9 => HubInput::Unread,
        _ => HubInput::Received(edge_message(input)?),
    })
}

/// A fold with a few events of both streams of node `a`, of two epochs.
fn source() -> MemorySource {
    let mut source = MemorySource::new(3);
    source.begin(LogId { number: 1, uuid: Uuid::from_u128(1) });
    source.set_readiness(Readiness::Reconciled);
    let streams = Assignment::new(&node(), [StreamId::Cluster]).encode();
    for stream in [StreamId::node(&node()), StreamId::Cluster] {
        for seq in 1..=5 {
            let (key, object) = match seq {
                1 => ("!streams", streams.clone()),
                _ => ("ns/pod/a", Bytes::from(vec![b'x'; 200])),
            };
            let event = Event::Applied(Applied {
                key: key.parse().expect("an entry key"),
                uid: String::new(),
                resource_version: String::new(),
                object,
            });
            let envelope = Envelope {
                stream: stream.clone(),
                seq: Seq(seq),
                epoch: WriterEpoch(1 + seq / 4),
                epoch_first_seq: Seq(if seq < 4 { 1 } else { 4 }),
                time_ms: 0,
                hash: StateHash::EMPTY,
                traceparent: None,
                shared: None,
                event,
            };
            source.fold(envelope).expect("in order");
        }
    }
    source
}
