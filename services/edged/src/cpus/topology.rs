//! The processors of the machine, from the kernel's files.

use std::fs;
use std::io;
use std::path::Path;

use super::allocator::Cpu;
use crate::container::cpu_set::CpuSet;

/// Where the kernel shows its processors.
const ROOT: &str = "/sys/devices/system/cpu";

/// The processors that work, with their places. One whose place is not shown is a core of its own.
///
/// # Errors
/// The kernel does not show them.
pub(super) fn machine() -> io::Result<Vec<Cpu>> {
    at(Path::new(ROOT))
}

fn at(root: &Path) -> io::Result<Vec<Cpu>> {
    let online = fs::read_to_string(root.join("online"))?;
    let online: CpuSet = online.parse().map_err(io::Error::other)?;
    let cpus = online.iter().map(|id| {
        let number = |file: &str| {
            let text = fs::read_to_string(root.join(format!("cpu{id}/topology/{file}"))).ok()?;
            text.trim().parse::<u32>().ok()
        };
        Cpu {
            id,
            package: number("physical_package_id").unwrap_or(0),
            core: number("core_id").unwrap_or(id),
        }
    });
    Ok(cpus.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_with_their_places() {
        let root = tempfile::tempdir().expect("a folder");
        at(root.path()).expect_err("the kernel shows none");
        fs::write(root.path().join("online"), "0-1,3\n").expect("written");
        let place = root.path().join("cpu1/topology");
        fs::create_dir_all(&place).expect("made");
        fs::write(place.join("physical_package_id"), "1\n").expect("written");
        fs::write(place.join("core_id"), "0\n").expect("written");
        let cpu = |id, package, core| Cpu { id, package, core };
        assert_eq!(at(root.path()).expect("read"), [cpu(0, 0, 0), cpu(1, 1, 0), cpu(3, 0, 3)]);
        assert!(!machine().expect("this machine").is_empty());
    }
}
