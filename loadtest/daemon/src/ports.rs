//! Free ports of loopback.
//!
//! A daemon takes a second to bind its ports. Until then the kernel gives none of them to a connection, because they lie
//! below its own, and no other process of the user gives them, because each process locks the blocks of which it gives.

use std::fs::{self, File, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::cache::CacheFolder;
use crate::error::DaemonError;

/// The ports of daemons: below those that Linux gives to connections (32768 on).
const GIVEN_PORTS: Range<u16> = 16_384..32_768;

/// The ports of a block: as many as a program of tests takes.
const BLOCK_PORTS: u16 = 128;

/// The folder of locks in the cache.
const LOCKS: &str = "ports";

/// The ports that this process has locked and not given yet.
static LOCKED: Mutex<LockedPorts> = Mutex::new(LockedPorts { left: 0..0, blocks: Vec::new() });

struct LockedPorts {
    left: Range<u16>,
    /// The kernel unlocks a block when its file is closed: when this process ends.
    blocks: Vec<File>,
}

/// Returns `N` ports that are free now. Each is given once by this process, and none by another one that runs.
///
/// # Errors
/// Too few ports are free, or the locks cannot be written.
pub fn free_ports<const N: usize>() -> Result<[u16; N], DaemonError> {
    // A panic leaves at most a port that is not given.
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ports = [0; N];
    let mut count = 0;
    while count < N {
        let Some(port) = locked.left.next() else {
            let folder = CacheFolder::find("the locks of ports", LOCKS)?;
            let (left, block) = lock_block(folder.path())?;
            locked.left = left;
            locked.blocks.push(block);
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            ports[count] = port;
            count += 1;
        }
    }
    Ok(ports)
}

/// Locks a block that no process holds.
fn lock_block(locks: &Path) -> Result<(Range<u16>, File), DaemonError> {
    fs::create_dir_all(locks).map_err(DaemonError::file(locks))?;
    let count = (GIVEN_PORTS.end - GIVEN_PORTS.start) / BLOCK_PORTS;
    // Processes that follow each other begin apart: a connection of before may still hold a port.
    let begin = u16::try_from(std::process::id() % u32::from(count)).unwrap_or_default();
    for block in (begin..count).chain(0..begin) {
        let first = GIVEN_PORTS.start + block * BLOCK_PORTS;
        let path = locks.join(first.to_string());
        let file = File::create(&path).map_err(DaemonError::file(&path))?;
        match file.try_lock() {
            Ok(()) => return Ok((first..first + BLOCK_PORTS, file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(DaemonError::file(&path)(error)),
        }
    }
    Err(DaemonError::Port(std::io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_are_given_once_and_none_that_a_connection_might_take() {
        let count = usize::from(BLOCK_PORTS) / 3 + 1;
        let given: Vec<u16> = (0..count).flat_map(|_| free_ports::<3>().expect("free")).collect();
        let distinct: BTreeSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), 3 * count, "{given:?}");
        assert!(given.iter().all(|port| GIVEN_PORTS.contains(port)), "{given:?}");
    }

    #[test]
    fn a_block_has_one_holder_until_it_ends() {
        let locks = tempfile::tempdir().expect("a folder");
        let count = (GIVEN_PORTS.end - GIVEN_PORTS.start) / BLOCK_PORTS;
        let lock = || lock_block(locks.path());
        let mut held: Vec<_> = (0..count).map(|_| lock().expect("a block is left")).collect();
        let firsts: BTreeSet<_> = held.iter().map(|(ports, _)| ports.start).collect();
        assert_eq!(firsts.len(), usize::from(count));
        assert!(matches!(lock(), Err(DaemonError::Port(_))));
        let (ended, file) = held.swap_remove(7);
        drop(file);
        assert_eq!(lock().expect("it is left").0, ended);
    }
}
