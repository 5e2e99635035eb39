//! A real Kafka broker, or three, on loopback: for tests and for development.
//!
//! The jars come from Maven's repository, once, into the user's cache; a Java runtime and Maven
//! must be there. A broker is a process of its own and can be killed, frozen and started again on
//! its data; it ends with the process that started it, however that ends.
//!
//! ```no_run
//! use headwater_broker::{Cluster, ClusterSettings};
//!
//! # fn main() -> Result<(), headwater_broker::DaemonError> {
//! let mut cluster = Cluster::start(ClusterSettings::default())?;
//! println!("{}", cluster.bootstrap());
//! cluster.broker(1).kill()?;
//! cluster.broker(1).start()?;
//! # Ok(())
//! # }
//! ```

mod cluster;
mod distribution;
mod listener;
mod properties;
mod started_line;

pub use cluster::{Cluster, ClusterSettings};
pub use headwater_daemon::{Daemon, DaemonError};
pub use listener::Listener;
