//! Appends in flight: how many, and what the changes behind them are compared with. A log that is slow to open.

use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_event::{Cursor, RecordKey};
use headwater_log::{AppendError, Bounds, Description, Log, ReadError, Reader, RecordPosition};
use tokio::sync::Mutex;

use super::*;

/// A log that holds appends back, in order, and new readers, until a test lets them go.
struct SlowLog {
    log: MemoryLog,
    is_held: watch::Sender<bool>,
    are_readers_held: watch::Sender<bool>,
    /// New readers that are held.
    readers_waiting: AtomicUsize,
    turns: Mutex<()>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    /// Appends of entries.
    appends: AtomicUsize,
}

impl SlowLog {
    fn new(log: MemoryLog) -> Arc<Self> {
        let (is_held, turns) = (watch::Sender::new(false), Mutex::default());
        let (are_readers_held, readers_waiting) = (watch::Sender::new(false), AtomicUsize::new(0));
        let (in_flight, most_in_flight) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let appends = AtomicUsize::new(0);
        Arc::new(Self {
            log,
            is_held,
            are_readers_held,
            readers_waiting,
            turns,
            in_flight,
            most_in_flight,
            appends,
        })
    }

    async fn has_in_flight(&self, count: usize) {
        until_true("appends in flight", async || self.in_flight.load(Ordering::SeqCst) == count)
            .await;
    }
}

#[async_trait]
impl Log for SlowLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        self.log.describe().await
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        let is_entry = |append: &Append| {
            matches!(RecordKey::decode(&append.record.key), Ok(RecordKey::Entry(..)))
        };
        self.appends.fetch_add(usize::from(records.iter().any(is_entry)), Ordering::SeqCst);
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        let turn = self.turns.lock().await;
        if records.iter().any(is_entry) {
            let _ = self.is_held.subscribe().wait_for(|is_held| !is_held).await;
        }
        let result = self.log.append(records).await;
        drop(turn);
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        result
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.log.bounds(partition).await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.log.start(partition).await
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        self.readers_waiting.fetch_add(1, Ordering::SeqCst);
        let _ = self.are_readers_held.subscribe().wait_for(|are_held| !are_held).await;
        self.readers_waiting.fetch_sub(1, Ordering::SeqCst);
        self.log.read(cursors).await
    }
}

impl World {
    /// A controller that has published a pod and its ConfigMap, and whose appends are held now.
    async fn start_slow(&self) -> (Running, Arc<SlowLog>) {
        let slow = SlowLog::new(self.downstream.handle());
        let running = self.start_with_log(&slow).await;
        running.list([pod("p", "c"), config("c", 1, "x")]).await;
        slow.is_held.send_replace(true);
        (running, slow)
    }

    async fn start_with_log(&self, slow: &Arc<SlowLog>) -> Running {
        let (source, script) = script();
        let log = slow.log.clone();
        let logs = Logs { downstream: slow.clone(), upstream: Arc::new(self.upstream.handle()) };
        let (controller, registry) =
            self.start_over(logs, self.published.clone(), Box::new(PodRemoval), vec![script]).await;
        Running { controller, log, source, registry }
    }

    /// The data of the ConfigMap, as each of its events has it.
    async fn data(&self) -> Vec<String> {
        let (events, _) = self.read().await;
        let data = |event: &Envelope| match &event.event {
            Event::Applied(applied) if applied.key.to_string() == "d/configmap/c" => {
                let object: Value = serde_json::from_slice(&applied.object).expect("JSON");
                Some(object["data"]["k"].as_str().unwrap_or_default().to_owned())
            }
            _ => None,
        };
        events.iter().filter_map(data).collect()
    }
}

