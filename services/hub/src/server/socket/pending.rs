//! The connections that have not sent their hello, by address: one address must not keep all others
//! from connecting.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bits of an IPv6 address that name a network. One host may have every address of it.
const NETWORK_BITS: u32 = 64;

/// The pending connections of a hub.
#[derive(Clone, Debug)]
pub(super) struct PendingConnections {
    address_max: usize,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One pending connection, until it is dropped.
#[derive(Debug)]
pub(super) struct PendingConnection {
    address: IpAddr,
    of: PendingConnections,
}

impl PendingConnections {
    /// No connections; an address may have `address_max`, at least one.
    pub(super) fn new(address_max: usize) -> Self {
        Self { address_max: address_max.max(1), by_address: Arc::default() }
    }

    /// Counts a connection from `address`; `None`: the address has as many as it may.
    pub(super) fn add(&self, address: IpAddr) -> Option<PendingConnection> {
        let address = network(address);
        let mut by_address = self.lock();
        let count = by_address.entry(address).or_default();
        if *count >= self.address_max {
            return None;
        }
        *count += 1;
        Some(PendingConnection { address, of: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        let mut by_address = self.of.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// The address by which a connection is counted: an IPv4 address, or an IPv6 network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let host_bits = u128::BITS - NETWORK_BITS;
            Ipv6Addr::from_bits(address.to_bits() >> host_bits << host_bits).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_address_has_its_own_bound_and_an_ended_connection_makes_room() {
        let pending = PendingConnections::new(2);
        let held = [(); 2].map(|()| pending.add(address("10.0.0.1")).expect("room"));
        assert!(pending.add(address("10.0.0.1")).is_none());
        assert!(pending.add(address("::ffff:10.0.0.1")).is_none(), "the same address");
        assert!(pending.add(address("10.0.0.2")).is_some());
        drop(held);
        assert!(pending.lock().is_empty(), "addresses of the past cost no memory");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_together() {
        let pending = PendingConnections::new(1);
        let _held = pending.add(address("2001:db8:0:1::1")).expect("room");
        assert!(pending.add(address("2001:db8:0:1:ffff::2")).is_none());
        assert!(pending.add(address("2001:db8:0:2::1")).is_some());
    }
}
