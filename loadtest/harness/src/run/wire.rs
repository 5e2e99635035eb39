//! Bytes on the wire, look by look: of light edges at their own sockets, of real ones at those of the
//! hub, as its metrics have them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::light::WireCount;
use crate::metrics;
use crate::record::{Wire, WireAt};

/// What a hub says of its sockets.
const OF_HUB: [&str; 3] = [
    "headwater_hub_sent_bytes_total",
    "headwater_hub_received_bytes_total",
    "headwater_hub_connections_total",
];

/// How long a hub may take to say it. One that is frozen does not answer at all, and other looks
/// wait for this one.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// Looks again and again.
pub(super) struct WireLooks {
    sockets: Option<Arc<WireCount>>,
    measured: Instant,
    last: Option<(Instant, Counts)>,
    wire: Wire,
}

/// Counts since the process that counts began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    down: u64,
    up: u64,
    connects: u64,
}

impl Counts {
    /// As a hub says them; `None`: it does not.
    fn of_hub(metrics: SocketAddr) -> Option<Self> {
        let [down, up, connects] = metrics::sums(metrics, OF_HUB, ANSWER_MAX).ok()?;
        // Counters are whole numbers.
        let [down, up, connects] = [down?, up?, connects?].map(|count| count as u64);
        Some(Self { down, up, connects })
    }

    fn of_sockets(sockets: &WireCount) -> Self {
        let (down, up) = (sockets.received(), sockets.sent());
        Self { down, up, connects: sockets.connects() }
    }

    /// What came since `then`. A process that counts less than before was restarted.
    fn since(self, then: Self) -> Self {
        let is_new = self.down < then.down || self.up < then.up || self.connects < then.connects;
        let then = if is_new { Self::default() } else { then };
        Self {
            down: self.down - then.down,
            up: self.up - then.up,
            connects: self.connects - then.connects,
        }
    }
}

impl WireLooks {
    /// Looks at `sockets`, where there are some; else a hub is asked. Times count from `measured`.
    pub(super) fn new(sockets: Option<Arc<WireCount>>, measured: Instant) -> Self {
        let counted_at = match sockets {
            Some(_) => "the sockets of the light edges",
            None => "the hub's sockets",
        };
        let wire = Wire { counted_at: counted_at.to_owned(), ..Wire::default() };
        Self { sockets, measured, last: None, wire }
    }

    /// Looks; `hub` is where a hub's metrics are.
    pub(super) fn look(&mut self, hub: Option<SocketAddr>) {
        let now = Instant::now();
        let counts = match &self.sockets {
            Some(sockets) => Some(Counts::of_sockets(sockets)),
            None => hub.and_then(Counts::of_hub),
        };
        if let Some(counts) = counts {
            self.take(now, counts);
        }
    }

    fn take(&mut self, now: Instant, counts: Counts) {
        let Some((then, before)) = self.last.replace((now, counts)) else {
            self.wire.connects = counts.connects;
            return;
        };
        let came = counts.since(before);
        let passed = (now - then).as_secs_f64().max(f64::EPSILON);
        self.wire.down_bytes += came.down;
        self.wire.up_bytes += came.up;
        self.wire.connects += came.connects;
        self.wire.over_time.push(WireAt {
            at_s: now.saturating_duration_since(self.measured).as_secs_f64(),
            down_per_s: came.down as f64 / passed,
            up_per_s: came.up as f64 / passed,
            connects: came.connects,
        });
    }

    /// The counts; `None`: there were no messages.
    pub(super) fn end(self) -> Option<Wire> {
        self.last.map(|_| self.wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_was_started_again_counts_from_nothing() {
        let began = Instant::now();
        let mut looks = WireLooks::new(None, began);
        for (second, [down, up, connects]) in
            [[100, 10, 2], [300, 30, 2], [50, 5, 1], [80, 6, 1]].into_iter().enumerate()
        {
            let at = began + Duration::from_secs(second as u64);
            looks.take(at, Counts { down, up, connects });
        }
        let wire = looks.end().expect("seen");
        assert_eq!((wire.down_bytes, wire.up_bytes, wire.connects), (280, 26, 3));
        let rates: Vec<_> = wire.over_time.iter().map(|at| (at.at_s, at.down_per_s)).collect();
        assert_eq!(rates, [(1.0, 200.0), (2.0, 50.0), (3.0, 30.0)]);
    }

    #[test]
    fn an_address_without_a_server_is_no_wire() {
        let mut looks = WireLooks::new(None, Instant::now());
        looks.look(None);
        assert_eq!(looks.end(), None);
    }
}
