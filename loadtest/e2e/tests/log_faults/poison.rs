//! A record that no reader can decode, from a foreign program with write access to the topic.

use bytes::Bytes;
use headwater_broker::ClusterSettings;
use headwater_event::StreamId;
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_log::{Append, Log, Record};

use crate::scene::{DOWNSTREAM, HUB, NODES, PARTITIONS, Pod, Scene, held};

#[test]
fn a_record_that_cannot_be_read_is_named_and_costs_the_writer_an_epoch() {
    let mut scene = Scene::begin(ClusterSettings::default(), &[]);
    let [left, right] = NODES;
    let stream = StreamId::node(&left.parse().expect("a name"));
    let record = Record {
        key: format!("{stream} default/configmap/anchor-{left}").into(),
        value: Some(Bytes::from_static(b"{")),
        header: Bytes::from_static(b"\xff\xff"),
        traceparent: None,
    };
    scene.expect_repair();
    append(
        &scene.fleet.kafka.bootstrap(),
        Append { partition: stream.partition(PARTITIONS), record },
    );
    scene.wait_until_reported(HUB, "the record cannot be read");
    for node in [right, left] {
        scene.put(&Pod::anchor(node), 1);
        scene.wait_for("the change", |fleet| {
            held(fleet.part(node))?.iter().any(|(_, round)| *round == 1).then_some(())
        });
    }
    scene.check();
}

fn append(brokers: &str, append: Append) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let log = KafkaLog::new(KafkaSettings::new(brokers, DOWNSTREAM)).expect("good settings");
        log.append(vec![append]).await.expect("the topic takes anything");
    });
}
