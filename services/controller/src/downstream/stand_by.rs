//! What a controller does that lost the log to another: it keeps up, and waits for its silence, or
//! for its word that it has stopped.

use std::pin::pin;

use headwater_follow::Follower;
use tokio::time::{Instant, sleep};

use super::{Demand, Downstream, GROUP_EVENTS, Lost};

impl Downstream {
    /// Waits for as long as another writer lives, which says so, and keeps up with the source.
    pub(super) async fn stand_by(&mut self, follower: &mut Follower<()>) -> Result<(), Lost> {
        let silence_max = self.timings.silence_max();
        let mut silent = pin!(sleep(silence_max));
        let mut events = Vec::new();
        // It may have said so before this controller had begun to stand by.
        while !follower.acceptance().is_released() {
            tokio::select! {
                biased;
                step = follower.next() => {
                    step?;
                    silent.as_mut().reset(Instant::now() + silence_max);
                }
                () = &mut silent => return Ok(()),
                Some(demand) = self.demands.recv() => self.keep(demand),
                // The channel stays open.
                _ = self.source.recv_many(&mut events, GROUP_EVENTS) => {
                    self.take_in_unpublished(events.drain(..));
                }
            }
        }
        tracing::info!("the writer has stopped in order");
        Ok(())
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
