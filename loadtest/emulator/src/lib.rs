//! An emulated machine (QEMU) with the files of this one, a kernel of its own and a disk: for tests of what this
//! machine lacks, such as cgroup v2, a service manager, and a power cut that loses what was in memory.
//!
//! The root of the machine is an overlay: below lies the root of this machine, read only; above lies the disk, which
//! keeps what is written. `/tmp`, and the folders that a container runtime cannot have on an overlay, lie on the disk
//! itself. It has no network but loopback, unless it is given one. The emulator translates instructions: it needs no virtualization by the
//! hardware, and takes some ten times as long for the same work. The user must be root.
//!
//! ```no_run
//! use headwater_emulator::{Boot, EmulatedMachine};
//!
//! # fn main() -> Result<(), headwater_emulator::EmulatorError> {
//! let mut machine = EmulatedMachine::start(None, Boot::default())?;
//! let ended = machine.run("stat --file-system --format %T /sys/fs/cgroup")?;
//! assert_eq!((ended.code, ended.output.as_str()), (0, "cgroup2fs\n"));
//! machine.cut_power(Boot::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `machine` | the emulator and its servers of files, and the scripts that run in it |
//! | `kernel` | the kernel that is installed beside this machine's own |
//! | `initramfs` | the first files of the machine |
//! | `program` | the programs that must be installed |
//! | `error` | the failures |

mod error;
mod initramfs;
mod kernel;
mod machine;
mod program;

pub use error::EmulatorError;
pub use machine::{Boot, EmulatedMachine, FirstProcess, OUTSIDE, ScriptResult};
