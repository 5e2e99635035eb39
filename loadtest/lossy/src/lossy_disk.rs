//! The handle of a mounted disk: freezing, cutting, faults.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption};

use crate::calls::Calls;
use crate::disk::Disk;
use crate::disk_state::{Counts, DiskState};
use crate::fault::Fault;
use crate::survival::{Loss, Survives};

/// How long killed processes may take to let go of the disk.
const RELEASE_MAX: Duration = Duration::from_secs(20);

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
        self.shared.freeze();
    }

    /// Stops the disk just before the change that comes after `changes` more.
    pub fn freeze_after(&self, changes: u64) {
        self.shared.freeze_after(changes);
    }

    /// Waits until the disk is frozen; whether it is, in this time.
    pub fn wait_until_frozen(&self, time: Duration) -> bool {
        self.shared.wait_until_frozen(time)
    }

    /// Fails every waiting and every later call of a frozen disk. Its users must have been killed before:
    /// a killed process that waits for a disk ends only then.
    pub fn let_go(&self) {
        self.shared.let_go();
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
        self.shared.inject(fault);
    }

    /// How many bytes the disk has room for; `None`: no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.set_capacity(bytes);
    }

    /// How many bytes of files it holds.
    pub fn used(&self) -> u64 {
        self.shared.room().0
    }

    /// What was asked of it.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    fn unmount(&mut self) -> Result<(), MountError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let deadline = Instant::now() + RELEASE_MAX;
        loop {
            let output = umount(&self.at, &[]);
            if output.as_ref().is_ok_and(|output| output.status.success()) {
                // The session ends with the last copy of the mount: each mount namespace that another program has made
                // meanwhile has one.
                while !session.guard.is_finished() && Instant::now() < deadline {
                    thread::sleep(POLL);
                }
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
