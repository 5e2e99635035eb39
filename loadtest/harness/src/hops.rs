//! Hops between the first edges and the hub, which faults make slow or deaf.

use std::net::SocketAddr;

use headwater_e2e::proxy::{Conditions, Proxy};

use crate::failure::Failure;
use crate::scenario::Act;
use crate::target::{impossible, missing};

/// What an edge behind a slow hop reads: less than what any scenario says to it.
const SLOW_BYTES_PER_SECOND: u32 = 256;

/// One hop for each of the first edges.
pub(crate) struct Hops {
    hops: Vec<Proxy>,
}

impl Hops {
    /// `count` hops before the hub, where there is one.
    pub(crate) fn start(hub: Option<SocketAddr>, count: usize) -> Self {
        let hubs = std::iter::repeat_n(hub, count).flatten();
        Self { hops: hubs.map(Proxy::start).collect() }
    }

    /// The hop of an edge.
    pub(crate) fn get(&self, edge: usize) -> Option<&Proxy> {
        self.hops.get(edge)
    }

    /// Where their edges connect.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.hops.iter().map(Proxy::address).collect()
    }

    /// Does something to the hop of this number, from 0.
    ///
    /// # Errors
    /// When there is no such hop, or that cannot be done to one.
    pub(crate) fn act(&self, act: Act, hop: usize) -> Result<(), Failure> {
        let part = format!("hop-{}", hop + 1);
        let hop = self.hops.get(hop).ok_or_else(|| missing(&part))?;
        hop.set(match act {
            Act::BlackHole => Conditions { black_hole: true, ..Conditions::default() },
            Act::Slow => Conditions {
                reads_per_second: Some(SLOW_BYTES_PER_SECOND),
                ..Conditions::default()
            },
            Act::Clear => Conditions::default(),
            act => return Err(impossible(act, &part)),
        });
        Ok(())
    }
}
