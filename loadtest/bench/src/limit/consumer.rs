//! A bare consumer of rdkafka's, with the settings of the log's own.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_kafka::KafkaSettings;
use headwater_loadtest::failure::{Attempt, Failure};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

/// The consumer.
pub(crate) struct BareConsumer {
    consumer: BaseConsumer,
    partitions: usize,
}

/// Where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Start,
    End,
}

impl BareConsumer {
    /// One that reads `partitions` partitions of the topic of `settings`.
    ///
    /// # Errors
    /// When rdkafka does not take the settings, or the broker does not answer.
    pub(crate) fn new(
        settings: &KafkaSettings,
        partitions: u32,
        from: From,
    ) -> Result<Self, Failure> {
        let config = settings.consumer_config().tried("the settings of a consumer")?;
        let consumer: BaseConsumer = config.create().tried("making a consumer")?;
        let mut list = TopicPartitionList::new();
        for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
            let (low, high) = consumer
                .fetch_watermarks(&settings.topic, partition, settings.request_timeout)
                .tried("asking for the ends of a topic")?;
            let at = if from == From::Start { low } else { high };
            list.add_partition_offset(&settings.topic, partition, Offset::Offset(at))
                .tried("naming a partition")?;
        }
        consumer.assign(&list).tried("reading a topic")?;
        Ok(Self { consumer, partitions: list.count() })
    }

    /// Reads to the end of every partition, and returns the number of records. To be called once.
    ///
    /// # Errors
    /// When the topic cannot be read, or nothing comes within `wait`.
    pub(crate) fn read_to_end(&self, wait: Duration) -> Result<u64, Failure> {
        let mut ended = BTreeSet::new();
        let mut records = 0;
        while ended.len() < self.partitions {
            match self.consumer.poll(wait) {
                Some(Ok(_)) => records += 1,
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    ended.insert(partition);
                }
                Some(Err(error)) => return Err(error).tried("reading a topic"),
                None => return Err(Failure::of("the topic cannot be read to its end")),
            }
        }
        Ok(records)
    }

    /// The next record's value, if one comes within `wait`.
    ///
    /// # Errors
    /// When the topic cannot be read.
    pub(crate) fn next<T>(
        &self,
        wait: Duration,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Failure> {
        match self.consumer.poll(wait) {
            None | Some(Err(KafkaError::PartitionEOF(_))) => Ok(None),
            Some(Ok(message)) => Ok(Some(take(message.payload().unwrap_or_default()))),
            Some(Err(error)) => Err(error).tried("reading a topic"),
        }
    }
}