#[tokio::test]
async fn a_few_appends_are_in_flight_and_each_change_is_compared_with_the_one_before_it() {
    let world = World { group_events: 1, ..World::new() };
    let (running, slow) = world.start_slow().await;
    running.set(config("c", 2, "y")).await;
    slow.has_in_flight(1).await;
    // Both differ from the fold or from what is in flight, and only the latter counts.
    running.set(config("c", 3, "y")).await;
    running.set(config("c", 4, "x")).await;
    slow.has_in_flight(2).await;
    running.delete("d/pod/p", "u-p").await;
    slow.has_in_flight(3).await;
    running.set(pod("q", "c")).await;
    slow.has_in_flight(4).await;
    // These wait until there is room.
    for version in 5..100 {
        running.set(config("c", version, &format!("z{version}"))).await;
    }
    slow.is_held.send_replace(false);
    until_true("the last change", async || {
        world.data().await.last().is_some_and(|data| data == "z99")
    })
    .await;
    let data = world.data().await;
    assert_eq!(data[..3], ["x", "y", "x"], "nothing twice, nothing left out");
    // The stream lost the ConfigMap with p and got it again with q.
    assert_eq!((&*data[3], data.len()), ("x", 4 + 95), "each once: {data:?}");
    assert_eq!(slow.most_in_flight.load(Ordering::SeqCst), 4);
    running.controller.stop().await;
    world.check("node/a", &["d/pod/q", "d/configmap/c"]).await;
}

#[tokio::test]
async fn changes_that_wait_for_an_append_go_together_with_the_next_one() {
    let world = World::new();
    let (running, slow) = world.start_slow().await;
    let appends = slow.appends.load(Ordering::SeqCst);
    running.set(config("c", 2, "y")).await;
    slow.has_in_flight(1).await;
    for version in 3..100 {
        running.set(config("c", version, &format!("z{version}"))).await;
    }
    let queue = "headwater_controller_publish_queue_events";
    until_true("they wait", async || metrics::value(&running.registry, queue) == Some(97.0)).await;
    assert_eq!(slow.in_flight.load(Ordering::SeqCst), 1, "the others wait");
    slow.is_held.send_replace(false);
    until_true("the last change", async || {
        world.data().await.last().is_some_and(|data| data == "z99")
    })
    .await;
    assert_eq!(world.data().await, ["x", "y", "z99"], "one event for the last state of a key");
    assert_eq!(slow.appends.load(Ordering::SeqCst) - appends, 2);
    running.controller.stop().await;
}

#[tokio::test]
async fn an_append_that_fails_among_others_costs_an_epoch_and_no_change() {
    for fault in [AppendFault::UnknownLost, AppendFault::UnknownWritten, AppendFault::Rejected] {
        let world = World { group_events: 1, ..World::new() };
        let (running, slow) = world.start_slow().await;
        let before = running.controller.progress().borrow().epoch;
        running.log.inject_fault(fault);
        running.set(config("c", 2, "y")).await;
        slow.has_in_flight(1).await;
        running.set(pod("q", "c")).await;
        slow.has_in_flight(2).await;
        running.delete("d/pod/p", "u-p").await;
        slow.has_in_flight(3).await;
        slow.is_held.send_replace(false);
        running.reconciled(before.0).await;
        assert_eq!(world.data().await, ["x", "y"], "once, also where the outcome was unknown");
        running.controller.stop().await;
        world.check("node/a", &["d/pod/q", "d/configmap/c"]).await;
    }
}

#[tokio::test]
async fn a_controller_that_stops_first_waits_for_its_appends() {
    let world = World { group_events: 1, ..World::new() };
    let (running, slow) = world.start_slow().await;
    running.set(config("c", 2, "y")).await;
    slow.has_in_flight(1).await;
    running.set(pod("q", "c")).await;
    slow.has_in_flight(2).await;
    let stopped = tokio::spawn(running.controller.stop());
    slow.is_held.send_replace(false);
    timeout(SOON, stopped).await.expect("soon").expect("no panic");
    assert_eq!(world.data().await, ["x", "y"]);
    world.check("node/a", &["d/pod/p", "d/pod/q", "d/configmap/c"]).await;
}

#[tokio::test]
async fn a_source_does_not_wait_for_a_log_that_cannot_be_opened() {
    let world = World::new();
    let slow = SlowLog::new(world.downstream.handle());
    let first = world.start_with_log(&slow).await;
    first.list([pod("p", "c")]).await;
    slow.are_readers_held.send_replace(true);
    let second = world.usurped().start().await;
    second.list([pod("p", "c")]).await;
    let waits = || slow.readers_waiting.load(Ordering::SeqCst) == 1;
    until_true("a fold that is opened anew, as the log is lost", async || waits()).await;
    let pods = 4 * SOURCE_QUEUE_EVENTS;
    for number in 0..pods {
        let pod = pod(&format!("p{number}"), "c");
        let sent = first.source.send(SourceEvent::Apply(pod, Cause::default()));
        timeout(SOON, sent).await.expect("soon").expect("it runs");
    }
    let last: ResourceKey = format!("d/pod/p{}", pods - 1).parse().expect("a key");
    let picture = first.controller.picture();
    until_true("the last one in the picture", async || picture.object(&last).is_some()).await;
    assert!(waits(), "the fold is not open yet");
    slow.are_readers_held.send_replace(false);
    first.controller.stop().await;
    second.controller.stop().await;
}

