//! The log files of containers, for what reads them.
//!
//! A log file must be a regular file. Containers may run as the user of this process, so they may put anything
//! at the path.

mod tail;

use std::fs::Metadata;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use tokio::fs::{File, OpenOptions};

pub use tail::last_rows;

/// Opens the file; `None` if it is missing. Does not wait for a pipe, and does not follow a link.
///
/// # Errors
/// It is no regular file, or cannot be opened.
pub async fn open(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let named = |what: &str| io::Error::other(format!("the log {}: {what}", path.display()));
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
            return Err(named("it is a link, and links are not followed"));
        }
        Err(error) => return Err(named(&error.to_string())),
    };
    let metadata = file.metadata().await.map_err(|error| named(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(named("it is not a regular file"));
    }
    Ok(Some((file, metadata)))
}
