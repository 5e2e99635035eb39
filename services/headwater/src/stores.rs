//! Statistics of the databases, read from RocksDB at each scrape.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use headwater_event::NodeName;
use headwater_rocks::{DatabaseMemory, RocksEngine, Stats};
use headwater_telemetry::scraped_family::{ScrapedFamily, label, number};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

/// The labels of a database: its name and its node; the databases of the cloud have no node.
const LABELS: [&str; 2] = ["store", "node"];

/// A family, and how it is read.
type Reading = (ScrapedFamily, fn(&Stats) -> f64);

const OF_EACH: [Reading; 11] = [
    (
        ScrapedFamily::gauge(
            "headwater_store_table_bytes",
            "Bytes of a database's tables, on disk.",
        ),
        |stats| number(stats.sst_bytes),
    ),
    (
        ScrapedFamily::gauge("headwater_store_wal_bytes", "Bytes of its write-ahead log, on disk."),
        |stats| number(stats.wal_bytes),
    ),
    (
        ScrapedFamily::gauge(
            "headwater_store_memtable_bytes",
            "Bytes of its memtables, in memory.",
        ),
        |stats| number(stats.memtable_bytes),
    ),
    (
        ScrapedFamily::gauge(
            "headwater_store_table_reader_bytes",
            "Bytes that its open tables hold in memory outside the block cache, estimated.",
        ),
        |stats| number(stats.table_reader_bytes),
    ),
    (
        ScrapedFamily::gauge(
            "headwater_store_level_0_files",
            "Files that are not merged yet; a read looks into each of them.",
        ),
        |stats| number(stats.level_0_files),
    ),
    (ScrapedFamily::gauge("headwater_store_snapshots", "Its open snapshots."), |stats| {
        number(stats.snapshots)
    }),
    (
        ScrapedFamily::gauge(
            "headwater_store_pending_compaction_bytes",
            "Bytes that compaction has yet to rewrite, estimated.",
        ),
        |stats| number(stats.pending_compaction_bytes),
    ),
    (
        ScrapedFamily::gauge(
            "headwater_store_writes_stopped",
            "Whether writes wait for compaction (1) or not (0).",
        ),
        |stats| number(u64::from(stats.writes_stopped)),
    ),
    (
        ScrapedFamily::gauge(
            "headwater_store_delayed_write_bytes_per_second",
            "The limit to which writes are slowed; 0: no limit.",
        ),
        |stats| number(stats.delayed_write_bytes_per_second),
    ),
    (
        ScrapedFamily::counter(
            "headwater_store_background_errors_total",
            "Flushes and compactions that failed since the database was opened.",
        ),
        |stats| number(stats.background_errors),
    ),
    (
        ScrapedFamily::gauge(
            "headwater_store_failed",
            "Whether a write failed, so that it refuses writes until opened again (1), or not (0).",
        ),
        |stats| number(u64::from(stats.poisoned)),
    ),
];

const CACHE_CAPACITY: ScrapedFamily = ScrapedFamily::gauge(
    "headwater_store_cache_capacity_bytes",
    "The capacity of the block cache that all databases share, with memtables.",
);
const CACHE: ScrapedFamily = ScrapedFamily::gauge(
    "headwater_store_cache_bytes",
    "Bytes in the block cache, with memtables.",
);
const CACHE_PINNED: ScrapedFamily =
    ScrapedFamily::gauge("headwater_store_cache_pinned_bytes", "Pinned bytes in the block cache.");

type Open = Arc<Mutex<BTreeMap<(&'static str, String), Weak<RocksEngine>>>>;

/// The open databases of a process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stores {
    memory: DatabaseMemory,
    open: Open,
}

/// Reads the databases at each scrape.
pub(crate) struct StoresCollector {
    stores: Stores,
    descs: Vec<Desc>,
}

impl Stores {
    pub(crate) fn new(memory: DatabaseMemory) -> Self {
        Self { memory, open: Open::default() }
    }