#[tokio::test]
async fn a_change_waits_for_one_group_of_requests_for_snapshots_however_many_nodes_are_due() {
    /// Twenty groups of requests; a few are in flight before the change comes.
    const DUE: u64 = 5_120;
    const REQUESTS: &str = "headwater_controller_snapshot_requests_total";
    let world = World::new();
    let (running, slow) = world.start_slow().await;
    let hash = StateHash::from_bytes(&[7; 32]);
    let closed = SnapshotClosed { hash, pods: 3, full: false, first: ReportId::default() };
    for node in 0..DUE {
        let closed = ReportBody::SnapshotClosed(closed);
        world.report(&format!("n{node}"), 1, closed).await;
    }
    let requested = || metrics::value(&running.registry, REQUESTS).unwrap_or_default();
    until_true("the first requests", async || requested() > 0.0).await;
    running.set(config("c", 2, "y")).await;
    let queue = "headwater_controller_publish_queue_events";
    until_true("it waits", async || metrics::value(&running.registry, queue) == Some(1.0)).await;
    slow.is_held.send_replace(false);
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    until_true("all requests", async || requested() == DUE as f64).await;
    until_true("the change", async || world.data().await.last().is_some_and(|data| data == "y"))
        .await;
    running.controller.stop().await;
    let (events, _) = world.read().await;
    let node: StreamId = "node/a".parse().expect("a stream");
    let changed = Event::key;
    let of_partition: Vec<_> =
        events.iter().filter(|event| event.stream.partition(2) == node.partition(2)).collect();
    let is_request = |event: &&&Envelope| changed(&event.event) == Some(&EntryKey::SnapshotRequest);
    let at = of_partition.iter().rposition(|event| event.stream == node).expect("the change");
    let before = of_partition[..at].iter().filter(is_request).count();
    let all = of_partition.iter().filter(is_request).count();
    assert!(before * 3 < all * 2, "behind {before} of {all} requests");
}

/// Nodes that a comparison of everything goes through.
const NODES: usize = 200;

fn config_of(node: usize, data: &str) -> Object {
    config(&format!("c{node}"), 1, data)
}

fn pod_of(node: usize) -> Object {
    let mut pod = pod_value(&format!("p{node}"), &format!("c{node}"));
    pod["spec"]["nodeName"] = format!("n{node:03}").into();
    object(pod)
}

#[tokio::test]
async fn a_change_is_appended_before_the_comparison_of_all_streams_has_ended() {
    let world = World { group_events: 1, ..World::new() };
    let slow = SlowLog::new(world.downstream.handle());
    slow.is_held.send_replace(true);
    let running = world.start_with_log(&slow).await;
    running.send([SourceEvent::Init]).await;
    for node in 0..NODES {
        running.send([pod_of(node), config_of(node, "x")].map(SourceEvent::InitApply)).await;
    }
    running.send([SourceEvent::InitDone]).await;
    until_true("a comparison", async || slow.in_flight.load(Ordering::SeqCst) > 1).await;
    assert_eq!(world.events_in("node/n000").await, [""; 0], "nothing is appended yet");
    // The last stream of all to be compared.
    let last = NODES - 1;
    running.set(config_of(last, "y")).await;
    slow.is_held.send_replace(false);
    running.reconciled(0).await;
    let (events, _) = world.read().await;
    let stream: StreamId = format!("node/n{last:03}").parse().expect("a stream");
    let of_partition =
        events.iter().filter(|event| event.stream.partition(2) == stream.partition(2));
    let of_partition: Vec<_> = of_partition.filter(|event| event_text(event).is_some()).collect();
    let first = of_partition.iter().position(|event| event.stream == stream).expect("published");
    assert!(first * 4 < of_partition.len(), "event {first} of {}", of_partition.len());
    assert_eq!(
        world.events_in(&stream.to_string()).await,
        [format!("+d/configmap/c{last}"), format!("+d/pod/p{last}")],
        "each once, and what a pod names before it"
    );
    running.controller.stop().await;
}
