//! Whatever is appended, however time passes and compaction runs, the embedded log and the
//! in-memory twin hold the same records at the same offsets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_event::{Offset, Partition};
use headwater_log::{Append, Log, MemoryLog, MemorySettings, Record};
use headwater_store::{Engine, MemoryEngine, Survival};
use proptest::prelude::*;

const PARTITIONS: u32 = 2;
const WINDOW_MS: u64 = 100;
const RETENTION_MS: u64 = 200;
const START_MS: i64 = -50;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u32, u8, Option<u8>)>),
    Pass(u64),
    /// Compaction with this bound a run; the power may fail in between.
    Compact(usize, Option<u64>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..PARTITIONS, 0u8..4, proptest::option::weighted(0.7, any::<u8>()));
    prop_oneof![
        6 => proptest::collection::vec(record, 1..90).prop_map(Step::Append),
        4 => (1u64..250).prop_map(Step::Pass),
        4 => (1usize..100, proptest::option::of(any::<u64>())).prop_map(|(n, s)| Step::Compact(n, s)),
        1 => Just(Step::Reopen),
    ]
}

struct Both {
    twin: MemoryLog,
    clock: Arc<AtomicI64>,
    engine: Arc<MemoryEngine>,
    log: EmbeddedLog,
}

impl Both {
    fn new() -> Self {
        let twin = MemoryLog::new(MemorySettings {
            partitions: PARTITIONS,
            replay_window_ms: WINDOW_MS,
            delete_retention_ms: RETENTION_MS,
            start_ms: START_MS,
            ..MemorySettings::default()
        });
        let clock = Arc::new(AtomicI64::new(START_MS));
        let engine = Arc::new(MemoryEngine::new());
        let log = open(&engine, &clock);
        Self { twin, clock, engine, log }
    }

    async fn reopen(&mut self, survives: Survival) {
        self.log.close().await;
        self.engine = Arc::new(self.engine.crash(survives));
        self.log = open(&self.engine, &self.clock);
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Append(records) => {
                let append = |(partition, key, value): (u32, u8, Option<u8>)| Append {
                    partition: Partition(partition),
                    record: Record {
                        key: vec![key].into(),
                        value: value.map(|value| Bytes::from(vec![value])),
                        header: Bytes::new(),
                        traceparent: None,
                    },
                };
                let appends: Vec<_> = records.into_iter().map(append).collect();
                let twin = self.twin.append(appends.clone()).await.expect("taken");
                assert_eq!(self.log.append(appends).await.expect("taken"), twin);
            }
            Step::Pass(ms) => {
                self.twin.advance_clock(ms);
                self.clock.store(self.twin.now_ms(), Ordering::SeqCst);
            }
            Step::Compact(records_max, crash) => {
                self.twin.compact();
                if let Some(seed) = crash {
                    // What earlier runs did stays: only this one is torn.
                    self.engine.sync().expect("the engine works");
                    self.log.compact(records_max).await.expect("the engine works");
                    self.reopen(Survival::Some { seed }).await;
                }
                while self.log.compact(records_max).await.expect("the engine works").more_due {}
            }
            Step::Reopen => self.reopen(Survival::Everything).await,
        }
    }

    async fn check(&self) {
        for partition in (0..PARTITIONS).map(Partition) {
            assert_eq!(read(&self.log, partition).await, read(&self.twin, partition).await);
        }
    }
}

fn open(engine: &Arc<MemoryEngine>, clock: &Arc<AtomicI64>) -> EmbeddedLog {
    let settings = EmbeddedSettings {
        partitions: PARTITIONS,
        replay_window_ms: WINDOW_MS,
        delete_retention_ms: RETENTION_MS,
        ..EmbeddedSettings::new(LogTopic::Downstream)
    };
    let clock = clock.clone();
    let clock = Arc::new(move || clock.load(Ordering::SeqCst));
    EmbeddedLog::open(engine.clone(), settings, clock).expect("opens")
}

async fn read(log: &dyn Log, partition: Partition) -> Vec<(Offset, i64, Record)> {
    let mut cursor = log.start(partition).await.expect("there");
    let high = log.bounds(partition).await.expect("there").high;
    let mut reader = log.read(vec![cursor]).await.expect("readable");
    let mut seen = Vec::new();
    while cursor.next < high {
        let batch = reader.next().await.expect("readable");
        cursor = batch.cursor;
        seen.extend(batch.records.into_iter().map(|it| (it.offset, it.time_ms, it.record)));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn the_embedded_log_and_its_twin_hold_the_same(
        steps in proptest::collection::vec(step(), 1..25),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut both = Both::new();
            for step in steps {
                both.run(step).await;
                both.check().await;
            }
        });
    }
}
