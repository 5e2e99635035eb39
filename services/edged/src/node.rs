//! The node itself: its Node object, and the task that reports it.

pub(crate) mod images;
pub(crate) mod measurement;
pub(crate) mod object;
pub(crate) mod pressure;
pub(crate) mod reporter;
pub(crate) mod signal;
