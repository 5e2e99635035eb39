//! Faults between one client and the log.

use std::collections::VecDeque;

use crate::log::{Append, AppendError};

/// The outcome of one append, as a test chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendFault {
    /// `Rejected`: nothing is written.
    Rejected,
    /// `Unknown`, and everything is written.
    UnknownWritten,
    /// `Unknown`, and nothing is written, ever.
    UnknownLost,
    /// `Unknown`; nothing is written until [`super::MemoryLog::deliver_late`].
    UnknownWrittenLater,
    /// `Unknown`; the records marked `true`, in order, are written, the others never.
    UnknownSome(Vec<bool>),
    /// `Fatal`: this handle never appends again.
    Fatal {
        /// Whether the records of the call are written.
        written: bool,
    },
}

/// What calls that concern one partition meet, through every handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionFault {
    /// Appends are `Unknown`, and not written: the partition has too few replicas.
    Fails,
    /// The append waits until the fault is over.
    Hangs,
    /// The partition has no leader. Appends are as with [`PartitionFault::Fails`], its bounds are
    /// `Unavailable`, and so is a new reader of it. An open reader waits for its records.
    NoLeader,
}

/// The faults of one handle.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) next: VecDeque<AppendFault>,
    /// The appends of [`AppendFault::UnknownWrittenLater`].
    pub(super) withheld: Vec<Append>,
    pub(super) frozen: bool,
    fatal: bool,
}

impl Faults {
    pub(super) fn check_fatal(&self) -> Result<(), AppendError> {
        match self.fatal {
            true => Err(AppendError::Fatal { reason: "an earlier append was fatal".to_owned() }),
            false => Ok(()),
        }
    }

    /// Applies the next fault: returns the appends to write now, and the result for the caller.
    pub(super) fn apply_next(
        &mut self,
        appends: Vec<Append>,
    ) -> (Vec<Append>, Result<(), AppendError>) {
        let Some(fault) = self.next.pop_front() else { return (appends, Ok(())) };
        let reason = format!("injected: {fault:?}");
        let unknown = Err(AppendError::Unknown { reason: reason.clone() });
        match fault {
            AppendFault::Rejected => (Vec::new(), Err(AppendError::Rejected { reason })),
            AppendFault::UnknownWritten => (appends, unknown),
            AppendFault::UnknownLost => (Vec::new(), unknown),
            AppendFault::UnknownWrittenLater => {
                self.withheld.extend(appends);
                (Vec::new(), unknown)
            }
            AppendFault::UnknownSome(written) => {
                let marked = appends.into_iter().zip(written);
                (marked.filter_map(|(append, yes)| yes.then_some(append)).collect(), unknown)
            }
            AppendFault::Fatal { written } => {
                self.fatal = true;
                let appends = if written { appends } else { Vec::new() };
                (appends, Err(AppendError::Fatal { reason }))
            }
        }
    }
}
