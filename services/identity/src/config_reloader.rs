//! A TLS configuration built from files, and rebuilt when they change.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::clock::{Clock, rfc3339};
use crate::error::IdentityError;
use crate::files::{Material, Stamp, TlsFiles};

/// Builds a configuration from the content of an identity's files.
pub(crate) type BuildConfig<T> = fn(&Material, &Clock) -> Result<T, IdentityError>;

/// A configuration built from the files of an identity. When changed files cannot be used, the
/// previous configuration stays: a rotation that is half done, or failed, ends no service.
pub(crate) struct ConfigReloader<T> {
    files: TlsFiles,
    clock: Clock,
    build: BuildConfig<T>,
    loaded: Mutex<LoadedConfig<T>>,
}

struct LoadedConfig<T> {
    /// The metadata of the files when they were last read, whether they could be used or not.
    stamp: Stamp,
    material: Arc<Material>,
    config: Arc<T>,
}

impl<T> ConfigReloader<T> {
    pub(crate) fn open(
        files: TlsFiles,
        clock: Clock,
        build: BuildConfig<T>,
    ) -> Result<Self, IdentityError> {
        let stamp = files.stamp();
        let material = files.read()?;
        let config = Arc::new(build(&material, &clock)?);
        let loaded = Mutex::new(LoadedConfig { stamp, material: Arc::new(material), config });
        Ok(Self { files, clock, build, loaded })
    }

    /// The configuration of the files as they are now. The check for changes costs three system
    /// calls, little compared with a handshake.
    pub(crate) fn current(&self) -> (Arc<Material>, Arc<T>) {
        // Nothing panics under this lock, so a poisoned value would still be whole.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.files.stamp();
        if stamp != loaded.stamp {
            loaded.stamp = stamp;
            self.reload(&mut loaded);
        }
        (loaded.material.clone(), loaded.config.clone())
    }

    fn reload(&self, loaded: &mut LoadedConfig<T>) {
        let read = self.files.read().and_then(|material| {
            material.check(self.now())?;
            Ok((Arc::new((self.build)(&material, &self.clock)?), material))
        });
        let file = self.files.certificate.display();
        match read {
            Ok((config, material)) => {
                let until = rfc3339(material.certificate.not_after);
                tracing::info!(%file, %until, "certificate reloaded");
                (loaded.config, loaded.material) = (config, Arc::new(material));
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the changed certificate files cannot be used; the previous certificate stays"
            ),
        }
    }

    pub(crate) fn now(&self) -> SystemTime {
        (self.clock)()
    }
}
