//! Keeps a view in step with a log: reads it, accepts its records, folds the events, and commits
//! state and cursor in one batch.
//!
//! Hub and controller fold the same log by the same rules; this is the loop they share. What
//! either derives besides goes into the same batch through [`Rows`].

mod follower;
mod rows;
mod thread;

pub use follower::{FollowError, Follower, Step, TakeOverError, WallClock, forget_fold};
pub use rows::{Moved, Rows};
pub use thread::on_its_own_thread;
