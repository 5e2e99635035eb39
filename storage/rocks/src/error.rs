//! Translates RocksDB's errors. Some of them differ in their text alone.

use headwater_store::EngineError;
use rocksdb::{Error, ErrorKind};

/// The texts of ENOSPC and EDQUOT.
const DISK_FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

/// The error of a read.
pub(crate) fn of_read(error: &Error) -> EngineError {
    let reason = error.to_string();
    if is_damage(error) { EngineError::Corrupt { reason } } else { EngineError::Read { reason } }
}

/// The error of a write or sync.
pub(crate) fn of_write(error: &Error) -> EngineError {
    let reason = error.to_string();
    if is_damage(error) {
        return EngineError::Corrupt { reason };
    }
    EngineError::Write { disk_full: is_disk_full(&reason), reason }
}

/// The error of opening a database.
pub(crate) fn of_open(error: &Error) -> EngineError {
    let reason = error.to_string();
    if reason.contains("While lock file") || reason.contains("lock hold by current process") {
        return EngineError::Locked { reason };
    }
    if is_disk_full(&reason) {
        return EngineError::Write { reason, disk_full: true };
    }
    match error.kind() {
        // An open writes too, so a failed read and a failed write look alike. A missing file is
        // damage.
        ErrorKind::IOError if reason.contains("No such file or directory") => {
            EngineError::Corrupt { reason }
        }
        ErrorKind::InvalidArgument | ErrorKind::NotSupported => EngineError::Unsupported { reason },
        _ => of_read(error),
    }
}

fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Corruption
}

fn is_disk_full(reason: &str) -> bool {
    DISK_FULL.iter().any(|text| reason.contains(text))
}
