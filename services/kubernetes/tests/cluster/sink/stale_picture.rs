//! A picture that has not caught up with the log of reports: no status is written from it that is older than one that the
//! API has shown. Leases do not wait.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_event::{Cursor, Offset, Partition};
use headwater_log::{
    Append, AppendError, Batch, Bounds, Description, Log, MemoryLog, ReadError, Reader,
    RecordPosition,
};
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

use super::edge::{Edge, running_status};
use super::twin::Twin;
use crate::world::{POLL, Running, World};

/// More statuses than a log returns at once.
const STATUSES: usize = 700;

/// More than the time after which a sink puts right what others overwrote.
const LONG: Duration = Duration::from_secs(30);

/// Batches of a log that nothing holds.
const FREE: usize = 1_000_000;

/// A log whose readers return as many batches as a test lets them, and fail on request.
struct HeldLog {
    log: MemoryLog,
    batches: Arc<Semaphore>,
    failure: Arc<Notify>,
}

struct HeldReader {
    reader: Box<dyn Reader>,
    batches: Arc<Semaphore>,
    /// Whether the next batch is paid for. A future that is dropped loses nothing.
    has_batch: bool,
    failure: Arc<Notify>,
}

impl HeldLog {
    fn new(log: MemoryLog, batches: usize) -> Arc<Self> {
        Arc::new(Self { log, batches: Arc::new(Semaphore::new(batches)), failure: Arc::default() })
    }

    /// The reader fails as after a loss of records, and the next one returns so many batches.
    fn fail(&self, batches: usize) {
        self.batches.forget_permits(FREE);
        self.batches.add_permits(batches);
        self.failure.notify_one();
    }

    fn release(&self) {
        self.batches.add_permits(FREE);
    }
}

#[async_trait]
impl Log for HeldLog {
    async fn describe(&self) -> Result<Description, ReadError> {
        self.log.describe().await
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        self.log.append(records).await
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.log.bounds(partition).await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.log.start(partition).await
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        let reader = self.log.read(cursors).await?;
        let (batches, failure) = (self.batches.clone(), self.failure.clone());
        Ok(Box::new(HeldReader { reader, batches, has_batch: false, failure }))
    }
}

#[async_trait]
impl Reader for HeldReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        let failure = self.failure.clone();
        let batch = async {
            if !self.has_batch {
                self.batches.acquire().await.expect("open").forget();
                self.has_batch = true;
            }
            self.reader.next().await
        };
        let batch = tokio::select! {
            biased;
            () = failure.notified() => Err(ReadError::Expired {
                partition: Partition(0), wanted: Offset(0), low: Offset(1),
            }),
            batch = batch => batch,
        };
        self.has_batch = false;
        batch
    }
}

fn address(number: usize) -> String {
    format!("10.9.{}.{}", number / 250, number % 250)
}

/// Waits until the picture of a controller has a status of the pod, which is an old one.
async fn has_an_old_status(running: &Running, edge: &Edge) {
    let key = "default/pod/web".parse().expect("a key");
    let last = address(STATUSES);
    loop {
        let picture = running.controller.picture();
        if let Some(reported) = picture.reported_pod(&edge.name, &key).expect("readable") {
            assert!(!String::from_utf8_lossy(&reported.status).contains(&last), "the last one");
            return;
        }
        sleep(POLL).await;
    }
}

/// The edge reports many statuses of a pod, and the API shows the last one.
async fn report_statuses(twin: &Twin, edge: &Edge) -> String {
    twin.wait_for("a Node", |server| !server.objects("nodes").is_empty()).await;
    let uid = twin.create_pod("web", edge.name.as_str());
    for number in 1..=STATUSES {
        edge.report_status("web", &uid, &running_status(&address(number))).await;
    }
    twin.shows("web", &address(STATUSES)).await;
    uid
}

/// Time passes in which the Lease is renewed and the status stays.
async fn nothing_older_is_written(twin: &Twin, running: &Running) {
    let leases = running.requests("patch leases", "done");
    let statuses = running.requests("patch pods/status", "done");
    let shown = twin.address("web");
    sleep(LONG).await;
    assert!(running.requests("patch leases", "done") > leases, "the Lease is renewed");
    assert_eq!(running.requests("patch pods/status", "done"), statuses);
    assert_eq!(twin.address("web"), shown);
}

#[tokio::test(start_paused = true)]
async fn a_writer_on_an_empty_disk_writes_no_status_before_it_has_read_the_reports() {
    let (twin, world) = (Twin::new(), World::quick());
    let first = world.start_with_sink_over(twin.connection(), Arc::new(world.upstream.handle()));
    let first = first.await;
    first.reconciled().await;
    let edge = Edge::connect(&world, &first, "gw").await;
    let uid = report_statuses(&twin, &edge).await;
    drop(edge);
    first.controller.stop().await;

    let beside = world.beside();
    let log = HeldLog::new(world.upstream.handle(), 1);
    let second = beside.start_with_sink_over(twin.connection(), log.clone()).await;
    second.reconciled().await;
    let edge = Edge::unreported(&beside, &second, "gw");
    has_an_old_status(&second, &edge).await;
    nothing_older_is_written(&twin, &second).await;
    assert_eq!(second.requests("patch nodes/status", "done"), 0, "nor of the Node");

    log.release();
    edge.restart().await;
    edge.report_status("web", &uid, &running_status("10.9.9.9")).await;
    twin.shows("web", "10.9.9.9").await;
    second.controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_folds_the_reports_anew_takes_no_old_one_for_a_new_one() {
    let (twin, world) = (Twin::new(), World::quick());
    let log = HeldLog::new(world.upstream.handle(), FREE);
    let running = world.start_with_sink_over(twin.connection(), log.clone()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "gw").await;
    let uid = report_statuses(&twin, &edge).await;

    log.fail(1);
    let troubles = running.controller.picture_troubles();
    while troubles.borrow().is_empty() {
        sleep(POLL).await;
    }
    assert!(troubles.borrow()[0].starts_with("the upstream log cannot be read"), "{troubles:?}");
    // The reports are read again, to the middle.
    while !troubles.borrow().is_empty() {
        sleep(POLL).await;
    }
    has_an_old_status(&running, &edge).await;
    nothing_older_is_written(&twin, &running).await;

    log.release();
    // What others write meanwhile is put right once the reports are read.
    twin.shows("web", &address(STATUSES)).await;
    edge.report_status("web", &uid, &running_status("10.9.9.9")).await;
    twin.shows("web", "10.9.9.9").await;
    running.controller.stop().await;
}
