//! What is made of files, made again when they change.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::clock::{Clock, rfc3339};
use crate::error::IdentityError;
use crate::files::{Material, Stamp, TlsFiles};

/// What is made of the files of an identity.
pub(crate) type Make<T> = fn(&Material, &Clock) -> Result<T, IdentityError>;

/// Something made of the files of an identity. Files that changed and cannot be used leave what
/// was in place: a rotation that is half done, or went wrong, ends no service.
pub(crate) struct Reloading<T> {
    files: TlsFiles,
    clock: Clock,
    make: Make<T>,
    held: Mutex<Held<T>>,
}

struct Held<T> {
    /// The files as they were when they were last read, whatever came of it.
    stamp: Stamp,
    material: Arc<Material>,
    made: Arc<T>,
}

impl<T> Reloading<T> {
    pub(crate) fn open(
        files: TlsFiles,
        clock: Clock,
        make: Make<T>,
    ) -> Result<Self, IdentityError> {
        let stamp = files.stamp();
        let material = files.read()?;
        let made = Arc::new(make(&material, &clock)?);
        let held = Mutex::new(Held { stamp, material: Arc::new(material), made });
        Ok(Self { files, clock, make, held })
    }

    /// What the files say now. Looking costs three system calls: little beside a handshake.
    pub(crate) fn current(&self) -> (Arc<Material>, Arc<T>) {
        // Nothing panics while it is held; a poisoned one is still whole.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.files.stamp();
        if stamp != held.stamp {
            held.stamp = stamp;
            self.reload(&mut held);
        }
        (held.material.clone(), held.made.clone())
    }

    fn reload(&self, held: &mut Held<T>) {
        let read = self.files.read().and_then(|material| {
            material.check(self.now())?;
            Ok((Arc::new((self.make)(&material, &self.clock)?), material))
        });
        let file = self.files.certificate.display();
        match read {
            Ok((made, material)) => {
                let until = rfc3339(material.certificate.not_after);
                tracing::info!(%file, %until, "the certificate was read again");
                (held.made, held.material) = (made, Arc::new(material));
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the files of the certificate changed and cannot be used: the one before stays"
            ),
        }
    }

    pub(crate) fn now(&self) -> SystemTime {
        (self.clock)()
    }
}