    /// Adds a database of the cloud or of a node. It replaces an earlier one of that name, and this
    /// registry does not keep it open.
    pub(crate) fn opened(
        &self,
        store: &'static str,
        node: Option<&NodeName>,
        engine: &Arc<RocksEngine>,
    ) {
        let node = node.map(ToString::to_string).unwrap_or_default();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert((store, node), Arc::downgrade(engine));
    }

    /// Checks that a database of the cloud is open and takes writes.
    ///
    /// # Errors
    /// The reason for people.
    pub(crate) fn takes_writes(&self, store: &'static str) -> Result<(), String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = open.get(&(store, String::new())).and_then(Weak::upgrade);
        drop(open);
        let engine = engine.ok_or("the database is not open")?;
        match (engine.failure(), engine.stats()) {
            (Some(failure), _) => {
                Err(format!("a write failed ({failure}): start the process again"))
            }
            (None, Ok(_)) => Ok(()),
            (None, Err(error)) => Err(error.to_string()),
        }
    }

    /// Returns the failures of the cloud's databases, for people: this process does not open them
    /// again.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of_cloud = open.into_iter().filter(|((_, node), _)| node.is_empty());
        let failed = of_cloud.filter_map(|((store, _), engine)| {
            let engine = engine.upgrade()?;
            let failure = engine.failure()?;
            Some(format!(
                "the cloud's database {store} refuses writes ({failure}): new events do not reach \
                 the nodes; make room on the disk or repair it, then stop and start `headwater up`"
            ))
        });
        failed.collect()
    }

    pub(crate) fn collector(&self) -> Result<StoresCollector, prometheus::Error> {
        let of_each = OF_EACH.iter().map(|(family, _)| family.desc(&LABELS));
        let of_all = [CACHE_CAPACITY, CACHE, CACHE_PINNED].map(|family| family.desc(&[]));
        let descs = of_each.chain(of_all).collect::<Result<_, _>>()?;
        Ok(StoresCollector { stores: self.clone(), descs })
    }

    fn stats(&self) -> Vec<((&'static str, String), Stats)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A database that is closed or cannot be read is absent.
        let stats = open.into_iter().filter_map(|(of, engine)| {
            let stats = engine.upgrade()?.stats().ok()?;
            Some((of, stats))
        });
        stats.collect()
    }
}

impl Collector for StoresCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let stats = self.stores.stats();
        let shared = self.stores.memory.stats();
        let mut families: Vec<_> = OF_EACH
            .iter()
            .map(|(family, read)| {
                let samples = stats.iter().map(|((store, node), stats)| {
                    let labels = vec![label(LABELS[0], store), label(LABELS[1], node)];
                    (labels, read(stats))
                });
                family.with(samples.collect())
            })
            .filter(|family| !family.get_metric().is_empty())
            .collect();
        let of_all = [
            (CACHE_CAPACITY, shared.budget.cache_bytes),
            (CACHE, shared.cache_bytes),
            (CACHE_PINNED, shared.pinned_bytes),
        ];
        families.extend(
            of_all.map(|(family, bytes)| family.with(vec![(Vec::new(), number(bytes as u64))])),
        );
        families
    }
}

#[cfg(test)]
mod tests {
    use headwater_rocks::{Budget, Role};
    use headwater_store::schema;

    use super::*;

    #[test]
    fn an_open_database_is_counted_and_a_closed_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let memory = DatabaseMemory::new(Budget::EDGE);
        let stores = Stores::new(memory.clone());
        let collector = stores.collector().expect("names");
        let of_stores = || {
            let families = collector.collect();
            let families = families.iter().flat_map(MetricFamily::get_metric);
            families.filter(|metric| !metric.get_label().is_empty()).count()
        };
        assert_eq!(of_stores(), 0);
        let engine = RocksEngine::open(dir.path(), Role::State, &memory, schema::NODE_STATE);
        let engine = Arc::new(engine.expect("opens"));
        let node = NodeName::try_from("gw-1".to_owned()).expect("a name");
        stores.opened("state", Some(&node), &engine);
        assert_eq!(of_stores(), OF_EACH.len());
        stores.opened("state", Some(&node), &engine);
        assert_eq!(of_stores(), OF_EACH.len(), "the same place");
        drop(engine);
        assert_eq!(of_stores(), 0);
    }
}
