//! A producer with a thread that hears what becomes of its records.
//!
//! rdkafka has one of its own, which looks ten times a second and spins through the last millisecond
//! of each look: a producer that rests takes a hundredth of a core. This one looks once a second.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::producer::{BaseProducer, Producer, PurgeConfig};

use crate::clients::Context;
use crate::settings::SettingsError;

/// How long one look lasts. What comes is heard at once; a client that was dropped is closed by the
/// end of it.
const LOOK: Duration = Duration::from_secs(1);

/// A producer. Once it is dropped, nothing is written that was not sent before.
pub(crate) struct Polled(Arc<BaseProducer<Context>>);

impl Polled {
    pub(crate) fn new(config: &ClientConfig, context: Context) -> Result<Self, SettingsError> {
        let invalid = |reason: String| SettingsError::Invalid { reason };
        let producer = BaseProducer::from_config_and_context(config, context);
        let producer = Arc::new(producer.map_err(|error| invalid(error.to_string()))?);
        let polled = Arc::downgrade(&producer);
        let poll = move || {
            while let Some(producer) = polled.upgrade() {
                producer.poll(LOOK);
            }
        };
        thread::Builder::new()
            .name("kafka outcomes".to_owned())
            .spawn(poll)
            .map_err(|error| invalid(format!("there is no thread for it: {error}")))?;
        Ok(Self(producer))
    }
}

impl Deref for Polled {
    type Target = BaseProducer<Context>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // The thread may hold it for the rest of a look.
        self.0.purge(PurgeConfig::default().queue().inflight());
    }
}
