//! What the machine does at best with the same bytes: nothing of Headwater's is in the way.

pub(crate) mod consumer;
pub(crate) mod cri;
pub(crate) mod file;
pub(crate) mod h2;
pub(crate) mod patch;
pub(crate) mod producer;
pub(crate) mod rocks;

use std::time::Duration;

use headwater_store::WriteBatch;

/// One write of an edge, and whether a sync followed before the next.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) batch: WriteBatch,
    pub(crate) synced: bool,
}

/// What one run took: by the clock, and of the writing threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) wall: Duration,
    pub(crate) processor: Duration,
}
