//! Whether the topics are safe: asked before a part starts on them, and by `topics check`.

use std::fmt::Write as _;

use headwater_event::Partition;
use headwater_kafka::topics::{
    Direction, Finding, Severity, TopicError, broker_findings, brokers, describe, findings,
    under_replicated,
};

use super::Kafka;

/// The name by which brokers know the client that asks.
const ASKS: &str = "topics";

/// Why a part does not start on Kafka.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KafkaFault {
    /// A topic is missing, or cannot be asked about.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Settings of topics or brokers would lose data.
    #[error(
        "Kafka would lose data:\n{text}Mend it, or say --allow-unsafe-topics to go on all the same"
    )]
    Unsafe {
        /// Each setting with its cost and its remedy, some lines each.
        text: String,
    },
}

/// How the topics and the brokers are.
#[derive(Debug, Default)]
pub(crate) struct TopicReport {
    /// What is not as it should be, the worst first.
    pub(crate) found: Vec<Finding>,
    /// Topics that are not there.
    pub(crate) missing: Vec<String>,
    /// Partitions that cannot be written just now, since too few brokers have them.
    pub(crate) unwritable: Vec<(String, Vec<Partition>)>,
    /// Why something could not be looked at.
    pub(crate) unseen: Vec<String>,
}

impl Kafka {
    /// Looks at both topics and at the brokers, as far as these say what they are like.
    ///
    /// # Errors
    /// When Kafka cannot be asked about a topic within the time of a few requests.
    pub(crate) async fn examine(&self) -> Result<TopicReport, TopicError> {
        let mut report = TopicReport::default();
        for direction in [Direction::Downstream, Direction::Upstream] {
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

    /// Returns when the topics are there and safe, or unsafe ones are allowed; then it logs each
    /// danger. It always logs warnings.
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
            tracing::warn!(topic, ?partitions, "too few brokers have them to append there");
        }
        let (dangers, costs): (Vec<_>, Vec<_>) =
            report.found.into_iter().partition(|finding| finding.severity == Severity::Danger);
        let said = if self.allow_unsafe_topics { &dangers[..] } else { &[] };
        for Finding { subject, setting, found, wanted, why, .. } in costs.iter().chain(said) {
            tracing::warn!(%subject, setting, found, wanted, "{why}");
        }
        if dangers.is_empty() || self.allow_unsafe_topics {
            return Ok(());
        }
        let brokers = self.brokers.as_deref().unwrap_or_default();
        Err(KafkaFault::Unsafe { text: advice(&dangers, brokers) })
    }
}

/// Each finding in a line, what it would cost in the next, then the command that mends it.
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
