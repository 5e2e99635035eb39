//! Device plugins of a node: their registration, their lists and the calls to them.
//!
//! ```text
//!   plugin --Register--> registration --> one task a plugin: options, ListAndWatch --> edged's devices
//!      ^                                                                                  |
//!      +----------- GetPreferredAllocation, Allocate, PreStartContainer ------------------+
//! ```
//!
//! | module | job |
//! |---|---|
//! | `authority` | the connections of plugins, whose requests name no authority that an HTTP/2 server takes |
//! | `registration` | the node's socket, and what a plugin may register |
//! | `watch` | the task of a plugin |
//! | `plugin` | the calls to a plugin, with deadlines and bounds |
//! | [`proto`] | the interface on the wire |
//!
//! The folder is a kubelet's (`/var/lib/kubelet/device-plugins`), so that plugins work unchanged: they watch for its
//! socket, which is a new one at each start, and register then.

mod authority;
mod plugin;
pub mod proto;
mod registration;
mod watch;

pub use registration::{DevicePlugins, SOCKET};
