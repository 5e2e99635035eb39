//! MetaManager's vocabulary: operations, objects and routing. This module does no I/O.

pub(crate) mod object;
pub(crate) mod operation;
pub mod routing;
