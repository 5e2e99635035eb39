//! `headwater topics create`: makes what is missing, and checks what is there.

use headwater_cli::exit::{CommandResult, Outcome};
use headwater_kafka::topics::{Severity, TopicError, create, describe, findings};

use super::{DIRECTIONS, PART};
use crate::kafka::{Kafka, advice};

pub(super) async fn run(kafka: &Kafka) -> CommandResult {
    let brokers = kafka.brokers.as_deref().unwrap_or_default();
    let mut outcome = Outcome::Done;
    for direction in DIRECTIONS {
        let (settings, plan) = (kafka.settings(direction, PART), kafka.plan(direction));
        let topic = &settings.topic;
        match create(&settings, &plan).await {
            Ok(()) => {
                let window = humantime::format_duration(plan.replay_window);
                println!(
                    "Created topic {topic}: {} partitions, replication factor {}, \
                     min.insync.replicas {}, replay window {window}.",
                    plan.partitions, plan.replicas, plan.replicas_min
                );
            }
            Err(TopicError::Exists { .. }) => {
                let found = findings(&describe(&settings).await?, &plan);
                if found.is_empty() {
                    println!("Topic {topic} is there already, as it should be.");
                    continue;
                }
                println!("Topic {topic} is there already; nothing was changed:");
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
