//! What is measured, one row of the table a file.

pub(crate) mod api;
pub(crate) mod append;
pub(crate) mod apply;
pub(crate) mod bootstrap;
pub(crate) mod bulk;
pub(crate) mod containers;
pub(crate) mod crash;
pub(crate) mod crowd;
pub(crate) mod fleet;
pub(crate) mod kubeedge;
pub(crate) mod memory;
pub(crate) mod metasync;
pub(crate) mod propagation;
pub(crate) mod request;
pub(crate) mod resume;
pub(crate) mod wire;
