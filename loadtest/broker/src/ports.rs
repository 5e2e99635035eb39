//! The ports that brokers listen on.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::BrokerError;

/// The ports of one node, in the order clients, brokers, controllers.
pub(crate) type Ports = [u16; 3];

/// Where brokers listen: below the ports that Linux gives to connections (32768 on).
const GIVEN_PORTS: Range<u16> = 16_384..32_768;

/// Three ports that are free now, each given once by this process. A broker takes a second to bind
/// them: the kernel gives none of these to a connection meanwhile, and another process begins
/// elsewhere among them.
pub(crate) fn free_ports() -> Result<Ports, BrokerError> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let mut ports = Vec::with_capacity(3);
    let mut failed = None;
    for _ in GIVEN_PORTS {
        // A prime, so that processes that follow each other begin far apart.
        let number = std::process::id().wrapping_mul(7_919);
        let number = number.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let count = u32::from(GIVEN_PORTS.end - GIVEN_PORTS.start);
        let port = GIVEN_PORTS.start + u16::try_from(number % count).unwrap_or_default();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => ports.push(port),
            Err(error) => failed = Some(error),
        }
        if let [one, two, three] = ports[..] {
            return Ok([one, two, three]);
        }
    }
    Err(BrokerError::Port(failed.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once_and_none_that_a_connection_might_take() {
        let given: Vec<u16> = (0..9).flat_map(|_| free_ports().expect("free")).collect();
        let distinct: std::collections::BTreeSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), 27, "{given:?}");
        assert!(given.iter().all(|port| GIVEN_PORTS.contains(port)), "{given:?}");
    }
}
