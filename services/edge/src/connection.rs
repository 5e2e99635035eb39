//! The connection to the cloud: where hubs are, how one is reached, the session with it.

pub mod address;
pub mod backoff;
pub(crate) mod link;
mod send_queue;
pub mod session;
mod transport;
