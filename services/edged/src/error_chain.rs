//! An error with its causes as one line, for statuses and log fields.

use std::error::Error;

/// The error and its causes, separated by colons.
///
/// A pod's status has room for one line: this is why the crate `display-error-chain`, which writes
/// one line per cause, is not used here.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write the file")]
    struct WriteError(#[source] io::Error);

    #[test]
    fn an_error_and_its_causes_make_one_line() {
        let error = WriteError(io::Error::other("disk full"));
        assert_eq!(error_chain(&error), "cannot write the file: disk full");
    }
}
