//! What the writer reads of its fold to publish a change.

use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_store::{Durability, KeyValue, Range, Read, WriteBatch};

use super::*;

/// An engine that counts the values that are looked up.
#[derive(Debug)]
struct CountedEngine {
    engine: Arc<MemoryEngine>,
    gets: AtomicUsize,
}

impl Read for CountedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.engine.get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.engine.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.engine.last(range)
    }
}

impl Engine for CountedEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        self.engine.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }
}

#[tokio::test]
async fn a_change_of_a_published_object_looks_nothing_up() {
    let world = World::new();
    let gets = AtomicUsize::new(0);
    let engine = Arc::new(CountedEngine { engine: world.published.clone(), gets });
    let (source, script) = script();
    let log = world.downstream.handle();
    let logs =
        Logs { downstream: Arc::new(log.clone()), upstream: Arc::new(world.upstream.handle()) };
    let (controller, registry) =
        world.start_over(logs, engine.clone(), Box::new(PodRemoval), vec![script]).await;
    let running = Running { controller, log, source, registry };
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let listed = world.events_in("node/a").await.len();
    let before = engine.gets.load(Ordering::Relaxed);
    for (changes, version) in (1..).zip(2..12) {
        running.set(config("c", version, &format!("y{version}"))).await;
        let is_there = async || world.events_in("node/a").await.len() == listed + changes;
        until_true("the change", is_there).await;
    }
    assert_eq!(engine.gets.load(Ordering::Relaxed), before, "the fold has what it folded");
    running.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/configmap/c"]).await;
}
