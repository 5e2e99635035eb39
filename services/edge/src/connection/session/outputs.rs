//! Carries out what the protocol decided.

use std::collections::VecDeque;

use headwater_session::message::{Dial, RefusalCode};
use headwater_session::{EdgeCloseReason, EdgeInput, EdgeOutput};
use tokio::time::Instant;

use super::phase::Phase;
use super::{DisconnectReason, Session};
use crate::replica::ReplicaCommand;
use crate::tunnel::TunnelCommand;
use crate::upstream::UpstreamCommand;
use crate::upstream::outbox::PageRequest;

impl Session {
    /// Gives the protocol one input, and carries out what comes of it.
    pub(super) fn step(&mut self, input: EdgeInput) {
        let was_open = self.protocol.is_open();
        let mut outputs = VecDeque::from(self.protocol.step(input));
        while let Some(output) = outputs.pop_front() {
            if let Some(input) = self.carry_out(output) {
                outputs.extend(self.protocol.step(input));
            }
        }
        if was_open && !self.protocol.is_open() {
            self.connected.send_replace(false);
            self.metrics.connected(false);
        }
    }

    /// Carries out one output; returns the input that follows from it.
    fn carry_out(&mut self, output: EdgeOutput) -> Option<EdgeInput> {
        match output {
            EdgeOutput::Send(message) => self.phase.send(message),
            EdgeOutput::DelayAck => self.ack_at = Some(Instant::now() + self.ack_interval),
            EdgeOutput::Sync => self.replica.add(ReplicaCommand::Sync),
            EdgeOutput::Apply(push) => self.replica.push(push),
            EdgeOutput::Summarize { stream, nonce, entries_max } => {
                self.replica.add(ReplicaCommand::Summarize { stream, nonce, entries_max });
            }
            // Part 0 of the next transfer clears what is staged.
            EdgeOutput::Unstage(_) => {}
            EdgeOutput::Drop(stream) => self.replica.add(ReplicaCommand::Drop(stream)),
            EdgeOutput::ReadOutbox { after, count, bytes } => {
                self.upstream.add(UpstreamCommand::Read(PageRequest { after, count, bytes }));
            }
            EdgeOutput::Refused(refused) => self.upstream.add(UpstreamCommand::Refused(refused)),
            EdgeOutput::Forget(through) => self.upstream.add(UpstreamCommand::Forget(through)),
            EdgeOutput::RaiseBoot { known } => self.upstream.add(UpstreamCommand::Raise { known }),
            EdgeOutput::Answered(response) => self.requests.complete(response),
            EdgeOutput::Welcomed { log_id } => {
                tracing::info!(%log_id, "connected");
                self.failures.clear();
                self.connected.send_replace(true);
                self.metrics.connected(true);
                self.has_sent_drained = false;
                return Some(self.heartbeat());
            }
            EdgeOutput::Parked(parked) => {
                tracing::info!(stream = %parked.stream, reason = parked.reason, "parked");
            }
            EdgeOutput::Dial(dial) => self.open_stream(dial),
            EdgeOutput::Stopped(stop) => {
                tracing::error!(error = &stop as &dyn std::error::Error, "a stream stopped");
            }
            EdgeOutput::Close(end) => {
                self.close(&end);
                return Some(EdgeInput::Disconnected);
            }
        }
        None
    }

    /// Hands a dial of the hub to the task of streams. A full queue drops it: the hub waits only for a while.
    fn open_stream(&self, dial: Dial) {
        let (Some(tunnel), Phase::Up { link, .. }) = (&self.tunnel, &self.phase) else { return };
        if let Some(route) = link.route.clone()
            && tunnel.try_send(TunnelCommand::Open { route, dial }).is_err()
        {
            tracing::warn!("a stream is not opened: too many wait");
        }
    }

    /// Ends the connection, and enters the phase that follows from why.
    fn close(&mut self, end: &EdgeCloseReason) {
        self.failures.session_ended(end, &self.metrics);
        let until = self.next_dial(match end {
            EdgeCloseReason::Moved { .. } => DisconnectReason::Moved,
            _ => DisconnectReason::Failed,
        });
        self.phase = match end {
            end if end.is_final() => Phase::Fenced,
            // `RaiseBoot` came before.
            EdgeCloseReason::RaisingBoot { .. } => Phase::Raising { until },
            EdgeCloseReason::Refused(refusal) if refusal.code == RefusalCode::StaleIdentity => {
                let known = self.protocol.identity().clone();
                self.upstream.add(UpstreamCommand::Raise { known });
                Phase::Raising { until }
            }
            _ => Phase::Waiting { until },
        };
    }
}
