//! How a row is to be measured.

use std::time::Instant;

use crate::turns::Turns;

/// See the module.
pub(crate) struct Run {
    /// The long form.
    pub(crate) full: bool,
    pub(crate) turns: Turns,
    /// When the measuring began.
    pub(crate) began: Instant,
}

impl Run {
    /// Names the step that begins: the reader of a long row sees how far it is, and where one that does not end
    /// hangs.
    pub(crate) fn step(&self, what: &str) {
        eprintln!("   {:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// One of two numbers, by the form.
    pub(crate) fn pick<T>(&self, short: T, full: T) -> T {
        if self.full { full } else { short }
    }
}
