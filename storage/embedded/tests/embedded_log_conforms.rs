//! The embedded log does what every log does, on the in-memory engine.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_log::Log;
use headwater_log::conformance::{Capability, Harness, Settings, Subject, check};
use headwater_store::{MemoryEngine, Survives};

struct Embedded;

struct OnMemory {
    settings: EmbeddedSettings,
    clock: Arc<AtomicI64>,
    now: Mutex<(Arc<MemoryEngine>, Arc<EmbeddedLog>)>,
}

impl OnMemory {
    fn open(&self, engine: MemoryEngine) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) =
            open(Arc::new(engine), self.settings, &self.clock);
    }

    fn current(&self) -> (Arc<MemoryEngine>, Arc<EmbeddedLog>) {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn open(
    engine: Arc<MemoryEngine>,
    settings: EmbeddedSettings,
    clock: &Arc<AtomicI64>,
) -> (Arc<MemoryEngine>, Arc<EmbeddedLog>) {
    let clock = clock.clone();
    let clock = Arc::new(move || clock.load(Ordering::SeqCst));
    let log = EmbeddedLog::open(engine.clone(), settings, clock).expect("opens");
    (engine, Arc::new(log))
}

#[async_trait]
impl Harness for Embedded {
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
        let now = Mutex::new(open(Arc::default(), settings, &clock));
        Box::new(OnMemory { settings, clock, now })
    }
}

#[async_trait]
impl Subject for OnMemory {
    fn log(&self) -> Arc<dyn Log> {
        self.current().1
    }

    fn set_clock_forward(&self, by_ms: u64) {
        self.clock.fetch_add(i64::try_from(by_ms).expect("small"), Ordering::SeqCst);
    }

    fn set_clock_back(&self, by_ms: u64) {
        self.clock.fetch_sub(i64::try_from(by_ms).expect("small"), Ordering::SeqCst);
    }

    async fn reopen(&self) {
        let (engine, log) = self.current();
        log.close().await;
        self.open(engine.crash(Survives::Synced));
    }

    async fn compact(&self) {
        let log = self.current().1;
        while log.compact(10).await.expect("the engine works").more {}
    }

    async fn recreate(&self) {
        self.current().1.close().await;
        self.open(MemoryEngine::new());
    }
}

#[tokio::test]
async fn the_embedded_log_does_what_every_log_does() {
    check(&Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_on_more_than_one_thread() {
    check(&Embedded).await;
}
