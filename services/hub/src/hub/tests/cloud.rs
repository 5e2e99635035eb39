//! Both logs in memory, with a writer of the downstream log.

use std::sync::Arc;

use headwater_event::upstream::{ReportRecord, decode_report};
use headwater_event::{
    Applied, EntryKey, Envelope, Event, LogId, NodeName, NodeProgress, ObjectHash, Partition,
    Removed, ReportId, ReportKey, StreamId,
};
use headwater_follow::{Follower, WallClock};
use headwater_log::{
    Claimant, Draft, Log, MemoryLog, MemorySettings, MetadataProposal, Outcome, Writer,
    read_or_create_metadata,
};
use headwater_store::MemoryEngine;
use headwater_view::StreamReader;
use uuid::Uuid;

const PARTITIONS: u32 = 2;

pub(super) struct TestCloud {
    pub(super) downstream: MemoryLog,
    pub(super) upstream: MemoryLog,
    follower: Follower<()>,
    pub(super) writer: Writer,
    /// Every event that counts.
    pub(super) events: Vec<Envelope>,
}

pub(super) fn logs() -> (MemoryLog, MemoryLog) {
    let log = || MemoryLog::new(MemorySettings { partitions: PARTITIONS, ..Default::default() });
    (log(), log())
}

impl TestCloud {
    /// A writer of these logs that has not reconciled.
    pub(super) async fn over(logs: &(MemoryLog, MemoryLog), previous: Option<LogId>) -> Self {
        Self::claimed_by(Claimant::new(Uuid::new_v4()), logs, previous).await
    }

    /// As [`TestCloud::over`], with this claim.
    pub(super) async fn claimed_by(
        claimant: Claimant,
        logs: &(MemoryLog, MemoryLog),
        previous: Option<LogId>,
    ) -> Self {
        let (downstream, upstream) = logs.clone();
        let wish = MetadataProposal { previous, uuid: Uuid::new_v4() };
        read_or_create_metadata(&downstream, wish).await.expect("created");
        let clock: WallClock = {
            let log = downstream.clone();
            Arc::new(move || log.now_ms())
        };
        let engine = Arc::new(MemoryEngine::new());
        let mut follower =
            Follower::open(&downstream, engine, (), clock).await.expect("can be followed");
        let mut events = Vec::new();
        while !follower.is_folded() {
            events.extend(accepted(follower.next().await.expect("readable").outcomes));
        }
        let log: Arc<dyn Log> = Arc::new(downstream.clone());
        let writer = follower.take_over(&log, &claimant).await.expect("nobody else claims");
        Self { downstream, upstream, follower, writer, events }
    }

    /// As [`TestCloud::over`], with every node's streams assigned, and reconciled.
    pub(super) async fn new(nodes: &[&str]) -> Self {
        let mut cloud = Self::over(&logs(), None).await;
        for node in nodes {
            cloud.assign(node).await;
        }
        cloud.writer.reconciled().await.expect("appended");
        cloud
    }

    pub(super) fn logs(&self) -> (MemoryLog, MemoryLog) {
        (self.downstream.clone(), self.upstream.clone())
    }

    pub(super) fn log_id(&self) -> LogId {
        self.follower.acceptance().metadata().log_id
    }

    pub(super) async fn assign(&mut self, node: &str) {
        let stream = StreamId::node(&node.parse().expect("a name"));
        self.append(&stream, EntryKey::Streams, Some("[\"cluster\"]".to_owned())).await;
    }

    pub(super) async fn set(&mut self, stream: &str, name: &str, object: Option<String>) {
        self.set_key(stream, &format!("d/configmap/{name}"), object).await;
    }

    pub(super) async fn set_key(&mut self, stream: &str, key: &str, object: Option<String>) {
        let key = key.parse().expect("a key");
        self.append(&stream.parse().expect("a stream"), key, object).await;
    }

    async fn append(&mut self, stream: &StreamId, key: EntryKey, object: Option<String>) {
        let reader = StreamReader::new(&**self.follower.state().engine());
        let held = reader.entry(stream, &key).expect("readable");
        let event = match object {
            Some(object) => Event::Applied(Applied {
                uid: format!("uid of {key}"),
                key,
                resource_version: "1".to_owned(),
                object: object.into(),
            }),
            None => Event::Removed(Removed { uid: format!("uid of {key}"), key }),
        };
        let replaces = held.map(|held| ObjectHash::of(&held.object));
        let draft =
            Draft { stream: stream.clone(), event, replaces, traceparent: None, is_shared: false };
        self.writer.append(vec![draft]).await.expect("appended");
        while self.writer.in_flight() > 0 {
            let outcomes = self.follower.next().await.expect("readable").outcomes;
            outcomes.iter().for_each(|outcome| self.writer.observe(outcome));
            self.events.extend(accepted(outcomes));
        }
    }

    /// The reports of a node that are in the upstream log, in order.
    pub(super) async fn reports(&self, node: &NodeName) -> Vec<ReportId> {
        let mut ids = Vec::new();
        for record in self.upstream_records().await {
            if let Ok(Some((from, report))) = decode_report(&record, None)
                && from == *node
            {
                ids.push(report.id);
            }
        }
        ids
    }

    /// The positions of a node, record by record.
    pub(super) async fn positions(&self, node: &NodeName) -> Vec<NodeProgress> {
        let of_node = |record: ReportRecord| match ReportKey::decode(&record.key) {
            Ok((from, ReportKey::Position)) if from == *node => {
                serde_json::from_slice(record.value.as_deref()?).ok()
            }
            _ => None,
        };
        self.upstream_records().await.into_iter().filter_map(of_node).collect()
    }

    async fn upstream_records(&self) -> Vec<ReportRecord> {
        let mut records = Vec::new();
        let partitions = self.upstream.describe().await.expect("there").partitions;
        for partition in (0..partitions).map(Partition) {
            let mut cursor = self.upstream.start(partition).await.expect("there");
            let high = self.upstream.bounds(partition).await.expect("there").high;
            let mut reader = self.upstream.read(vec![cursor]).await.expect("readable");
            while cursor.next < high {
                let batch = reader.next().await.expect("readable");
                cursor = batch.cursor;
                records.extend(batch.records.into_iter().map(|recorded| ReportRecord {
                    key: recorded.record.key,
                    value: recorded.record.value,
                    header: recorded.record.header,
                }));
            }
        }
        records
    }
}

fn accepted(outcomes: Vec<Outcome>) -> impl Iterator<Item = Envelope> {
    outcomes.into_iter().filter_map(|outcome| match outcome {
        Outcome::Accepted(envelope) => Some(envelope),
        _ => None,
    })
}
