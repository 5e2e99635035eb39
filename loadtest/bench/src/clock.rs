//! The one clock of a run: logs, hubs and readers tell the same time.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use headwater_log::{MemoryLog, MemorySettings};

/// Milliseconds since the Unix epoch.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The same, to be given away.
pub(crate) fn wall_clock() -> Arc<dyn Fn() -> i64 + Send + Sync> {
    Arc::new(wall_ms)
}

/// A log in memory that begins now.
pub(crate) fn memory_log(partitions: u32) -> MemoryLog {
    let settings = MemorySettings { partitions, start_ms: wall_ms(), ..MemorySettings::default() };
    MemoryLog::new(settings)
}
