//! The failure of one operation on one path.

use std::io;
use std::path::PathBuf;

/// An operation on a file or directory failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}")]
pub struct FileError {
    /// The operation.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// For `map_err`: the failure of `action` on `path`.
    pub(crate) fn new(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { action, path, source }
    }
}

/// Runs blocking disk work on the blocking thread pool.
pub(crate) async fn blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<FileError> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let failure = FileError::new("finish work on", "the disk");
        Err(failure(io::Error::other(error)).into())
    })
}
