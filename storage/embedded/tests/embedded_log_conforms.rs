//! The embedded log does what every log does, in memory and on RocksDB.

#[path = "support/harness.rs"]
mod harness;

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_log::conformance::check;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Engine, MemoryEngine, Survival, schema};
use tempfile::TempDir;

use self::harness::{Disk, EmbeddedLogs};

struct InMemory(Arc<MemoryEngine>);

impl Disk for InMemory {
    fn new() -> Self {
        Self(Arc::new(MemoryEngine::new()))
    }

    fn open(&mut self) -> Arc<dyn Engine> {
        self.0 = Arc::new(self.0.crash(Survival::Synced));
        self.0.clone()
    }
}

struct OnRocks {
    directory: TempDir,
    shared: DatabaseMemory,
}

impl Disk for OnRocks {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { directory, shared: DatabaseMemory::new(Budget::EDGE) }
    }

    fn open(&mut self) -> Arc<dyn Engine> {
        let path = self.directory.path().join("log");
        Arc::new(RocksEngine::open(path, Role::Log, &self.shared, schema::LOG).expect("opens"))
    }
}

#[tokio::test]
async fn the_embedded_log_does_what_every_log_does() {
    check(&EmbeddedLogs::<InMemory>(PhantomData)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_on_more_than_one_thread() {
    check(&EmbeddedLogs::<InMemory>(PhantomData)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_on_rocksdb() {
    check(&EmbeddedLogs::<OnRocks>(PhantomData)).await;
}
