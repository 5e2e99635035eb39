//! MetaManager's vocabulary: operations, what they ask for, and routing. Pure.

pub(crate) mod object;
pub(crate) mod operation;
pub mod routing;
