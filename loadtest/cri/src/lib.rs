//! A real containerd, or CRI-O, with namespaces and images of its own: for tests and for development.
//!
//! containerd and runc are those that are installed; with the variable `HEADWATER_CONTAINERD=2`, containerd is
//! version 2, built from Go modules. The user must be root. Each containerd has its
//! own data, socket, processes, mounts and network, so several run side by side, and pods on one
//! do not reach the machine. It can be killed, frozen and started again while its containers run
//! on. Everything ends with the process that started it, however that ends.
//!
//! ```no_run
//! use headwater_cri_lab::{Containerd, ContainerdSettings};
//!
//! # fn main() -> Result<(), headwater_cri_lab::LabError> {
//! let mut containerd = Containerd::start(ContainerdSettings::default())?;
//! println!("{}", containerd.endpoint());
//! containerd.server().kill()?;
//! containerd.server().start()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `containerd` | containerd on its data, its images, its end |
//! | `crio` | CRI-O likewise, and its build |
//! | `machine` | the namespaces and the servers in them |
//! | `registry` | a registry with users, and the pushing of images |
//! | `image` | images made by hand |
//! | `config` | the files by which containerd, CRI-O and their network are set up |
//! | `cgroups` | the control groups, and their removal |
//! | `program` | the programs that must be installed |
//! | `version` | which containerd is run, and the build of version 2 |
//! | `driver` | a storage driver in memory, with faults |
//! | `loop_device` | a block device whose content is a file |
//! | `twin` | a runtime in memory that answers as containerd does, with faults |
//! | `error` | the failures |

mod cgroups;
mod config;
mod containerd;
mod crio;
mod driver;
mod error;
mod image;
mod loop_device;
mod machine;
mod program;
mod registry;
mod twin;
mod version;

pub use cgroups::Cgroup;
pub use containerd::{Containerd, ContainerdSettings};
pub use crio::Crio;
pub use driver::{
    Driver, DriverFault, DriverSettings, VOLUME_BYTES, VOLUME_BYTES_USED, VOLUME_FILE,
};
pub use error::LabError;
pub use image::{BUSYBOX_IMAGE, Image, ImageBlobs, PAUSE_IMAGE, blob_digest};
pub use loop_device::LoopDevice;
pub use machine::{Machine, Server};
pub use registry::{Login, Registry};
pub use twin::{Fault, FaultRates, Life, PullOutcome, RecordedRequest, Restart, Twin};
pub use version::ContainerdVersion;
