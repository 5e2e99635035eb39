//! A broker of one row, and its topics.

use std::sync::atomic::{AtomicU32, Ordering};

use headwater_broker::{Cluster, ClusterSettings};
use headwater_kafka::KafkaSettings;
use headwater_kafka::topics::{self, Direction, TopicPlan};
use headwater_loadtest::failure::{Attempt, Failure};
use tokio::runtime::Runtime;

/// The default number of partitions, as `headwater topics create` makes them.
pub(crate) const PARTITIONS: u32 = 12;

/// A broker on loopback; it ends with this.
pub(crate) struct Kafka {
    cluster: Cluster,
    topics: AtomicU32,
}

impl Kafka {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start() -> Result<Self, Failure> {
        let cluster = Cluster::start(ClusterSettings::default()).tried("starting Kafka")?;
        Ok(Self { cluster, topics: AtomicU32::new(0) })
    }

    /// Makes a topic as `headwater topics create` does, with one replica; returns the settings of its
    /// clients.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn topic(&self, runtime: &Runtime) -> Result<KafkaSettings, Failure> {
        topic(&self.cluster.bootstrap(), self.topics.fetch_add(1, Ordering::Relaxed), runtime)
    }
}

/// Makes one on the brokers at `bootstrap`.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn topic(
    bootstrap: &str,
    number: u32,
    runtime: &Runtime,
) -> Result<KafkaSettings, Failure> {
    let settings = KafkaSettings::new(bootstrap, format!("bench-{number}"));
    let replicas = 1;
    let plan = TopicPlan {
        partitions: PARTITIONS,
        replicas,
        replicas_min: replicas,
        ..TopicPlan::new(Direction::Downstream)
    };
    runtime.block_on(topics::create(&settings, &plan)).tried("making a topic")?;
    // A broker may not lead yet what was just made.
    runtime.block_on(topics::offsets(&settings)).tried("asking for the ends of a topic")?;
    Ok(settings)
}

/// A runtime for one side.
///
/// # Errors
/// When its threads cannot be started.
pub(crate) fn runtime(name: &str, threads: usize) -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
        .tried("starting a runtime")
}
