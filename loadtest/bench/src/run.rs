//! How a row is to be measured.

use crate::turns::Turns;

/// See the module.
pub(crate) struct Run {
    /// The long form.
    pub(crate) full: bool,
    pub(crate) turns: Turns,
}

impl Run {
    /// One of two numbers, by the form.
    pub(crate) fn pick<T>(&self, short: T, full: T) -> T {
        if self.full { full } else { short }
    }
}
