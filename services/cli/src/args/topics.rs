//! The arguments of `headwater topics`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::HistoryOutput;
use super::kafka::KafkaAt;

#[derive(Debug, Args)]
pub struct Topics {
    #[command(subcommand)]
    pub action: TopicsAction,
}

#[derive(Debug, Subcommand)]
pub enum TopicsAction {
    /// Create the topics with the settings that Headwater needs; check a topic that exists, and
    /// leave it unchanged
    Create(TopicsCreate),
    /// Name every setting of topics and brokers that would lose data, with the command that
    /// corrects it
    Check(TopicsAsk),
    /// Show partitions, leaders, offsets, and the settings that differ
    Describe(TopicsAsk),
}

impl TopicsAction {
    /// The planned topics of any action.
    pub fn plan(&self) -> &TopicsPlan {
        match self {
            Self::Create(args) => &args.plan,
            Self::Check(args) | Self::Describe(args) => &args.plan,
        }
    }
}

#[derive(Debug, Args)]
pub struct TopicsCreate {
    #[command(flatten)]
    pub plan: TopicsPlan,
}

#[derive(Debug, Args)]
pub struct TopicsAsk {
    #[command(flatten)]
    pub plan: TopicsPlan,
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub output: HistoryOutput,
}

/// The topics and their planned settings.
#[derive(Debug, Args)]
pub struct TopicsPlan {
    #[command(flatten)]
    pub kafka: KafkaAt,
    /// Prefix of the topics' names [default: headwater]
    #[arg(long, value_name = "PREFIX")]
    pub topic_prefix: Option<String>,
    /// Partitions of each topic; fixed for its life [default: 12]
    #[arg(long, value_name = "N")]
    pub partitions: Option<u32>,
    /// Brokers that store each record [default: 3]
    #[arg(long, value_name = "N")]
    pub replication_factor: Option<u32>,
    /// Brokers that must have a record before its append is acknowledged [default: one fewer]
    #[arg(long, value_name = "N")]
    pub min_insync_replicas: Option<u32>,
    /// Time for which every event stays readable [default: 7d]
    #[arg(long, value_name = "DURATION")]
    pub replay_window: Option<humantime::Duration>,
    /// Settings file (TOML); its table `kafka` is read
    #[arg(long, value_name = "FILE", env = "HEADWATER_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

impl TopicsPlan {
    /// Returns the settings that were given: each with its key, the name of its flag, and its
    /// value.
    pub fn given(&self) -> Vec<(String, &'static str, serde_json::Value)> {
        let mut given = self.kafka.given();
        let mut flag = |key: &str, flag, value: Option<String>| {
            given.extend(value.map(|value| (format!("kafka.{key}"), flag, value.into())));
        };
        let text = |number: Option<u32>| number.map(|number| number.to_string());
        flag("topic.prefix", "topic-prefix", self.topic_prefix.clone());
        flag("topic.partitions", "partitions", text(self.partitions));
        flag("topic.replication.factor", "replication-factor", text(self.replication_factor));
        flag("topic.min.insync.replicas", "min-insync-replicas", text(self.min_insync_replicas));
        let window = self.replay_window.map(|window| window.to_string());
        flag("topic.replay.window", "replay-window", window);
        given
    }
}
