//! The embedded log under the suite that every log passes, on whatever disk.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_log::Log;
use headwater_log::conformance::{Capability, Harness, Settings, Subject};
use headwater_store::Engine;

/// Something that keeps a database between two openings.
pub(crate) trait Disk: Send + Sync + 'static {
    /// An empty one.
    fn new() -> Self;

    /// The database as it is after a power loss. The engine opened before is gone.
    fn open(&mut self) -> Arc<dyn Engine>;
}

/// Makes embedded logs, each on a disk of its own.
pub(crate) struct EmbeddedLogs<D>(pub(crate) std::marker::PhantomData<fn() -> D>);

struct OnDisk<D> {
    settings: EmbeddedSettings,
    clock: Arc<AtomicI64>,
    now: Mutex<Now<D>>,
}

struct Now<D> {
    disk: D,
    /// `None` only while it is opened again.
    log: Option<Arc<EmbeddedLog>>,
}

impl<D: Disk> OnDisk<D> {
    fn now(&self) -> MutexGuard<'_, Now<D>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Arc<EmbeddedLog> {
        self.now().log.clone().expect("it is open")
    }

    async fn close(&self) {
        let log = self.now().log.take().expect("it is open");
        log.close().await;
    }

    fn open(&self) {
        let mut now = self.now();
        let clock = self.clock.clone();
        let clock = Arc::new(move || clock.load(Ordering::SeqCst));
        let log = EmbeddedLog::open(now.disk.open(), self.settings, clock).expect("opens");
        now.log = Some(Arc::new(log));
    }
}

#[async_trait]
impl<D: Disk> Harness for EmbeddedLogs<D> {
    fn capabilities(&self) -> &[Capability] {
        use Capability::*;
        &[Clock, Reopen, Compaction, Recreation]
    }

    async fn create(&self, settings: Settings) -> Box<dyn Subject> {
        let settings = EmbeddedSettings {
            topic: LogTopic::Downstream,
            partitions: settings.partitions,
            record_bytes_max: settings.record_bytes_max,
            replay_window_ms: settings.replay_window_ms,
            delete_retention_ms: settings.delete_retention_ms,
        };
        let clock = Arc::new(AtomicI64::new(1_700_000_000_000));
        let now = Mutex::new(Now { disk: D::new(), log: None });
        let subject = OnDisk { settings, clock, now };
        subject.open();
        Box::new(subject)
    }
}

#[async_trait]
impl<D: Disk> Subject for OnDisk<D> {
    fn log(&self) -> Arc<dyn Log> {
        self.current()
    }

    fn set_clock_forward(&self, by_ms: u64) {
        self.clock.fetch_add(i64::try_from(by_ms).expect("small"), Ordering::SeqCst);
    }

    fn set_clock_back(&self, by_ms: u64) {
        self.clock.fetch_sub(i64::try_from(by_ms).expect("small"), Ordering::SeqCst);
    }

    async fn reopen(&self) {
        self.close().await;
        self.open();
    }

    async fn compact(&self) {
        let log = self.current();
        while log.compact(10).await.expect("the engine works").more_due {}
    }

    async fn recreate(&self) {
        self.close().await;
        self.now().disk = D::new();
        self.open();
    }
}
