//! The handle of a mounted disk: freezing, cutting, faults.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, Errno, MountOption};

use crate::calls::Calls;
use crate::disk::Disk;
use crate::fault::{Call, Fault, Faults};
use crate::survival::{Loss, Survives};

/// How long killed processes may take to let go of the disk.
const RELEASE_MAX: Duration = Duration::from_secs(20);

/// How long a disk may be frozen before all its calls fail: the test that froze it may wait for a
/// caller, and a waiting caller cannot be killed.
const FROZEN_MAX: Duration = Duration::from_secs(30);

/// Between two tries.
const POLL: Duration = Duration::from_millis(10);

/// A disk of our own, mounted. Dropping it takes it away, with everything on it.
pub struct LossyDisk {
    at: PathBuf,
    shared: Arc<DiskState>,
    session: Option<BackgroundSession>,
}

/// Why a disk cannot be mounted, or not taken away.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// FUSE cannot be used here.
    #[error(
        "no FUSE file system can be mounted at {at}: it needs /dev/fuse and the right to mount"
    )]
    Mount {
        /// Where.
        at: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A process still uses the disk.
    #[error("the disk at {at} is still in use after {RELEASE_MAX:?}: {reason}")]
    Busy {
        /// Where.
        at: PathBuf,
        /// What the system says.
        reason: String,
    },
}

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

impl LossyDisk {
    /// Mounts an empty disk on the directory `at`.
    ///
    /// # Errors
    /// [`MountError::Mount`].
    pub fn mount(at: impl AsRef<Path>) -> Result<Self, MountError> {
        let at = at.as_ref().to_owned();
        let shared = Arc::new(DiskState::new(Disk::new(), Counts::default()));
        let session = Some(mount(&at, &shared)?);
        Ok(Self { at, shared, session })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Stops the disk: whatever is asked of it waits.
    pub fn freeze(&self) {
        self.shared.set_stage(Stage::frozen());
    }

    /// Stops the disk just before the change that comes after `changes` more.
    pub fn freeze_after(&self, changes: u64) {
        self.shared.lock().freeze_in = Some(changes);
    }

    /// Waits until the disk is frozen; whether it is, in this time.
    pub fn wait_until_frozen(&self, time: Duration) -> bool {
        let inner = self.shared.lock();
        let serving = |inner: &mut Inner| inner.stage == Stage::Serving;
        let waited = self.shared.bell.wait_timeout_while(inner, time, serving);
        waited.unwrap_or_else(PoisonError::into_inner).0.stage != Stage::Serving
    }

    /// Fails every waiting and every later call of a frozen disk. Its users must have been killed before:
    /// a killed process that waits for a disk ends only then.
    pub fn let_go(&self) {
        self.shared.set_stage(Stage::Gone);
    }

    /// Cuts the power and puts it back: what was not synced is gone, but for what `survives`.
    /// The disk's users must have been killed before.
    ///
    /// # Errors
    /// [`MountError::Busy`]: a process still uses it.
    pub fn power_cut(&mut self, survives: Survives) -> Result<Loss, MountError> {
        self.let_go();
        self.unmount()?;
        let (mut disk, counts) = self.shared.take();
        let loss = disk.cut(survives);
        self.shared = Arc::new(DiskState::new(disk, counts));
        self.session = Some(mount(&self.at, &self.shared)?);
        Ok(loss)
    }

    /// Lets something fail; `None`: nothing more.
    pub fn inject(&self, fault: Option<Fault>) {
        self.shared.lock().faults.set(fault);
    }

    /// How many bytes the disk has room for; `None`: no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.lock().disk.capacity = bytes;
    }

    /// How many bytes of files it holds.
    pub fn used(&self) -> u64 {
        self.shared.lock().disk.used()
    }

    /// What was asked of it.
    pub fn counts(&self) -> Counts {
        let inner = self.shared.lock();
        Counts { faults: inner.counts.faults + inner.faults.hits, ..inner.counts }
    }

    fn unmount(&mut self) -> Result<(), MountError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let deadline = Instant::now() + RELEASE_MAX;
        loop {
            let output = umount(&self.at, &[]);
            if output.as_ref().is_ok_and(|output| output.status.success()) {
                // The session ends with the mount.
                let _ = session.join();
                return Ok(());
            }
            if Instant::now() > deadline {
                let _ = umount(&self.at, &["--lazy"]);
                let reason = match output {
                    Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                    Err(error) => error.to_string(),
                };
                return Err(MountError::Busy { at: self.at.clone(), reason });
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for LossyDisk {
    fn drop(&mut self) {
        self.let_go();
        if self.session.is_some() {
            let _ = umount(&self.at, &["--lazy"]);
        }
    }
}

impl DiskState {
    fn new(disk: Disk, counts: Counts) -> Self {
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

    fn set_stage(&self, stage: Stage) {
        self.lock().stage = stage;
        self.bell.notify_all();
    }

    fn take(&self) -> (Disk, Counts) {
        let mut inner = self.lock();
        let counts = Counts { faults: inner.counts.faults + inner.faults.hits, ..inner.counts };
        (std::mem::replace(&mut inner.disk, Disk::new()), counts)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mount(at: &Path, shared: &Arc<DiskState>) -> Result<BackgroundSession, MountError> {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("lossy".to_owned()), MountOption::DefaultPermissions];
    fuser::spawn_mount(Calls::new(Arc::clone(shared)), at, &config)
        .map_err(|source| MountError::Mount { at: at.to_owned(), source })
}

fn umount(at: &Path, how: &[&str]) -> io::Result<Output> {
    Command::new("umount").args(how).arg(at).output()
}
