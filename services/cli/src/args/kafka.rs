//! Kafka on the command line.

use clap::Args;
use serde_json::Value;

/// The flags of every part that runs on Kafka.
#[derive(Clone, Debug, Default, Args)]
pub struct KafkaArgs {
    #[command(flatten)]
    pub at: KafkaAt,
    /// Start although a setting of a topic or a broker would lose data
    #[arg(long)]
    pub allow_unsafe_topics: bool,
}

/// The brokers and settings of Kafka.
#[derive(Clone, Debug, Default, Args)]
pub struct KafkaAt {
    /// Kafka brokers to connect to first
    #[arg(long, value_name = "HOST:PORT,...")]
    pub kafka: Option<String>,
    /// A setting of the table `kafka`: one of Headwater, or one of librdkafka by its own name
    /// (security.protocol=SSL); once or more
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub kafka_set: Vec<(String, String)>,
}

impl KafkaAt {
    /// Returns the settings that were given: each with its key, the name of its flag, and its
    /// value.
    pub fn given(&self) -> Vec<(String, &'static str, Value)> {
        let mut given = Vec::new();
        for (name, value) in &self.kafka_set {
            given.push((format!("kafka.{name}"), "kafka-set", value.clone().into()));
        }
        if let Some(brokers) = &self.kafka {
            given.push(("kafka.brokers".to_owned(), "kafka", brokers.clone().into()));
        }
        given
    }
}

impl KafkaArgs {
    /// Returns the settings that were given: each with its key, the name of its flag, and its
    /// value.
    pub fn given(&self) -> Vec<(String, &'static str, Value)> {
        let mut given = self.at.given();
        if self.allow_unsafe_topics {
            let key = "kafka.allow.unsafe.topics".to_owned();
            given.push((key, "allow-unsafe-topics", true.into()));
        }
        given
    }
}

/// Parses a setting and its value. The name may have the prefix `kafka.`.
fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("want NAME=VALUE")?;
    let name = name.trim();
    let name = name.strip_prefix("kafka.").unwrap_or(name);
    if name.is_empty() {
        return Err("want NAME=VALUE".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}
