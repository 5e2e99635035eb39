//! What a controller does that lost the log to another: it keeps up, and waits for its silence.

use std::pin::pin;
use std::time::Duration;

use headwater_follow::Follower;
use tokio::time::{Instant, sleep};

use super::{Demand, Downstream, GROUP_EVENTS, HEARTBEAT_INTERVAL, Lost};

/// How long it waits for a sign of the writer before it claims again: three heartbeats missed.
const STAND_BY_MAX: Duration = HEARTBEAT_INTERVAL.saturating_mul(3);

impl Downstream {
    /// Waits for as long as another writer lives, which says so, and keeps up with the source.
    pub(super) async fn stand_by(&mut self, follower: &mut Follower<()>) -> Result<(), Lost> {
        let mut silent = pin!(sleep(STAND_BY_MAX));
        let mut events = Vec::new();
        loop {
            tokio::select! {
                biased;
                step = follower.next() => {
                    step?;
                    silent.as_mut().reset(Instant::now() + STAND_BY_MAX);
                }
                () = &mut silent => return Ok(()),
                Some(demand) = self.demands.recv() => self.keep(demand),
                // The channel stays open.
                _ = self.source.recv_many(&mut events, GROUP_EVENTS) => {
                    self.take_in_unpublished(events.drain(..));
                }
            }
        }
    }

    /// Keeps a demand until there is a writer, each once, so that whoever demands need not wait:
    /// no more than there are nodes and pods.
    fn keep(&mut self, demand: Demand) {
        let interest = self.interest.read();
        let is_there = |demand: &Demand| match demand {
            Demand::Terminated { pod, uid } => {
                interest.object(pod).is_some_and(|object| object.uid() == uid)
            }
            Demand::Snapshot(_) => true,
        };
        if self.listed {
            self.waiting.retain(is_there);
        }
        self.waiting.insert(demand);
    }
}
