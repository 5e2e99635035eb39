//! Keeps a view in step with a log: reads it, accepts its records, folds the events, and commits
//! state and cursor in one batch.
//!
//! Hub and controller fold the same log by the same rules; this is the loop they share. What
//! either derives besides goes into the same batch through [`DerivedRows`].

mod derived_rows;
mod follower;

pub use derived_rows::DerivedRows;
pub use follower::{FollowError, Follower, Step, TakeOverError, WallClock, discard_fold};
