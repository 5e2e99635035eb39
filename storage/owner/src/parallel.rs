//! Work that is divided between the processors.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// Calls `work` with every one of `items`. It uses a thread more for each `items_per_thread` of them, up to one for each
/// processor. The threads end before this returns.
///
/// # Errors
/// An error of `work`. Other items may not have been worked on then: each thread stops after its present one.
///
/// # Panics
/// When `work` does.
pub fn try_for_each_parallel<T: Sync, E: Send>(
    items: &[T],
    items_per_thread: usize,
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = available_parallelism().map_or(1, usize::from);
    let threads = threads.min(items.len() / items_per_thread.max(1));
    let next = AtomicUsize::new(0);
    let work_on = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                // The other threads stop too.
                next.store(items.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work_on)).collect();
        let mut worked = work_on();
        for other in others {
            let other = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            worked = worked.and(other);
        }
        worked
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        for count in [0, 1, 7, 1_000] {
            let items: Vec<u64> = (1..=count).collect();
            let sum = AtomicU64::new(0);
            let worked = try_for_each_parallel(&items, 2, |item| {
                sum.fetch_add(*item, Ordering::Relaxed);
                Ok::<_, ()>(())
            });
            assert_eq!(worked, Ok(()));
            assert_eq!(sum.into_inner(), count * (count + 1) / 2);
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let items = [1, 2, 3];
        let worked = try_for_each_parallel(&items, items.len() + 1, |item| match item {
            2 => Err("two"),
            3 => Err("not reached on one thread"),
            _ => Ok(()),
        });
        assert_eq!(worked, Err("two"));
    }
}
