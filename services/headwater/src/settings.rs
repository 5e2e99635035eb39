//! The settings of each command that runs a service. The crate `settings` merges their layers.

pub(crate) mod controller;
pub(crate) mod cri;
pub(crate) mod edge;
pub(crate) mod edged;
pub(crate) mod hub;
pub(crate) mod images;
pub(crate) mod kubelet;
pub(crate) mod kubernetes;
pub(crate) mod pods;
pub(crate) mod pressure;
pub(crate) mod process;
pub(crate) mod resources;
pub(crate) mod streams;
pub(crate) mod up;

use headwater_settings::InvalidSetting;

use crate::kafka::{Kafka, KafkaTableError};

/// Checks the `[kafka]` table.
fn check_kafka(kafka: &Kafka) -> Result<(), InvalidSetting> {
    kafka.check().map_err(|error| match error {
        KafkaTableError::Wrong { name, given, reason } => {
            InvalidSetting::new(format!("kafka.{name}"), format!("{given}: {reason}"))
        }
        error => InvalidSetting::new("kafka", error),
    })
}

/// As [`check_kafka`], and checks that there are brokers: a part of the cloud needs them.
fn check_kafka_is_named(kafka: &Kafka) -> Result<(), InvalidSetting> {
    match &kafka.brokers {
        None => Err(InvalidSetting::new(
            "kafka.brokers",
            "name the brokers of Kafka: --kafka HOST:PORT,...",
        )),
        Some(_) => check_kafka(kafka),
    }
}

#[cfg(test)]
mod examples;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod units;
