//! The settings of Kafka: forms, layers and refusals.

use clap::Parser;
use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use headwater_cli::args::kafka::KafkaArgs;
use headwater_log::{DOWNSTREAM_TOPIC, POSITIONS_TOPIC, UPSTREAM_TOPIC};

use super::*;

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    kafka: Kafka,
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    kafka: KafkaArgs,
}

fn of(toml: &str) -> Result<Kafka, String> {
    let figment = Figment::from(Serialized::defaults(File::default())).merge(Toml::string(toml));
    figment.extract::<File>().map(|file| file.kafka).map_err(|error| error.to_string())
}

fn with(name: &str, value: &str) -> Kafka {
    let client = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    Kafka { client, ..Kafka::default() }
}

#[test]
fn the_topics_have_the_names_of_the_log() {
    let kafka = Kafka::default();
    assert_eq!(kafka.topic(Direction::Downstream), DOWNSTREAM_TOPIC);
    assert_eq!(kafka.topic(Direction::Upstream), UPSTREAM_TOPIC);
    assert_eq!(kafka.topic(Direction::Positions), POSITIONS_TOPIC);
    let kafka = Kafka { topic_prefix: "plant-a".to_owned(), ..kafka };
    assert_eq!(kafka.topic(Direction::Upstream), "plant-a.upstream.v1");
    let client_id = kafka.settings(Direction::Upstream, "hub.b").client_id;
    assert_eq!(client_id, "plant-a.hub.b");
}

#[test]
fn positions_alone_are_waited_for_longer_unless_a_user_says_how_long() {
    let waits = |kafka: &Kafka| {
        [Direction::Positions, Direction::Upstream, Direction::Downstream].map(|direction| {
            let config = kafka.settings(direction, "hub.b").consumer_config().expect("taken");
            config.get(FETCH_WAIT).map(str::to_owned)
        })
    };
    let of = |texts: [&str; 3]| texts.map(|text| Some(text.to_owned()));
    assert_eq!(waits(&Kafka::default()), of([POSITIONS_FETCH_WAIT_MS, "100", "100"]));
    assert_eq!(waits(&with(FETCH_WAIT, "20")), of(["20", "20", "20"]));
    let page = include_str!("../../../../ops/docs/kafka.md");
    let row = format!("| reading positions | `{FETCH_WAIT}` | `{POSITIONS_FETCH_WAIT_MS}` |");
    assert!(page.contains(&row), "{row}");
}

#[test]
fn what_is_written_is_what_is_read() {
    let mut kafka = with("security.protocol", "SSL");
    kafka.brokers = Some("k:9092".to_owned());
    kafka.replicas_min = Some(1);
    kafka.client.insert("ssl.ca.location".to_owned(), "/etc/ca.pem".to_owned());
    let written: Map<String, Value> = kafka.clone().into();
    assert_eq!(Kafka::try_from(written).expect("well-formed"), kafka);
}

#[test]
fn a_table_has_our_settings_and_librdkafkas() {
    let kafka = of("[kafka]\n\
        brokers = \"a:1,b:2\"\n\
        topic.prefix = \"plant\"\n\
        topic.replication.factor = 1\n\
        topic.replay.window = \"2d\"\n\
        allow.unsafe.topics = true\n\
        security.protocol = \"SSL\"\n\
        \"sasl.username\" = \"hub\"\n\
        linger.ms = 3\n\
        topic.metadata.refresh.interval.ms = 1000\n");
    let kafka = kafka.expect("well-formed");
    assert_eq!(kafka.brokers.as_deref(), Some("a:1,b:2"));
    assert_eq!((kafka.topic_prefix.as_str(), kafka.replicas), ("plant", 1));
    let plan = kafka.plan(Direction::Downstream);
    assert_eq!((plan.replicas_min, plan.replay_window.as_secs()), (1, 2 * 24 * 3600));
    assert!(kafka.allow_unsafe_topics);
    let client: Vec<_> = kafka.client.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected = [
        ("linger.ms", "3"),
        ("sasl.username", "hub"),
        ("security.protocol", "SSL"),
        ("topic.metadata.refresh.interval.ms", "1000"),
    ];
    assert_eq!(client, expected);
    kafka.check().expect("usable");
}

#[test]
fn what_cannot_be_used_is_named() {
    for (toml, named) in [
        ("topic.partitions = \"many\"", "kafka.topic.partitions = many"),
        ("topic.replay.window = \"soon\"", "want a duration like 30s or 7d"),
        ("request.timeout = \"0s\"", "zero"),
    ] {
        let error = of(&format!("[kafka]\n{toml}\n")).expect_err(toml);
        assert!(error.contains(named), "{toml}: {error}");
    }
    let of_replicas = Kafka { replicas: 2, replicas_min: Some(3), ..Kafka::default() };
    let of_prefix = Kafka { topic_prefix: "a b".to_owned(), ..Kafka::default() };
    for (kafka, named) in [
        (with("acks", "1"), "kafka.acks cannot be set"),
        (with("group.id", "x"), "kafka.group.id cannot be set"),
        (with("topic.prefx", "x"), "topic.prefx"),
        (with("request.timeout.ms", "x"), "set it as kafka.request.timeout"),
        (of_replicas, "kafka.topic.min.insync.replicas = 3: want 1 to 2"),
        (of_prefix, "kafka.topic.prefix = a b"),
    ] {
        let error = kafka.check().expect_err(named).to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
}

#[test]
fn flags_are_settings_and_win_over_the_files() {
    let line = Line::try_parse_from([
        "x",
        "--kafka=c:3",
        "--kafka-set=security.protocol=SSL",
        "--kafka-set",
        "kafka.topic.prefix=b=c",
        "--allow-unsafe-topics",
    ]);
    let given = line.unwrap_or_else(|error| panic!("{error}")).kafka.given();
    let keys: Vec<_> = given.iter().map(|(key, flag, _)| (key.as_str(), *flag)).collect();
    let expected = [
        ("kafka.security.protocol", "kafka-set"),
        ("kafka.topic.prefix", "kafka-set"),
        ("kafka.brokers", "kafka"),
        ("kafka.allow.unsafe.topics", "allow-unsafe-topics"),
    ];
    assert_eq!(keys, expected);
    let mut table: Map<String, Value> = Kafka::default().into();
    for (key, _, value) in given {
        table.insert(key.trim_start_matches("kafka.").to_owned(), value);
    }
    let kafka = Kafka::try_from(table).expect("well-formed");
    assert_eq!((kafka.topic_prefix.as_str(), kafka.brokers.as_deref()), ("b=c", Some("c:3")));
    assert!(Line::try_parse_from(["x", "--kafka-set=nothing"]).is_err());
}

#[test]
fn passwords_are_not_shown() {
    let shown = format!("{:?}", with("sasl.password", "hunter2"));
    assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    let settings = with("sasl.password", "hunter2").settings(Direction::Upstream, "x");
    assert!(!format!("{settings:?}").contains("hunter2"));
}
