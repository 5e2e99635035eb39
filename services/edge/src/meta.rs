//! MetaManager's vocabulary: operations, objects and routing. Nothing in this wing does I/O.

pub(crate) mod object;
pub(crate) mod operation;
pub mod routing;
