//! How an owner of a database speaks to the others: it never waits in its one wait for anyone.

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::{SendError, TrySendError};

/// Says something, and blocks this thread where the other has fallen far behind. On a thread that
/// drives others too ([`crate::tasks`]) that would be for ever; there nobody falls so far behind.
///
/// # Errors
/// When nobody listens any more.
///
/// # Panics
/// Where it would have to block a thread of a Tokio runtime.
pub(crate) fn tell<T>(to: &Sender<T>, word: T) -> Result<(), SendError<T>> {
    match to.try_send(word) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(word)) => to.blocking_send(word),
        Err(TrySendError::Closed(word)) => Err(SendError(word)),
    }
}
