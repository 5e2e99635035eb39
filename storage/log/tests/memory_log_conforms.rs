//! The in-memory twin does what every log does.

use std::sync::Arc;

use async_trait::async_trait;
use headwater_event::{Offset, Partition};
use headwater_log::conformance::{Capability, Harness, Settings, Subject, check};
use headwater_log::{AppendFault, Log, MemoryLog, MemorySettings};

struct Memory;

struct Twin(MemoryLog);

#[async_trait]
impl Harness for Memory {
    fn capabilities(&self) -> &[Capability] {
        use Capability::*;
        &[
            Clock,
            Reopen,
            Compaction,
            Retention,
            Truncation,
            Recreation,
            SparseOffsets,
            Faults,
            Outage,
        ]
    }

    async fn create(&self, settings: Settings) -> Box<dyn Subject> {
        Box::new(Twin(MemoryLog::new(MemorySettings {
            partitions: settings.partitions,
            record_bytes_max: settings.record_bytes_max,
            replay_window_ms: settings.replay_window_ms,
            delete_retention_ms: settings.delete_retention_ms,
            ..MemorySettings::default()
        })))
    }
}

#[async_trait]
impl Subject for Twin {
    fn log(&self) -> Arc<dyn Log> {
        Arc::new(self.0.clone())
    }

    fn set_clock_forward(&self, by_ms: u64) {
        self.0.advance_clock(by_ms);
    }

    fn set_clock_back(&self, by_ms: u64) {
        self.0.set_clock(self.0.now_ms().saturating_sub_unsigned(by_ms));
    }

    async fn compact(&self) {
        self.0.compact();
    }

    async fn expire(&self, partition: Partition, up_to: Offset) {
        self.0.expire(partition, up_to);
    }

    async fn truncate(&self, partition: Partition, high: Offset) {
        self.0.truncate(partition, high);
    }

    async fn recreate(&self) {
        self.0.recreate(Settings::default().partitions);
    }

    async fn skip_offsets(&self, partition: Partition, count: u64) {
        self.0.skip_offsets(partition, count);
    }

    fn fail_next_append(&self, fault: AppendFault) {
        self.0.inject_fault(fault);
    }

    fn deliver_late(&self) {
        self.0.deliver_late();
    }

    fn set_available(&self, available: bool) {
        self.0.set_available(available);
    }
}

#[tokio::test]
async fn the_in_memory_twin_does_what_every_log_does() {
    check(&Memory).await;
}
