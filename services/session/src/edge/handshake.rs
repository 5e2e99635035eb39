//! The handshake: the hello once everything is durable, the checks of the welcome.

use super::stream_receiver::StreamReceiver;
use super::{EdgeCloseReason, EdgeOutput, EdgeSession, Phase, divergence};
use crate::message::{DialSupport, EdgeMessage, Hello, PROTOCOL, ReplicaPosition, Welcome};

impl EdgeSession {
    /// Sends the hello once everything applied is durable and nothing waits to be applied.
    pub(super) fn hello_when_durable(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Phase::Syncing { is_requested } = &mut self.phase else { return };
        let is_busy = self.receivers.values().any(|receiver| receiver.unapplied() > 0);
        if self.raising_boot || is_busy {
            return;
        }
        if !self.receivers.values().all(StreamReceiver::is_durable) {
            if !*is_requested {
                *is_requested = true;
                outputs.push(EdgeOutput::Sync);
            }
            return;
        }
        self.receivers.values_mut().for_each(StreamReceiver::begin_session);
        let positions = self
            .receivers
            .iter()
            .filter_map(|(stream, receiver)| {
                let checkpoint = receiver.durable?;
                Some(ReplicaPosition { stream: stream.clone(), checkpoint, hash: receiver.hash })
            })
            .collect();
        self.phase = Phase::AwaitingWelcome;
        self.received_ms = self.now_ms;
        self.connections += 1;
        outputs.push(EdgeOutput::Send(EdgeMessage::Hello(Hello {
            protocol: PROTOCOL,
            identity: self.identity.clone(),
            positions,
            window_bytes: self.settings.window_bytes,
            connection: self.connections,
            dials: match self.settings.takes_dials {
                true => DialSupport::Confirmed,
                false => DialSupport::None,
            },
        })));
    }

    /// Checks the welcome and opens the session.
    pub(super) fn welcomed(
        &mut self,
        welcome: &Welcome,
        outputs: &mut Vec<EdgeOutput>,
    ) -> Result<(), EdgeCloseReason> {
        if welcome.protocol != PROTOCOL {
            return Err(EdgeCloseReason::Protocol { ours: PROTOCOL, theirs: welcome.protocol });
        }
        for (stream, receiver) in &self.receivers {
            let Some(held) = receiver.applied.map(|applied| applied.log_id) else { continue };
            if held != welcome.log_id && !welcome.log_id.follows(&held) {
                let stream = stream.clone();
                return Err(EdgeCloseReason::ForeignLog { stream, held, offered: welcome.log_id });
            }
        }
        if let Some(known) = &welcome.known {
            if known.incarnation > self.identity.incarnation {
                return Err(EdgeCloseReason::Fenced { known: known.clone() });
            }
            if known.outranks(&self.identity) {
                self.raising_boot = true;
                outputs.push(EdgeOutput::RaiseBoot { known: known.clone() });
                return Err(EdgeCloseReason::RaisingBoot { known: known.clone() });
            }
        }
        self.phase = Phase::Open { log_id: welcome.log_id };
        self.verbs.clone_from(&welcome.verbs);
        outputs.push(EdgeOutput::Welcomed { log_id: welcome.log_id });
        for (stream, receiver) in &self.receivers {
            if let Some(seq) = receiver.stopped {
                outputs.push(divergence(stream, seq));
            }
        }
        outputs.extend(self.reports.open(self.report_bounds(), welcome.takes_events));
        self.send_heartbeat(outputs);
        Ok(())
    }
}
