//! `headwater topics create`: creates missing topics, and checks existing ones.

use headwater_cli::exit::{CommandResult, Outcome};
use headwater_kafka::topics::{
    Direction, Finding, Severity, TopicError, TopicPlan, create, describe, findings,
};

use super::PART;
use crate::kafka::{Kafka, advice};

pub(super) async fn run(kafka: &Kafka) -> CommandResult {
    let brokers = kafka.brokers.as_deref().unwrap_or_default();
    let (mut outcome, mut unsafe_findings) = (Outcome::Done, Vec::new());
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
                // The plan was given, and a later command may lack it.
                let (replicas, replicas_min) = (TopicPlan::new(direction).replicas, None);
                if plan.replicas < replicas {
                    let usual = Kafka { replicas, replicas_min, ..kafka.clone() }.plan(direction);
                    unsafe_findings.extend(findings(&describe(&settings).await?, &usual));
                }
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
    print!("{}", outlook(&unsafe_findings, brokers));
    Ok(outcome)
}

/// What `headwater topics check` and each part will say about topics with few replicas.
fn outlook(found: &[Finding], brokers: &str) -> String {
    let dangers = found.iter().filter(|finding| finding.severity == Severity::Danger);
    let dangers: Vec<Finding> = dangers.cloned().collect();
    if dangers.is_empty() {
        return String::new();
    }
    format!(
        "These topics lose data with a broker. `headwater topics check` will report, unless it is \
         given the same settings:\n{}Each part refuses to start on them without \
         --allow-unsafe-topics.\n",
        advice(&dangers, brokers)
    )
}

#[cfg(test)]
mod tests {
    use headwater_kafka::topics::Subject;

    use super::*;

    #[test]
    fn the_outlook_of_one_replica_is_what_the_check_will_report() {
        let finding = |severity| Finding {
            subject: Subject::Topic("headwater.downstream.v1".to_owned()),
            setting: "replicas".to_owned(),
            found: "1".to_owned(),
            wanted: "at least 3".to_owned(),
            why: "the loss of a broker loses the log",
            severity,
            fix: None,
        };
        let text = outlook(&[finding(Severity::Danger)], "127.0.0.1:9092");
        for expected in ["replicas is 1, want at least 3", "--allow-unsafe-topics"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(outlook(&[finding(Severity::Warning)], "127.0.0.1:9092"), "");
    }
}
