//! MetaManager's vocabulary: operations, objects and routing, and which programs read the shared
//! stream. This module does no I/O.

pub(crate) mod cluster_consumers;
pub(crate) mod object;
pub(crate) mod operation;
pub mod routing;
pub(crate) mod worker;
