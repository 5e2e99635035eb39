//! The publisher's progress, as the rest of the controller and people see it.

use headwater_event::WriterEpoch;

/// How far publishing is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The writer's epoch; zero before the first claim.
    pub epoch: WriterEpoch,
    /// Whether the sources have listed and the log holds everything that they listed.
    pub reconciled: bool,
    /// Events that this process appended.
    pub appended: u64,
    /// Whether another controller writes the log, and this one is its standby.
    pub is_standby: bool,
    /// Whether a standby can take over at once: its sources have listed, and it has adopted what the
    /// writer published.
    pub is_prepared: bool,
    /// Why nothing is appended just now, where something is wrong.
    pub trouble: Option<String>,
}
