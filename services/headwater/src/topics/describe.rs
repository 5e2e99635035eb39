//! `headwater topics describe`: partitions, leaders, offsets, and the settings that differ.

use std::collections::BTreeMap;

use headwater_cli::args::HistoryOutput;
use headwater_cli::exit::{CommandResult, Outcome};
use headwater_cli::table::Table;
use headwater_event::Partition;
use headwater_kafka::topics::{Direction, Topic, TopicPlan, describe, offsets};
use headwater_log::Bounds;
use serde::Serialize;

use super::PART;
use crate::kafka::Kafka;

/// The text of an empty cell.
const NONE: &str = "<none>";

/// The output of `-o json`. Stable: fields are added, never renamed.
#[derive(Serialize)]
struct Report {
    topics: Vec<TopicDescription>,
}

#[derive(Serialize)]
struct TopicDescription {
    name: String,
    id: String,
    replication_factor: u32,
    partitions: Vec<Line>,
    /// The present values of the settings that matter to Headwater.
    settings: BTreeMap<String, String>,
    differs: Vec<Difference>,
}

#[derive(Serialize)]
struct Line {
    partition: u32,
    leader: Option<i32>,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
    start_offset: u64,
    end_offset: u64,
}

#[derive(Serialize)]
struct Difference {
    setting: String,
    found: String,
    planned: String,
}

pub(super) async fn run(kafka: &Kafka, output: HistoryOutput) -> CommandResult {
    let mut topics = Vec::new();
    for direction in Direction::ALL {
        let settings = kafka.settings(direction, PART);
        let topic = describe(&settings).await?;
        let bounds = offsets(&settings).await?;
        topics.push(description_of(topic, &bounds, &kafka.plan(direction)));
    }
    match output {
        HistoryOutput::Json => println!("{}", serde_json::to_string_pretty(&Report { topics })?),
        HistoryOutput::Table => topics.iter().for_each(|topic| print!("{}", text(topic))),
    }
    Ok(Outcome::Done)
}

fn description_of(
    topic: Topic,
    bounds: &BTreeMap<Partition, Bounds>,
    plan: &TopicPlan,
) -> TopicDescription {
    let is = |name: &str| topic.config.get(name).cloned().unwrap_or_default();
    let planned = plan.settings();
    let differs = planned.iter().filter(|(name, planned)| is(name) != **planned);
    let differs = differs.map(|(name, planned)| Difference {
        setting: name.clone(),
        found: is(name),
        planned: planned.clone(),
    });
    let lines = topic.assignments.iter().map(|(partition, place)| {
        let bounds = bounds.get(partition);
        Line {
            partition: partition.0,
            leader: place.leader,
            replicas: place.replicas.clone(),
            in_sync: place.in_sync.clone(),
            start_offset: bounds.map_or(0, |bounds| bounds.low.0),
            end_offset: bounds.map_or(0, |bounds| bounds.high.0),
        }
    });
    TopicDescription {
        id: topic.id.to_string(),
        replication_factor: topic.replicas,
        partitions: lines.collect(),
        settings: planned.keys().map(|name| (name.clone(), is(name))).collect(),
        differs: differs.collect(),
        name: topic.name.clone(),
    }
}

fn text(topic: &TopicDescription) -> String {
    let settings: Vec<_> =
        topic.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut table = Table::new(["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END"]);
    for line in &topic.partitions {
        table.row([
            line.partition.to_string(),
            line.leader.map_or(NONE.to_owned(), |leader| leader.to_string()),
            ids(&line.replicas),
            ids(&line.in_sync),
            line.start_offset.to_string(),
            line.end_offset.to_string(),
        ]);
    }
    let differs: String = topic
        .differs
        .iter()
        .map(|it| format!("Differs: {}={} (planned {})\n", it.setting, it.found, it.planned))
        .collect();
    format!(
        "Topic: {}   Id: {}   Partitions: {}   ReplicationFactor: {}\nConfigs: {}\n{differs}{table}\n",
        topic.name,
        topic.id,
        topic.partitions.len(),
        topic.replication_factor,
        settings.join(","),
    )
}

fn ids(brokers: &[i32]) -> String {
    let brokers: Vec<_> = brokers.iter().map(ToString::to_string).collect();
    brokers.join(",")
}
