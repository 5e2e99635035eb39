//! librdkafka's clients: what each of them is given, and what it reports.

mod background_producer;
mod context;
mod delivery;

pub(crate) use background_producer::BackgroundProducer;
pub(crate) use context::{ClientContext, describe};
pub(crate) use delivery::{AppendCall, Delivery};
