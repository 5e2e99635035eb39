//! Pods as containers: the seams of the pod worker over the Container Runtime Interface (CRI).
//!
//! ```text
//!   worker of a pod          runtime --> client --> the socket of containerd or CRI-O
//!      ^  what is known         |                      |
//!      |                        v                      v
//!      +-- knowledge (pure) <-- facts <--------- watch: events, lists
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`open`](fn@open) | checks the runtime, adopts this node's pods, starts the tasks |
//! | [`spec`] | what a sandbox and a container are asked to be (pure) |
//! | [`knowledge`] | the fold of events and lists (pure) |
//! | `runtime`, `streams`, [`images`] | the seams |
//! | `image_cache` | the images that the runtime has shown a moment ago |
//! | `inner`, `watch`, `facts` | the state; events, lists and logs; what messages mean |
//! | [`client`] | calls with deadlines |
//! | `usage`, `cgroup_files` | what pods use, from the kernel's files |
//! | `cgroups`, `limits` | the cgroups of pods, which a runtime leaves behind; limits that change |
//! | `cni_results` | results of network plugins that a power cut tore |
//! | `collection` | runs and sandboxes that nothing needs |
//! | `runtime_facts` | what the runtime says of itself |
//! | `unknown_runs` | containers whose state the runtime has lost |
//! | `id_claims` | ids that have a task each |
//! | `pending_ends` | containers of which the runtime does not say yet how they ended |
//! | `pod_names` | pods by the labels of what runs for them |
//! | [`proto`] | the interface on the wire |

mod cgroup_files;
mod cgroups;
pub mod client;
mod cni_results;
mod collection;
mod facts;
mod id_claims;
mod image_cache;
pub mod images;
mod inner;
pub mod knowledge;
mod limits;
mod open;
mod pending_ends;
mod pod_names;
pub mod proto;
mod runtime;
mod runtime_facts;
pub mod spec;
mod streams;
mod unknown_runs;
mod usage;
mod watch;

pub use open::{CriSettings, OpenError, open};
pub use runtime::CriRuntime;
