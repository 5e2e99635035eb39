//! A broker starts, is killed, and starts again on its data.

use std::net::TcpStream;
use std::path::Path;

use headwater_broker::{Cluster, ClusterSettings};

fn answers(cluster: &Cluster) -> bool {
    TcpStream::connect(cluster.bootstrap()).is_ok()
}

#[test]
fn a_broker_is_killed_and_comes_back_at_its_address() {
    let mut cluster = Cluster::start(ClusterSettings::default()).expect("a broker");
    assert!(answers(&cluster), "{}", cluster.broker(1).words());
    let pid = cluster.broker(1).pid().expect("it runs");
    let broker = cluster.broker(1);
    broker.kill().expect("it can be killed");
    assert_eq!(broker.pid(), None);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "a killed broker lives on");
    assert!(!answers(&cluster));
    cluster.broker(1).start().expect("it comes back on its data");
    assert!(answers(&cluster));
    let pid = cluster.broker(1).pid().expect("it runs");
    cluster.broker(1).freeze().expect("it can be frozen");
    drop(cluster);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "a dropped broker lives on");
}

#[test]
fn properties_that_kafka_refuses_are_shown() {
    let properties = [("log.cleaner.threads".to_owned(), "none".to_owned())].into();
    let error = Cluster::start(ClusterSettings { properties, ..ClusterSettings::default() });
    let error = error.expect_err("a word is no number").to_string();
    assert!(error.contains("log.cleaner.threads"), "{error}");
}
