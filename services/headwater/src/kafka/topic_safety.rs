//! The safety of the topics. A part checks it before its start, and so does `topics check`.

use std::fmt::Write as _;

use headwater_event::Partition;
use headwater_kafka::topics::{
    Direction, Finding, Severity, TopicError, broker_findings, brokers, describe, findings,
    under_replicated,
};

use super::Kafka;

/// The client id of the checks.
const ASKS: &str = "topics";

/// The reason why a part does not start on Kafka.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KafkaFault {
    /// A topic is missing, or Kafka cannot be asked about it.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Settings of topics or brokers would lose data.
    #[error(
        "Kafka would lose data:\n{text}Correct these settings, or start with --allow-unsafe-topics"
    )]
    Unsafe {
        /// Each setting with its consequence and its remedy, on some lines each.
        text: String,
    },
}

/// The findings about the topics and the brokers.
#[derive(Debug, Default)]
pub(crate) struct TopicReport {
    /// The settings that differ from the plan, the worst first.
    pub(crate) found: Vec<Finding>,
    /// The missing topics.
    pub(crate) missing: Vec<String>,
    /// Partitions that cannot be written now, because too few brokers have them.
    pub(crate) unwritable: Vec<(String, Vec<Partition>)>,
    /// The checks that failed, each with its cause.
    pub(crate) unseen: Vec<String>,
}

impl Kafka {
    /// Checks all topics, and the brokers as far as they report their settings.
    ///
    /// # Errors
    /// When Kafka cannot be asked about a topic within the time of a few requests.
    pub(crate) async fn examine(&self) -> Result<TopicReport, TopicError> {
        let mut report = TopicReport::default();
        for direction in Direction::ALL {
            match describe(&self.settings(direction, ASKS)).await {
                Ok(topic) => {
                    report.found.extend(findings(&topic, &self.plan(direction)));
                    let short = under_replicated(&topic);
                    if !short.is_empty() {
                        report.unwritable.push((topic.name, short));
                    }
                }
                Err(TopicError::Missing { topic }) => report.missing.push(topic),
                Err(error) => return Err(error),
            }
        }
        match brokers(&self.settings(Direction::Downstream, ASKS)).await {
            Ok(brokers) => {
                let plan = self.plan(Direction::Downstream);
                let found = brokers.iter().flat_map(|broker| broker_findings(broker, &plan));
                report.found.extend(found);
            }
            Err(error) => report.unseen.push(headwater_telemetry::error_chain(&error)),
        }
        report.found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Ok(report)
    }

    /// Succeeds if the topics exist and are safe, or unsafe ones are allowed; it logs each danger
    /// then. It always logs warnings.
    ///
    /// # Errors
    /// [`KafkaFault::Unsafe`] names every dangerous setting; the other that a topic is missing, or
    /// that Kafka cannot be asked.
    pub(crate) async fn refuse_unsafe(&self) -> Result<(), KafkaFault> {
        let report = self.examine().await?;
        if let Some(topic) = report.missing.into_iter().next() {
            return Err(TopicError::Missing { topic }.into());
        }
        for (topic, partitions) in &report.unwritable {
            tracing::warn!(
                topic,
                ?partitions,
                "too few brokers have these partitions: appends to them wait"
            );
        }
        let (dangers, costs): (Vec<_>, Vec<_>) =
            report.found.into_iter().partition(|finding| finding.severity == Severity::Danger);
        let allowed = if self.allow_unsafe_topics { &dangers[..] } else { &[] };
        for Finding { subject, setting, found, wanted, why, .. } in costs.iter().chain(allowed) {
            tracing::warn!(%subject, setting, found, wanted, "{why}");
        }
        if dangers.is_empty() || self.allow_unsafe_topics {
            return Ok(());
        }
        let brokers = self.brokers.as_deref().unwrap_or_default();
        Err(KafkaFault::Unsafe { text: advice(&dangers, brokers) })
    }
}

/// Prints each finding on a line, its consequence on the next, then the command that corrects it.
pub(crate) fn advice(found: &[Finding], brokers: &str) -> String {
    let mut text = String::new();
    for finding in found {
        let Finding { subject, setting, found, wanted, why, .. } = finding;
        let found = if found.is_empty() { "not set" } else { found };
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {subject}: {setting} is {found}, want {wanted}");
        let _ = writeln!(text, "    {why}");
        if let Some(command) = finding.command(brokers) {
            let _ = writeln!(text, "    {command}");
        }
    }
    text
}
