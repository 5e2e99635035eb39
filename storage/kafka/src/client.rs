//! librdkafka's clients: what each of them is given, and what it reports.

mod background_producer;
mod context;
mod delivery;
mod request_client;

pub(crate) use background_producer::BackgroundProducer;
pub(crate) use context::{ClientContext, describe};
pub(crate) use delivery::{AppendCall, Delivery};
pub(crate) use request_client::{RequestClient, is_answer};
