//! The loop that keeps a view in step with a log: it reads the log, accepts records, folds events, and
//! commits state and cursor in one batch.
//!
//! The hub and the controller share this loop, so they fold the same log by the same rules. Rows that
//! one of them derives besides go into the same batch through [`DerivedRows`].

mod body_references;
mod derived_rows;
mod first_fold;
mod follower;
mod resume;
mod stored_bodies;
mod verification;

pub use body_references::BodyReferences;
pub use derived_rows::DerivedRows;
pub use follower::{
    FollowError, Follower, Step, TakeOverError, WallClock, discard_fold, end_notes_interval,
};
pub use resume::{
    LOOK_AGAIN_AFTER, ResumePoint, STARTS_AT_ONCE, must_refold, partition_start, resume_point,
    until_readable,
};
