//! Partitions on different brokers: one without enough replicas stops no other.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::ClusterSettings;
use headwater_event::{Applied, Event, Partition, Seq, StreamId};
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_log::conformance::Settings;
use headwater_log::{
    Acceptance, ClaimError, Claimant, Draft, FinishedAppend, Log, MetadataProposal, Outcome,
    ReadError, Reader, Writer, begin_fold, claim, read_or_create_metadata,
};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::support::{Kafka, plan};

/// Partition 0 is on the brokers 1 and 2, partition 1 on the brokers 1 and 3.
const BROKERS: [&[i32]; 2] = [&[1, 2], &[1, 3]];
const AWAY: Partition = Partition(1);
const ABSENT: u32 = 3;

/// How long a cluster may take to notice a broker that is gone or back.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Events of the healthy partition while the other one is away.
const EVENTS: u64 = 20;

/// A reader of the log, which claims it.
struct Owner {
    log: Arc<dyn Log>,
    reader: Box<dyn Reader>,
    acceptance: Acceptance,
}

/// Asks until there is an answer: a busy broker may take longer than one request of this log.
async fn answered<T, E: Debug>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < deadline, "not reachable: {error:?}"),
        }
        sleep(POLL).await;
    }
}

impl Owner {
    async fn new(log: Arc<dyn Log>) -> Self {
        let mut attempts = 0;
        let metadata = answered(async || {
            attempts += 1;
            let proposal = MetadataProposal { previous: None, uuid: Uuid::from_u128(attempts) };
            read_or_create_metadata(&*log, proposal).await
        })
        .await;
        let acceptance = answered(async || begin_fold(&*log, metadata, i64::MIN).await).await;
        let reader = answered(async || log.read(acceptance.cursors()).await).await;
        let mut owner = Self { log, reader, acceptance };
        owner.read_to_end().await;
        owner
    }

    async fn read_to_end(&mut self) {
        for partition in [Partition(0), AWAY] {
            let high = answered(async || self.log.bounds(partition).await).await.high;
            while self.acceptance.partitions()[&partition].cursor.next < high {
                let batch = timeout(DEADLINE, self.reader.next()).await.expect("in time");
                for outcome in self.acceptance.accept_batch(&batch.expect("readable"), 0) {
                    assert!(!matches!(outcome, Outcome::Hole(_)), "{outcome:?}");
                }
            }
        }
    }

    async fn claim(&mut self, number: u128) -> Writer {
        let claimant = Claimant::new(Uuid::from_u128(number));
        let deadline = Instant::now() + DEADLINE;
        let Self { log, reader, acceptance } = self;
        loop {
            let claimed =
                claim(log, reader.as_mut(), acceptance, &claimant, &|| 0, &mut |_, _| {}).await;
            match claimed {
                Ok(writer) => return writer,
                // A client asks the broker that it knows as the controller, until its metadata has
                // another one.
                Err(ClaimError::Read(ReadError::Unavailable { .. }))
                    if Instant::now() < deadline =>
                {
                    sleep(POLL).await;
                }
                Err(error) => panic!("no claim: {error:?}"),
            }
        }
    }

    fn seq(&self, partition: Partition) -> Seq {
        self.acceptance.stream(&stream_in(partition)).map_or(Seq::ZERO, |position| position.seq)
    }
}

/// A stream of a partition.
fn stream_in(partition: Partition) -> StreamId {
    let streams = (0..100).map(|number| format!("node/n{number}").parse().expect("a stream"));
    let count = u32::try_from(BROKERS.len()).expect("few");
    let mut streams = streams.filter(|stream: &StreamId| stream.partition(count) == partition);
    streams.next().expect("one of a hundred")
}

fn draft(partition: Partition, number: u64) -> Draft {
    let applied = Applied {
        key: "d/configmap/c".parse().expect("a key"),
        uid: "u".to_owned(),
        resource_version: number.to_string(),
        object: format!("{{\"number\":{number}}}").into(),
    };
    Draft {
        stream: stream_in(partition),
        event: Event::Applied(applied),
        replaces: None,
        traceparent: None,
        is_shared: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_without_enough_replicas_is_suspended_and_the_others_go_on() {
    let kafka = Kafka::of(ClusterSettings { brokers: 3, ..ClusterSettings::default() });
    let mut plan = plan(&Settings { partitions: 2, ..Settings::default() });
    (plan.replicas, plan.replicas_min) = (2, 2);
    kafka.make_on("split", &plan, &BROKERS).await;
    // A broker that waits for the absent replica delays the other partition by one request. The rest is for a controller of
    // the brokers that is elected anew.
    let settings = KafkaSettings {
        delivery_timeout: Duration::from_secs(30),
        request_timeout: Duration::from_secs(5),
        ..kafka.settings("split")
    };
    let mut owner = Owner::new(Arc::new(KafkaLog::new(settings).expect("good settings"))).await;
    let mut writer = owner.claim(1).await;
    writer.append(vec![draft(Partition(0), 0), draft(AWAY, 0)]).await.expect("alive");

    kafka.kill(ABSENT);
    let suspended = async {
        loop {
            writer.begin(vec![draft(AWAY, 1)]).expect("alive");
            if let FinishedAppend::Suspended { partition, .. } =
                writer.finished().await.expect("the other partition is healthy")
            {
                return partition;
            }
        }
    };
    assert_eq!(timeout(DEADLINE, suspended).await.expect("in time"), AWAY);
    for number in 1..=EVENTS {
        writer.append(vec![draft(Partition(0), number)]).await.expect("it is healthy");
    }
    let mut partial = owner.claim(2).await;
    assert!(partial.suspended().contains_key(&AWAY), "a claim needs no partition but the first");
    partial.append(vec![draft(Partition(0), EVENTS + 1)]).await.expect("it is healthy");

    kafka.start_again(ABSENT);
    let heartbeats = partial.heartbeats();
    let returned = async {
        while heartbeats.probe(AWAY).await.is_err() {
            sleep(POLL).await;
        }
    };
    timeout(DEADLINE, returned).await.expect("in time");
    let mut whole = owner.claim(3).await;
    assert!(whole.suspended().is_empty());
    let (before, _) = whole.position(&stream_in(AWAY));
    whole.append(vec![draft(AWAY, 2), draft(Partition(0), EVENTS + 2)]).await.expect("alive");
    owner.read_to_end().await;
    assert_eq!(owner.seq(Partition(0)), Seq(EVENTS + 3), "each once");
    assert_eq!(owner.seq(AWAY), before.next());
}
