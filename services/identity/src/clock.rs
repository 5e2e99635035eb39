//! The clock that certificates are checked against.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use x509_cert::der::DateTime;

/// Returns the wall clock's time.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The machine's clock.
pub fn system_clock() -> Clock {
    Arc::new(SystemTime::now)
}

/// Formats a time for people. A time before the Unix epoch is shown as the epoch.
pub fn rfc3339(time: SystemTime) -> String {
    let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Certificates have whole seconds.
    let time = DateTime::from_unix_duration(Duration::from_secs(time.as_secs()));
    time.map_or_else(|_| "a time beyond every calendar".to_owned(), |time| time.to_string())
}

/// The clock, as rustls takes it.
pub(crate) struct TlsTime(pub(crate) Clock);

impl TimeProvider for TlsTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time((self.0)()))
    }
}

impl fmt::Debug for TlsTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTime")
    }
}

/// Converts a time of the system into one of rustls. A time before the Unix epoch is the epoch.
pub(crate) fn unix_time(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Converts a time of rustls into one of the system.
pub(crate) fn system_time(time: UnixTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.as_secs())
}
