//! The suite that every engine must pass: the contract of [`Engine`] as tests.
//!
//! The crate of an engine provides a [`Subject`], and
//! [`engine_conformance!`](crate::engine_conformance) makes each case a test:
//!
//! ```ignore
//! mod conformance {
//!     headwater_store::engine_conformance!(super::RocksSubject::default());
//! }
//! ```
//!
//! A case panics if the engine breaks the contract.

use crate::engine::{Durability, Engine, EngineError, WriteBatch};

mod crashes;
mod model;
mod reads;
mod writes;

pub use crashes::{
    a_crashed_process_loses_nothing, a_later_sync_covers_every_write_before,
    a_power_cut_leaves_a_prefix_from_the_synced_on, a_synced_write_covers_every_write_before,
    an_opened_engine_goes_on,
};
pub use model::an_engine_behaves_as_a_sorted_map_that_can_fall_back;
pub use reads::{
    a_scan_can_be_continued_behind_its_last_key, a_snapshot_never_changes,
    an_empty_range_holds_nothing, an_empty_value_is_a_value, keys_are_ordered_by_their_bytes,
    the_last_row_of_a_range_is_found,
};
pub use writes::{
    a_batch_is_seen_whole_or_not_at_all, a_large_value_is_kept, a_range_is_deleted_to_its_end,
    changes_of_a_batch_apply_in_order, writers_do_not_lose_each_other,
};

/// An engine under test, with methods to crash it.
pub trait Subject {
    /// The type of the engine.
    type Engine: Engine;

    /// Creates an empty engine.
    fn create(&self) -> Self::Engine;

    /// Opens the engine again after its process was killed.
    fn crash(&self, engine: Self::Engine) -> Self::Engine;

    /// Opens the engine again after a power cut at some moment after its last sync. `seed` chooses
    /// the moment if the subject can.
    fn cut_power(&self, engine: Self::Engine, seed: u64) -> Self::Engine;
}

/// Makes every case of the suite a test; the argument is an expression for the [`Subject`].
#[macro_export]
macro_rules! engine_conformance {
    ($subject:expr) => {
        $crate::engine_conformance! { @cases $subject;
            keys_are_ordered_by_their_bytes
            an_empty_value_is_a_value
            an_empty_range_holds_nothing
            a_scan_can_be_continued_behind_its_last_key
            the_last_row_of_a_range_is_found
            a_snapshot_never_changes
            changes_of_a_batch_apply_in_order
            a_range_is_deleted_to_its_end
            a_large_value_is_kept
            a_batch_is_seen_whole_or_not_at_all
            writers_do_not_lose_each_other
            a_crashed_process_loses_nothing
            a_synced_write_covers_every_write_before
            a_later_sync_covers_every_write_before
            a_power_cut_leaves_a_prefix_from_the_synced_on
            an_opened_engine_goes_on
            an_engine_behaves_as_a_sorted_map_that_can_fall_back
        }
    };
    (@cases $subject:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$case(&$subject);
            }
        )*
    };
}

/// Checks an engine after a failed write: it is closed to writes, and reads continue.
///
/// Engines differ in how a write can be made to fail, so the caller does that: `engine` has just
/// failed a write, and `seen` are its rows from before.
pub fn stays_closed_after_a_failed_write(
    engine: &(impl Engine + ?Sized),
    seen: &[(&'static str, &'static str)],
) {
    for durability in [Durability::Buffered, Durability::Synced] {
        let error = engine.write(batch(&[("after", "failure")]), durability);
        let error = error.expect_err("a failed engine refuses writes");
        assert!(matches!(error, EngineError::Poisoned { .. }), "{error:?}");
    }
    let error = engine.sync().expect_err("a failed engine refuses a sync");
    assert!(matches!(error, EngineError::Poisoned { .. }), "{error:?}");
    for (key, value) in seen {
        let found = engine.get(key.as_bytes()).expect("reads continue");
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{key}");
    }
    assert_eq!(engine.get(b"after").expect("reads continue"), None);
}

/// A batch that sets each key to its value.
fn batch(rows: &[(&'static str, &'static str)]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for (key, value) in rows {
        batch.put(*key, *value);
    }
    batch
}

/// Writes one row, unsynced.
fn put(engine: &impl Engine, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::default();
    batch.put(key.to_vec(), value.to_vec());
    engine.write(batch, Durability::Buffered).expect("writes");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Failure, MemoryEngine, Survival};

    struct MemorySubject;

    impl Subject for MemorySubject {
        type Engine = MemoryEngine;

        fn create(&self) -> MemoryEngine {
            MemoryEngine::new()
        }

        fn crash(&self, engine: MemoryEngine) -> MemoryEngine {
            engine.crash(Survival::Everything)
        }

        fn cut_power(&self, engine: MemoryEngine, seed: u64) -> MemoryEngine {
            engine.crash(Survival::Some { seed })
        }
    }

    mod memory {
        crate::engine_conformance!(super::MemorySubject);
    }

    #[test]
    fn a_failed_memory_engine_stays_closed() {
        let engine = MemoryEngine::new();
        engine.write(batch(&[("before", "1")]), Durability::Buffered).expect("writes");
        engine.fail_write(1, Failure { disk_full: true, took_effect: true });
        engine.write(batch(&[("x", "1")]), Durability::Buffered).expect_err("injected");
        stays_closed_after_a_failed_write(&engine, &[("before", "1")]);
    }
}
