//! `headwater topics`: creates, checks and describes the topics of a log on Kafka.

mod check;
mod create;
mod describe;
mod reach;

use std::path::Path;

use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use headwater_cli::args::topics::{Topics, TopicsAction, TopicsPlan};
use headwater_cli::exit::{CommandResult, Failure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kafka::Kafka;

/// The client id of this command.
const PART: &str = "topics";

/// The variable that names the brokers.
const BROKERS: &str = "HEADWATER_KAFKA";

/// The part of a settings file that this command reads; the rest belongs to the parts.
#[derive(Default, Serialize, Deserialize)]
struct File {
    kafka: Kafka,
}

/// Runs `headwater topics`.
pub(crate) fn run(args: Topics) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_action(args))
}

async fn run_action(args: Topics) -> CommandResult {
    let kafka = kafka(args.action.plan())?;
    reach::check(kafka.brokers.as_deref().unwrap_or_default()).await?;
    match args.action {
        TopicsAction::Create(_) => create::run(&kafka).await,
        TopicsAction::Check(args) => check::run(&kafka, args.output).await,
        TopicsAction::Describe(args) => describe::run(&kafka, args.output).await,
    }
}

/// Merges the layers: flag over variable over file over default.
fn kafka(args: &TopicsPlan) -> Result<Kafka, Failure> {
    let variable = std::env::var(BROKERS).ok();
    let kafka = layered(args, args.config.as_deref(), variable)?;
    kafka.check().map_err(|error| Failure::Usage(format!("wrong setting: {error}")))?;
    if kafka.brokers.is_none() {
        let text =
            format!("name the brokers of Kafka: --kafka HOST:PORT, {BROKERS}, or [kafka] brokers");
        return Err(Failure::Usage(text));
    }
    Ok(kafka)
}

fn layered(
    args: &TopicsPlan,
    file: Option<&Path>,
    variable: Option<String>,
) -> Result<Kafka, Failure> {
    let wrong = |text: String| Failure::Usage(format!("wrong setting: {text}"));
    let mut figment = Figment::from(Serialized::defaults(File::default()));
    if let Some(file) = file {
        if !file.is_file() {
            return Err(Failure::Usage(format!("there is no settings file {}", file.display())));
        }
        figment = figment.merge(Toml::file_exact(file));
    }
    let brokers = variable.map(|brokers| ("kafka.brokers".to_owned(), Value::from(brokers)));
    let given = args.given().into_iter().map(|(key, _, value)| (key, value));
    for (key, value) in brokers.into_iter().chain(given) {
        figment = figment.merge(Serialized::default(&key, value));
    }
    let file: File = figment.extract().map_err(|error| wrong(error.to_string()))?;
    Ok(file.kafka)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use headwater_broker::{Cluster, ClusterSettings};

    use super::*;
    use headwater_cli::args::{Cli, Command, HistoryOutput};
    use headwater_cli::exit::Outcome;

    fn plan(args: &[&str]) -> TopicsPlan {
        let cli = Cli::try_parse_from(["headwater", "topics", "check"].iter().chain(args));
        let Command::Topics(topics) = cli.expect("usage").command else { unreachable!("topics") };
        let TopicsAction::Check(check) = topics.action else { unreachable!("check") };
        check.plan
    }

    #[test]
    fn a_flag_beats_the_variable_and_the_variable_beats_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hub.toml");
        let text = "listen = \"x\"\n[kafka]\nbrokers = \"file:1\"\ntopic.partitions = 3\n\
                    topic.prefix = \"plant\"\nsecurity.protocol = \"SSL\"\n";
        std::fs::write(&file, text).expect("written");
        let of = |args: &[&str], variable: Option<&str>| {
            let layered = layered(&plan(args), Some(&file), variable.map(str::to_owned));
            layered.unwrap_or_else(|_| panic!("{args:?} are well-formed"))
        };
        let kafka = of(&[], None);
        assert_eq!((kafka.brokers.as_deref(), kafka.partitions), (Some("file:1"), 3));
        assert_eq!(kafka.client["security.protocol"], "SSL");
        assert_eq!(of(&[], Some("variable:1")).brokers.as_deref(), Some("variable:1"));
        let flags = ["--kafka", "flag:1", "--partitions", "5", "--replay-window", "2d"];
        let kafka = of(&flags, Some("variable:1"));
        assert_eq!((kafka.brokers.as_deref(), kafka.partitions), (Some("flag:1"), 5));
        assert_eq!(kafka.replay_window.as_secs(), 2 * 24 * 3600);
        assert_eq!(kafka.topic_prefix, "plant");
        let set = ["--kafka-set", "security.protocol=PLAINTEXT"];
        assert_eq!(of(&set, None).client["security.protocol"], "PLAINTEXT");
    }

    fn outcome(result: CommandResult) -> Outcome {
        match result {
            Ok(outcome) => outcome,
            Err(failure) => panic!("{failure:?}"),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn topics_are_made_once_and_checked_on_a_real_broker() {
        let cluster = Cluster::start(ClusterSettings::default()).expect("a broker");
        let at = |more: &[&str]| {
            let brokers = cluster.bootstrap();
            let all = [&["--kafka", brokers.as_str()], more].concat();
            layered(&plan(&all), None, None).unwrap_or_else(|failure| panic!("{failure:?}"))
        };
        let (one, three) = (at(&["--replication-factor", "1", "--partitions", "2"]), at(&[]));
        assert_eq!(outcome(check::run(&one, HistoryOutput::Json).await), Outcome::Found, "missing");
        let refused = one.refuse_unsafe().await.expect_err("there are no topics").to_string();
        assert!(refused.contains("headwater topics create"), "{refused}");
        let Err(failure) = create::run(&three).await else { panic!("one broker is not three") };
        assert!(format!("{failure:?}").contains("replication.factor"), "{failure:?}");
        for _ in 0..2 {
            assert_eq!(outcome(create::run(&one).await), Outcome::Done);
        }
        for output in [HistoryOutput::Table, HistoryOutput::Json] {
            assert_eq!(outcome(check::run(&one, output).await), Outcome::Done);
            assert_eq!(outcome(describe::run(&one, output).await), Outcome::Done);
            assert_eq!(outcome(check::run(&three, output).await), Outcome::Found);
        }
        one.refuse_unsafe().await.expect("the topics are as planned");
        // The plan for three brokers differs from the topics, and each part reports that at its
        // start.
        assert_eq!(outcome(create::run(&three).await), Outcome::Found, "the topics are unchanged");
        let refused = three.refuse_unsafe().await.expect_err("dangerous").to_string();
        for expected in ["replicas is 1, want at least 3", "--add-config min.insync.replicas=2"] {
            assert!(refused.contains(expected), "{expected}: {refused}");
        }
        let allowed = Kafka { allow_unsafe_topics: true, ..three };
        allowed.refuse_unsafe().await.expect("allowed aloud");
    }

    #[test]
    fn without_brokers_the_error_names_the_setting() {
        let Err(Failure::Usage(text)) = kafka(&plan(&["--topic-prefix", "a b"])) else {
            panic!("a prefix with a space is wrong usage")
        };
        assert!(text.contains("kafka.topic.prefix"), "{text}");
    }
}
