//! `headwater topics`: what can be asked about the topics of a log on Kafka.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::HistoryOutput;
use crate::kafka::KafkaAt;

#[derive(Debug, Args)]
pub(crate) struct Topics {
    #[command(subcommand)]
    pub(crate) action: TopicsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicsAction {
    /// Make both topics with the settings that the promises rest on; one that is there already is
    /// checked and left as it is
    Create(TopicsCreate),
    /// Name every setting of topics and brokers that would lose data, and the command that mends
    /// it
    Check(TopicsAsk),
    /// Show partitions, leaders, offsets, and the settings that differ
    Describe(TopicsAsk),
}

#[derive(Debug, Args)]
pub(crate) struct TopicsCreate {
    #[command(flatten)]
    pub(crate) plan: TopicsPlan,
}

#[derive(Debug, Args)]
pub(crate) struct TopicsAsk {
    #[command(flatten)]
    pub(crate) plan: TopicsPlan,
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub(crate) output: HistoryOutput,
}

/// Which topics, and how they are to be.
#[derive(Debug, Args)]
pub(crate) struct TopicsPlan {
    #[command(flatten)]
    pub(crate) kafka: KafkaAt,
    /// What the topics' names begin with [default: headwater]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) topic_prefix: Option<String>,
    /// How many partitions each is to have; fixed for its life [default: 12]
    #[arg(long, value_name = "N")]
    pub(crate) partitions: Option<u32>,
    /// How many brokers are to have each record [default: 3]
    #[arg(long, value_name = "N")]
    pub(crate) replication_factor: Option<u32>,
    /// How many of them must have it before it counts [default: one fewer]
    #[arg(long, value_name = "N")]
    pub(crate) min_insync_replicas: Option<u32>,
    /// How long every event is to stay readable [default: 7d]
    #[arg(long, value_name = "DURATION")]
    pub(crate) replay_window: Option<humantime::Duration>,
    /// Settings file (TOML); its table `kafka` is read
    #[arg(long, value_name = "FILE", env = "HEADWATER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
}

impl TopicsPlan {
    /// The settings that were given: each with its key, the name of its flag, and its value.
    pub(crate) fn given(&self) -> Vec<(String, &'static str, serde_json::Value)> {
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
