//! The peak memory of a process, and the budget of each part (I12).

use headwater_check::budget::Budget;
use procfs::process::Process;

/// The budget of an edge, in bytes.
pub const EDGE_BYTES_MAX: u64 = 64 << 20;

/// The budget of a hub that serves no edge, in bytes.
pub const HUB_BYTES_MAX: u64 = 64 << 20;

/// The additional budget of a hub for each edge that it serves, in bytes.
pub const HUB_BYTES_PER_EDGE: u64 = 32 << 10;

/// The most memory of its own that the process ever had, in bytes, if it still is: its peak without
/// the pages of files, which are the system's to drop, and in a build with debug information many.
pub fn peak_bytes(process: u32) -> Option<u64> {
    let status = Process::new(i32::try_from(process).ok()?).ok()?.status().ok()?;
    Some(status.vmhwm?.saturating_sub(status.rssfile?) << 10)
}

/// What a part of this kind may take, with so many edges around; `None`: nothing is promised, as
/// for a controller, which lists whole clusters.
pub fn budget(kind: &str, edges: u64) -> Option<Budget> {
    let max = match kind {
        "edge" => EDGE_BYTES_MAX,
        "hub" => HUB_BYTES_MAX + edges * HUB_BYTES_PER_EDGE,
        _ => return None,
    };
    Some(Budget { what: format!("memory of a part that is {kind}"), unit: "bytes", max })
}
