//! Calls that fail on request.

use fuser::Errno;

/// What fails, and when. Counted from the moment it is asked for; 1 is the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// From the `nth` write on there is no room, neither for bytes nor for new files, until the
    /// fault is cleared.
    Full {
        /// Which write is the first to fail.
        nth: u64,
    },
    /// The `nth` write fails with an I/O error.
    Write {
        /// Which.
        nth: u64,
    },
    /// The `nth` sync fails with an I/O error. What it was to make durable of a file never will
    /// be, though reads still show it: a page cache marks such pages clean.
    Sync {
        /// Which.
        nth: u64,
    },
}

/// What a call does, as far as faults and freezing are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// It looks.
    Look,
    /// It needs room: writes bytes, or makes something.
    Fill,
    /// It changes something and needs no room.
    Change,
    /// It makes something durable.
    Sync,
}

/// The fault asked for, counted down.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    fault: Option<Fault>,
    /// How many calls failed.
    pub(crate) hits: u64,
}

impl Faults {
    pub(crate) fn set(&mut self, fault: Option<Fault>) {
        self.fault = fault;
    }

    /// Counts a call down; gives the error it is to fail with.
    pub(crate) fn count(&mut self, call: Call) -> Result<(), Errno> {
        let failed = match (&mut self.fault, call) {
            (Some(Fault::Full { nth }), Call::Fill) => {
                *nth = nth.saturating_sub(1);
                (*nth == 0).then_some(Errno::ENOSPC)
            }
            (Some(Fault::Write { nth }), Call::Fill) | (Some(Fault::Sync { nth }), Call::Sync) => {
                *nth = nth.saturating_sub(1);
                (*nth == 0).then_some(Errno::EIO)
            }
            _ => None,
        };
        match failed {
            None => Ok(()),
            Some(errno) => {
                self.hits += 1;
                if !matches!(self.fault, Some(Fault::Full { .. })) {
                    self.fault = None;
                }
                Err(errno)
            }
        }
    }
}
