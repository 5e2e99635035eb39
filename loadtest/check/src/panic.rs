//! I13: no input makes a process panic, and it ends only by a designed exit.

/// A process that panicked or ended otherwise than designed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrashedProcess {
    /// Its output has a panic.
    #[error("I13 {process} panicked: {line}")]
    Panicked {
        /// Which process.
        process: String,
        /// The line of its output.
        line: String,
    },
    /// It ended with another status than the designed ones, or (`None`) by a signal.
    #[error("I13 {process} ended with {status:?}")]
    Ended {
        /// Which process.
        process: String,
        /// Its exit status.
        status: Option<i32>,
    },
}

/// The exit statuses that the command line promises: done, failed, wrong usage, difference found.
pub const DESIGNED_EXITS: [i32; 4] = [0, 1, 2, 3];

/// Looks for a panic in what a process wrote to stderr.
///
/// # Errors
/// Quotes the line.
pub fn check_words(process: &str, stderr: &str) -> Result<(), CrashedProcess> {
    match stderr.lines().find(|line| line.contains("panicked at")) {
        None => Ok(()),
        Some(line) => {
            Err(CrashedProcess::Panicked { process: process.to_owned(), line: line.to_owned() })
        }
    }
}

/// Looks at how a process ended that was not killed.
///
/// # Errors
/// When the status is none of [`DESIGNED_EXITS`].
pub fn check_exit(process: &str, status: Option<i32>) -> Result<(), CrashedProcess> {
    if status.is_some_and(|status| DESIGNED_EXITS.contains(&status)) {
        return Ok(());
    }
    Err(CrashedProcess::Ended { process: process.to_owned(), status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_seen_in_words_and_in_the_status() {
        assert!(check_words("hub", "all is well").is_ok());
        assert!(check_words("hub", "x\nthread 'main' panicked at src/a.rs:1").is_err());
        assert!(check_exit("hub", Some(3)).is_ok());
        assert!(check_exit("hub", Some(101)).is_err());
        assert!(check_exit("hub", None).is_err());
    }
}
