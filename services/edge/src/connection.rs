//! The connection to the cloud: finds a hub, holds the session with it, retries.
//!
//! ```text
//!  session --> dialer --> address, backoff
//!     |           |
//!     |           v
//!     +-------> link --> transport
//! ```
//!
//! [`session`] owns the protocol's state and the phase of the connection. `dialer` chooses the next
//! hub and the wait before it. `link` is the gRPC stream, `transport` the DNS lookup, TCP, TLS and
//! HTTP/2 under it. `send_queue` holds the messages that the link has not taken.

pub mod address;
pub mod backoff;
pub(crate) mod dialer;
pub(crate) mod link;
mod send_queue;
pub mod session;
pub(crate) mod transport;
