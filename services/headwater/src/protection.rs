//! What keeps other processes of the machine out of this one.

use headwater_cli::exit::Failure;
use nix::sys::stat::{Mode, umask};

/// No rights for others in the files that this process makes.
const UMASK: Mode = Mode::from_bits_truncate(0o077);

/// Protects a process that has keys and Secrets: others can read neither the files that it makes nor
/// its memory, and it leaves no core. Call it before any thread is started.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn apply() -> Result<(), Failure> {
    umask(UMASK);
    nix::sys::prctl::set_dumpable(false)
        .map_err(|error| Failure::message(format!("the memory cannot be protected: {error}")))
}
