//! The state of a mounted disk: its files, whether it serves, and what fails.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::Errno;

use crate::disk::Disk;
use crate::fault::{Call, Fault, Faults};

/// How long a disk may be frozen before all its calls fail: the test that froze it may wait for a
/// caller, and a waiting caller cannot be killed.
const FROZEN_MAX: Duration = Duration::from_secs(30);

/// What was asked of a disk since it was first mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that changed something: writes, names, syncs.
    pub changes: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
    /// Calls that failed because they were to.
    pub faults: u64,
}

/// The state that the calls and the handle share.
pub(crate) struct DiskState {
    inner: Mutex<Inner>,
    /// Rung whenever the stage changes.
    bell: Condvar,
}

struct Inner {
    disk: Disk,
    stage: Stage,
    /// Changes until the disk freezes.
    freeze_in: Option<u64>,
    faults: Faults,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Nothing is answered, until then at the latest.
    Frozen {
        until: Instant,
    },
    /// The power is gone: everything fails.
    Gone,
}

impl Stage {
    fn frozen() -> Self {
        Self::Frozen { until: Instant::now() + FROZEN_MAX }
    }
}

impl DiskState {
    pub(crate) fn new(disk: Disk, counts: Counts) -> Self {
        let faults = Faults::default();
        let inner = Inner { disk, stage: Stage::Serving, freeze_in: None, faults, counts };
        Self { inner: Mutex::new(inner), bell: Condvar::new() }
    }

    /// Executes a call, unless the disk is frozen, gone, or set to fail it.
    pub(crate) fn on<T>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Disk) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut inner = self.enter(call)?;
        inner.faults.count(call)?;
        act(&mut inner.disk)
    }

    /// Makes an inode durable.
    pub(crate) fn sync(&self, inode: u64) -> Result<(), Errno> {
        let mut inner = self.enter(Call::Sync)?;
        if let Err(errno) = inner.faults.count(Call::Sync) {
            inner.disk.sync_failed(inode);
            return Err(errno);
        }
        inner.disk.sync(inode)
    }

    pub(crate) fn forget(&self, inode: u64, count: u64) {
        self.lock().disk.forget(inode, count);
    }

    /// Bytes used, and how many there is room for.
    pub(crate) fn room(&self) -> (u64, Option<u64>) {
        let inner = self.lock();
        (inner.disk.used(), inner.disk.capacity)
    }

    fn enter(&self, call: Call) -> Result<MutexGuard<'_, Inner>, Errno> {
        let mut inner = self.lock();
        if call != Call::Look
            && inner.stage == Stage::Serving
            && let Some(left) = inner.freeze_in
        {
            inner.freeze_in = left.checked_sub(1);
            if left == 0 {
                inner.stage = Stage::frozen();
                self.bell.notify_all();
            }
        }
        while let Stage::Frozen { until } = inner.stage {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                inner.stage = Stage::Gone;
            }
            inner = self.bell.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if inner.stage != Stage::Serving {
            return Err(Errno::EIO);
        }
        inner.counts.changes += u64::from(call != Call::Look);
        inner.counts.syncs += u64::from(call == Call::Sync);
        Ok(inner)
    }

    /// Lets every call wait.
    pub(crate) fn freeze(&self) {
        self.set_stage(Stage::frozen());
    }

    /// Lets every call wait from just before the change that comes after `changes` more.
    pub(crate) fn freeze_after(&self, changes: u64) {
        self.lock().freeze_in = Some(changes);
    }

    /// Waits until the disk is frozen; whether it is, in this time.
    pub(crate) fn wait_until_frozen(&self, time: Duration) -> bool {
        let serving = |inner: &mut Inner| inner.stage == Stage::Serving;
        let waited = self.bell.wait_timeout_while(self.lock(), time, serving);
        waited.unwrap_or_else(PoisonError::into_inner).0.stage != Stage::Serving
    }

    /// Fails every waiting and every later call.
    pub(crate) fn let_go(&self) {
        self.set_stage(Stage::Gone);
    }

    /// Lets something fail; `None`: nothing more.
    pub(crate) fn inject(&self, fault: Option<Fault>) {
        self.lock().faults.set(fault);
    }

    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().disk.capacity = bytes;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts()
    }

    /// Leaves an empty disk, and returns the one before with its counts.
    pub(crate) fn take(&self) -> (Disk, Counts) {
        let mut inner = self.lock();
        let counts = inner.counts();
        (std::mem::replace(&mut inner.disk, Disk::new()), counts)
    }

    fn set_stage(&self, stage: Stage) {
        self.lock().stage = stage;
        self.bell.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn counts(&self) -> Counts {
        Counts { faults: self.counts.faults + self.faults.hits, ..self.counts }
    }
}
