//! Volumes of storage drivers: the seam of the pod worker over the Container Storage Interface (CSI).
//!
//! ```text
//!   worker of a pod --> volumes --> plan (pure) --> client --> the socket of a driver
//!                          |                                      ^
//!                          v                                      | registers
//!                       ledger (pure) <--> records         registrar: sockets
//!                          |
//!                          +--> unstaging, once no pod of the node uses the volume
//! ```
//!
//! | module | job |
//! |---|---|
//! | `volumes` | publishes and takes back the volumes of pods |
//! | [`plan`] | what a driver is asked of one volume (pure) |
//! | [`ledger`] | which pod uses which volume, and what is staged (pure) |
//! | `records` | the same on the disk, in a kubelet's layout |
//! | [`layout`] | the paths, and the names that may be part of one (pure) |
//! | `unstaging` | takes volumes back from the node that no pod uses |
//! | [`registry`], [`sockets`] | the drivers of the node; the sockets by which they register (pure) |
//! | `registrar` | asks a new socket which driver it is |
//! | `statistics` | what a published volume uses |
//! | [`client`] | calls with deadlines |
//! | `turns` | one operation on a pod or a volume at a time |
//! | [`proto`] | the interfaces on the wire |

pub mod client;
pub mod layout;
pub mod ledger;
pub mod plan;
pub mod proto;
mod records;
mod registrar;
pub mod registry;
pub mod sockets;
mod statistics;
mod turns;
mod unstaging;
mod volumes;

pub use volumes::{CsiSettings, CsiVolumes, OpenError};
