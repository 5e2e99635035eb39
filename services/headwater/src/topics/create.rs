//! `headwater topics create`: creates missing topics, and checks existing ones.

use headwater_cli::exit::{CommandResult, Outcome};
use headwater_kafka::topics::{Direction, Severity, TopicError, create, describe, findings};

use super::PART;
use crate::kafka::{Kafka, advice};

pub(super) async fn run(kafka: &Kafka) -> CommandResult {
    let brokers = kafka.brokers.as_deref().unwrap_or_default();
    let mut outcome = Outcome::Done;
    for direction in Direction::ALL {
        let (settings, plan) = (kafka.settings(direction, PART), kafka.plan(direction));
        let topic = &settings.topic;
        match create(&settings, &plan).await {
            Ok(()) => {
                let window = match direction {
                    Direction::Downstream | Direction::Upstream => {
                        let window = humantime::format_duration(plan.replay_window);
                        format!("replay window {window}")
                    }
                    Direction::Positions => "no replay window".to_owned(),
                };
                println!(
                    "Created topic {topic}: {} partitions, replication factor {}, \
                     min.insync.replicas {}, {window}.",
                    plan.partitions, plan.replicas, plan.replicas_min
                );
            }
            Err(TopicError::Exists { .. }) => {
                let found = findings(&describe(&settings).await?, &plan);
                if found.is_empty() {
                    println!("Topic {topic} exists already, as planned.");
                    continue;
                }
                println!("Topic {topic} exists already; nothing was changed:");
                print!("{}", advice(&found, brokers));
                if found.iter().any(|finding| finding.severity == Severity::Danger) {
                    outcome = Outcome::Found;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(outcome)
}
