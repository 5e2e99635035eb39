//! A TLS configuration built from files, and rebuilt when they change.

use std::mem::{Discriminant, discriminant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::clock::{Clock, rfc3339};
use crate::error::IdentityError;
use crate::files::{Material, Stamp, TlsFiles};
use crate::peer_trust::TrustVersion;

/// Builds a configuration from the content of an identity's files.
pub(crate) type BuildConfig<T> = fn(&Material, &Clock) -> Result<T, IdentityError>;

/// A configuration built from the files of an identity. When changed files cannot be used, the
/// previous configuration stays: a rotation that is half done, or failed, ends no service. The files
/// are then read at every use, because what makes them usable may not change them: a clock that is
/// set, or a parent folder that is opened.
pub(crate) struct ConfigReloader<T> {
    files: TlsFiles,
    clock: Clock,
    build: BuildConfig<T>,
    loaded: Mutex<LoadedConfig<T>>,
    /// The version of the CAs, readable without the lock.
    version: AtomicU64,
}

/// A configuration, and what it was built from.
pub(crate) struct CurrentConfig<T> {
    pub(crate) material: Arc<Material>,
    pub(crate) config: Arc<T>,
    /// The version of its CAs.
    pub(crate) version: TrustVersion,
}

struct LoadedConfig<T> {
    current: CurrentConfig<T>,
    /// The metadata of the files when they were read; `None`: the files could not be used.
    stamp: Option<Stamp>,
    /// The failure that was logged last, because the next use may meet it again.
    logged: Option<(Stamp, Discriminant<IdentityError>)>,
}

impl<T> ConfigReloader<T> {
    pub(crate) fn open(
        files: TlsFiles,
        clock: Clock,
        build: BuildConfig<T>,
    ) -> Result<Self, IdentityError> {
        // Before the files are read: a later change gives another stamp.
        let stamp = Some(files.stamp());
        let material = files.read()?;
        let config = Arc::new(build(&material, &clock)?);
        let material = Arc::new(material);
        let current = CurrentConfig { material, config, version: TrustVersion::default() };
        let loaded = Mutex::new(LoadedConfig { current, stamp, logged: None });
        Ok(Self { files, clock, build, loaded, version: AtomicU64::default() })
    }

    /// The configuration of the files as they are now. The check for changes costs three system
    /// calls, little compared with a handshake.
    pub(crate) fn current(&self) -> CurrentConfig<T> {
        let mut loaded = self.lock();
        let stamp = self.files.stamp();
        if loaded.stamp != Some(stamp) {
            self.reload(&mut loaded, stamp);
        }
        loaded.current.clone()
    }

    /// Reads the files even if their metadata is unchanged: a file that was rewritten within one tick
    /// of the file system's clock may have the same metadata.
    pub(crate) fn refresh(&self) {
        let mut loaded = self.lock();
        let stamp = self.files.stamp();
        self.reload(&mut loaded, stamp);
    }

    /// The version of the CAs that were loaded last.
    pub(crate) fn version(&self) -> TrustVersion {
        TrustVersion(self.version.load(Ordering::Acquire))
    }

    pub(crate) fn now(&self) -> SystemTime {
        (self.clock)()
    }

    fn lock(&self) -> MutexGuard<'_, LoadedConfig<T>> {
        // Nothing panics under this lock, so a poisoned value would still be whole.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self, loaded: &mut LoadedConfig<T>, stamp: Stamp) {
        match self.load(&loaded.current.material) {
            Ok(changed) => {
                loaded.stamp = Some(stamp);
                loaded.logged = None;
                if let Some((material, config)) = changed {
                    self.replace(&mut loaded.current, material, config);
                }
            }
            Err(error) => {
                loaded.stamp = None;
                let failure = Some((stamp, discriminant(&error)));
                if loaded.logged != failure {
                    loaded.logged = failure;
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the changed certificate files cannot be used; the previous certificate stays"
                    );
                }
            }
        }
    }

    /// Reads the files; `None`: their content is that of `loaded`.
    fn load(&self, loaded: &Material) -> Result<Option<(Material, T)>, IdentityError> {
        let material = self.files.read()?;
        if material.is_same(loaded) {
            return Ok(None);
        }
        material.check(self.now())?;
        let config = (self.build)(&material, &self.clock)?;
        Ok(Some((material, config)))
    }

    fn replace(&self, current: &mut CurrentConfig<T>, material: Material, config: T) {
        let file = self.files.certificate.display();
        let until = rfc3339(material.certificate.not_after);
        if material.has_same_authorities(&current.material) {
            tracing::info!(%file, %until, "certificate reloaded");
        } else {
            current.version.0 += 1;
            tracing::info!(%file, %until, "certificate reloaded, with other CAs");
        }
        (current.material, current.config) = (Arc::new(material), Arc::new(config));
        self.version.store(current.version.0, Ordering::Release);
    }
}

impl<T> Clone for CurrentConfig<T> {
    fn clone(&self) -> Self {
        let Self { material, config, version } = self;
        Self { material: material.clone(), config: config.clone(), version: *version }
    }
}
