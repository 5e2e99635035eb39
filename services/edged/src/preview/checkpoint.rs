//! The files with the processors and devices of containers: what a node would read of them and write again.

use crate::{cpus, devices};

/// Reads a file with the processors of containers on a machine with the processors below `count`, and writes it again.
///
/// # Errors
/// Why a node would move the file aside.
pub fn rewrite_cpus(file: &[u8], count: u32) -> Result<Vec<u8>, String> {
    cpus::rewrite(file, count)
}

/// Reads a file with the devices of containers, and writes it again.
///
/// # Errors
/// Why a node would move the file aside.
pub fn rewrite_devices(file: &[u8]) -> Result<Vec<u8>, String> {
    devices::rewrite(file)
}
