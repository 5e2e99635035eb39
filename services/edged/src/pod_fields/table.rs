//! The table: every field of every type that a pod's spec contains.
//!
//! A test compares it with the API in use, so that no field is forgotten. A type that is refused or
//! noted as a whole is not listed.

use super::field::Column;

mod affinity;
mod container;
mod environment;
mod pod;
mod probe;
mod security;
mod volume;

pub(super) use pod::POD_SPEC;

/// Every runtime: what the pod worker itself does not do.
const ALL: &[Column] = &[Column::Process, Column::Hollow, Column::Memory, Column::Cri];

/// Containers are processes of the host, and share everything with it.
const PROCESS: &[Column] = &[Column::Process];

/// The runtimes in which something runs.
const RUNNING: &[Column] = &[Column::Process, Column::Memory, Column::Cri];

/// Containers of images, in a container runtime.
const CRI: &[Column] = &[Column::Cri];

/// The runtimes that are no container runtime of the machine.
const OTHERS: &[Column] = &[Column::Process, Column::Hollow, Column::Memory];

/// The runtimes whose containers write no files.
const WITHOUT_FILES: &[Column] = &[Column::Hollow, Column::Memory];

/// The runtimes that have no containers of images.
const WITHOUT_IMAGES: &[Column] = &[Column::Process, Column::Hollow];
