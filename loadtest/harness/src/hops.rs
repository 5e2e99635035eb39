//! Hops between the first edges and the hub, which faults make slow or deaf.

use std::net::SocketAddr;

use headwater_e2e::proxy::{Conditions, Proxy};

use crate::scenario::Act;
use crate::target::TargetError;

/// What an edge behind a slow hop reads: less than what any scenario says to it.
const SLOW_BYTES_PER_SECOND: u32 = 256;

/// What the name of a hop begins with; the first is `hop-1`.
const PREFIX: &str = "hop-";

/// One hop for each of the first edges.
pub(crate) struct Hops {
    hops: Vec<Proxy>,
}

impl Hops {
    /// `count` hops before the hub at `hub`.
    pub(crate) fn start(hub: SocketAddr, count: usize) -> Self {
        Self { hops: (0..count).map(|_| Proxy::start(hub)).collect() }
    }

    /// Where their edges connect.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.hops.iter().map(Proxy::address).collect()
    }

    /// Does something to the hop of this name.
    ///
    /// # Errors
    /// When there is no such hop, or that cannot be done to one.
    pub(crate) fn act(&self, act: Act, name: &str) -> Result<(), TargetError> {
        let hop = index(name).and_then(|index| self.hops.get(index));
        let hop = hop.ok_or_else(|| TargetError::NoPart { part: name.to_owned() })?;
        hop.set(match act {
            Act::BlackHole => Conditions { black_hole: true, ..Conditions::default() },
            Act::Slow => Conditions {
                reads_per_second: Some(SLOW_BYTES_PER_SECOND),
                ..Conditions::default()
            },
            Act::Clear => Conditions::default(),
            act => return Err(TargetError::Impossible { act, part: name.to_owned() }),
        });
        Ok(())
    }
}

/// The number of the hop of this name, from 0; `None`: it is no name of a hop.
pub(crate) fn index(name: &str) -> Option<usize> {
    name.strip_prefix(PREFIX)?.parse::<usize>().ok()?.checked_sub(1)
}
