//! `headwater topics check`: the settings that would lose data, with the remedies.

use headwater_cli::args::HistoryOutput;
use headwater_cli::exit::{CommandResult, Outcome};
use headwater_event::Partition;
use headwater_kafka::topics::{Finding, Severity, Subject};
use serde::Serialize;

use crate::kafka::{Kafka, advice};

/// The output of `-o json`. Stable: fields are added, never renamed.
#[derive(Serialize)]
struct Report<'r> {
    safe: bool,
    findings: Vec<Line<'r>>,
    /// The checks that failed, each with its cause.
    unseen: &'r [String],
}

#[derive(Serialize)]
struct Line<'r> {
    subject: String,
    setting: &'r str,
    found: &'r str,
    wanted: &'r str,
    severity: &'static str,
    why: &'r str,
    command: Option<String>,
}

pub(super) async fn run(kafka: &Kafka, output: HistoryOutput) -> CommandResult {
    let at = kafka.brokers.as_deref().unwrap_or_default();
    let report = kafka.examine().await?;
    let mut found: Vec<Finding> = report.missing.iter().map(|topic| missing(topic)).collect();
    let short = report.unwritable.iter();
    found.extend(short.map(|(topic, partitions)| unwritable(topic, partitions)));
    found.extend(report.found);
    let is_safe = found.iter().all(|finding| finding.severity != Severity::Danger);
    match output {
        HistoryOutput::Json => {
            let findings = found.iter().map(|finding| line(finding, at)).collect();
            let printed = Report { safe: is_safe, findings, unseen: &report.unseen };
            println!("{}", serde_json::to_string_pretty(&printed)?);
        }
        HistoryOutput::Table => {
            print!("{}", text(&found, at));
            report.unseen.iter().for_each(|text| eprintln!("not checked: {text}"));
        }
    }
    Ok(if is_safe { Outcome::Done } else { Outcome::Found })
}

fn text(found: &[Finding], at: &str) -> String {
    if found.is_empty() {
        return "All topics are as planned.\n".to_owned();
    }
    let of = |severity, head: &str| {
        let of = found.iter().filter(|finding| finding.severity == severity);
        let text = advice(&of.cloned().collect::<Vec<_>>(), at);
        if text.is_empty() { text } else { format!("{head}\n{text}") }
    };
    let dangers = of(Severity::Danger, "DANGER: the parts refuse to start");
    dangers + &of(Severity::Warning, "WARNING: this costs time or space")
}

fn missing(topic: &str) -> Finding {
    Finding {
        subject: Subject::Topic(topic.to_owned()),
        setting: "topic".to_owned(),
        found: "missing".to_owned(),
        wanted: "one created by `headwater topics create`".to_owned(),
        why: "there is no log to write to or to read",
        severity: Severity::Danger,
        fix: None,
    }
}

fn unwritable(topic: &str, short: &[Partition]) -> Finding {
    let partitions: Vec<_> = short.iter().map(ToString::to_string).collect();
    Finding {
        subject: Subject::Topic(topic.to_owned()),
        setting: format!("isr of partition {}", partitions.join(", ")),
        found: "below min.insync.replicas".to_owned(),
        wanted: "every broker of its replicas".to_owned(),
        why: "appends to it wait until a broker is back",
        severity: Severity::Danger,
        fix: None,
    }
}

fn line<'r>(finding: &'r Finding, brokers: &str) -> Line<'r> {
    Line {
        subject: finding.subject.to_string(),
        setting: &finding.setting,
        found: &finding.found,
        wanted: &finding.wanted,
        severity: match finding.severity {
            Severity::Danger => "danger",
            Severity::Warning => "warning",
        },
        why: finding.why,
        command: finding.command(brokers),
    }
}
