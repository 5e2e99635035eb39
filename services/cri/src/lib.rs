//! Pods as containers: the seams of the pod worker over the Container Runtime Interface (CRI).
//!
//! | module | job |
//! |---|---|
//! | [`proto`] | the interface on the wire |
//! | [`spec`] | what a sandbox and a container are asked to be (pure) |

pub mod proto;
pub mod spec;
