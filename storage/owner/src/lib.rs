//! Runs the owners of blocking state beside the async runtime.
//!
//! An owner holds one state alone and blocks while it works on it: on a disk, on a C library, on a
//! queue. On a worker thread of the runtime it would keep other tasks from running.
//!
//! | the owner | runs on | start it with |
//! |---|---|---|
//! | waits for nothing of the runtime; its handle joins it, or there are hundreds of them | an OS thread with a name | [`OwnerThread::start`] |
//! | may wait for every other thread of the machine | an OS thread of the lowest priority | [`BackgroundThread::start`] |
//! | awaits timers and tasks of the runtime, and blocks in between | a thread of the runtime's blocking pool; on a single-threaded runtime, a task | [`spawn_owner`] |
//!
//! A pool thread keeps a runtime from shutting down before its owner has ended, so the owner's
//! engine is closed in order. The pool has 512 threads: many owners in a process, such as those of
//! many edges, take OS threads.
//!
//! [`try_for_each_parallel`] divides work of an owner between the processors.

mod background;
mod owner_thread;
mod parallel;
mod task;

pub use background::{BackgroundThread, lower_priority};
pub use owner_thread::{OwnerPanicked, OwnerThread};
pub use parallel::try_for_each_parallel;
pub use task::{run_blocking, spawn_owner};
