//! A file system for tests that forgets what was not synced, as a disk does when the power goes.
//!
//! It keeps each file and each directory twice: as its users see it, and as it would be found
//! after a loss of power. Only `fsync` and `fdatasync` carry one over into the other: those of a
//! file its content, those of a directory its entries. Nothing else does: a file that was synced
//! is lost with its entry if its directory was not. That is as harsh as POSIX allows; every real
//! file system is kinder in one way or another.
//!
//! ```text
//!   live = durable + unsynced changes, oldest first     what reads see
//!          durable + what the cut lets survive          what is there after a power cut
//! ```
//!
//! Modes and owners are kept as they are: nothing here depends on their being lost.
//!
//! A power cut goes so: [`LossyDisk::freeze`] (or [`LossyDisk::freeze_after`] so many changes)
//! stops the disk in the middle of its work; the test kills the disk's users; and
//! [`LossyDisk::power_cut`] mounts what is left.
//!
//! | module | what it owns |
//! |---|---|
//! | `lossy_disk` | the handle: mounting, freezing, cutting, faults |
//! | [`survival`] | which unsynced changes survive a cut |
//! | [`fault`] | calls that fail on request, and a disk that is full |
//! | `disk` | files and directories, live and durable |
//! | `disk_state` | what the handle and the calls share |
//! | `calls` | the kernel's calls, carried out on the disk |

mod calls;
mod disk;
mod disk_state;
pub mod fault;
mod lossy_disk;
pub mod survival;

pub use disk_state::Counts;
pub use fault::Fault;
pub use lossy_disk::{LossyDisk, MountError};
pub use survival::{Loss, Survives};
