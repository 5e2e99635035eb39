//! Free ports of loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::DaemonError;

/// The ports of daemons: below those that Linux gives to connections (32768 on).
const GIVEN_PORTS: Range<u16> = 16_384..32_768;

/// Returns `N` ports that are free now, each given once by this process. A daemon takes a second to
/// bind them: the kernel gives none of these to a connection meanwhile, and another process begins
/// elsewhere among them.
///
/// # Errors
/// Too few ports are free.
pub fn free_ports<const N: usize>() -> Result<[u16; N], DaemonError> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let mut ports = [0; N];
    let mut count = 0;
    let mut failed = None;
    for _ in GIVEN_PORTS {
        if count == N {
            return Ok(ports);
        }
        // A prime, so that processes that follow each other begin far apart.
        let number = std::process::id().wrapping_mul(7_919);
        let number = number.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let range = u32::from(GIVEN_PORTS.end - GIVEN_PORTS.start);
        let port = GIVEN_PORTS.start + u16::try_from(number % range).unwrap_or_default();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => {
                ports[count] = port;
                count += 1;
            }
            Err(error) => failed = Some(error),
        }
    }
    Err(DaemonError::Port(failed.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once_and_none_that_a_connection_might_take() {
        let given: Vec<u16> = (0..9).flat_map(|_| free_ports::<3>().expect("free")).collect();
        let distinct: std::collections::BTreeSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), 27, "{given:?}");
        assert!(given.iter().all(|port| GIVEN_PORTS.contains(port)), "{given:?}");
    }
}
