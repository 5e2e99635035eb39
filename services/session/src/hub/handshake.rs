//! The handshake: the hello, the registry's decision, the welcome.

use headwater_event::Identity;

use super::io::COUNTER_MAX;
use super::send_window::SendWindow;
use super::stream_sender::StreamSender;
use super::{HubCloseReason, HubOutput, HubSession, Phase, Violation};
use crate::message::{Hello, HubMessage, PROTOCOL, Refusal, RefusalCode, RequestVerb, Welcome};
use crate::source::StreamSource;

impl HubSession {
    /// Checks a hello and asks the registry about its identity.
    pub(super) fn hello(
        &mut self,
        hello: Hello,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        if hello.protocol != PROTOCOL {
            let message =
                format!("this hub speaks protocol {PROTOCOL}, the edge {}", hello.protocol);
            return Err(HubCloseReason::Refused(Refusal { code: RefusalCode::Protocol, message }));
        }
        if hello.identity.node != self.node {
            let (certified, claimed) = (self.node.clone(), hello.identity.node);
            let message = Violation::Node { certified, claimed }.to_string();
            return Err(HubCloseReason::Refused(Refusal { code: RefusalCode::Forbidden, message }));
        }
        let Identity { incarnation, boot, .. } = &hello.identity;
        let counters = [
            ("incarnation", incarnation.0),
            ("boot", boot.number),
            ("connection", hello.connection),
        ];
        for (what, found) in counters {
            if found > COUNTER_MAX {
                return Err(Violation::Counter { what, found }.into());
            }
        }
        let (count, max) = (hello.positions.len(), self.settings.streams_max);
        if count > max {
            return Err(Violation::TooMany { what: "positions", count, max }.into());
        }
        for held in hello.positions {
            let stream = held.stream.clone();
            let is_readable = stream.readable_by(&self.node);
            match self.sender_at(&stream) {
                Err(at) if is_readable => {
                    self.insert_sender(at, StreamSender::new(stream, Some(held)));
                }
                _ => return Err(Violation::Stream { stream }.into()),
            }
        }
        self.connection = hello.connection;
        self.takes_dials = hello.dials.is_taken();
        self.window = SendWindow::new(self.settings.window_bytes.min(hello.window_bytes));
        outputs.push(HubOutput::Identify(hello.identity.clone()));
        self.phase = Phase::AwaitingAdmission(hello.identity);
        Ok(())
    }

    /// The registry admitted the session. `live` is the identity of a later start that is live at
    /// this hub.
    pub(super) fn admitted(
        &mut self,
        source: &dyn StreamSource,
        live: Option<Identity>,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let Phase::AwaitingAdmission(identity) = &self.phase else { return Ok(()) };
        let (identity, since_ms) = (identity.clone(), self.now_ms);
        self.phase = Phase::AwaitingLog { identity, live, since_ms };
        self.welcome(source, outputs)
    }

    /// Sends the welcome to an admitted edge, once the log and the node's identities are known. An
    /// edge with an older identity is refused behind the welcome: it takes from there what it must move
    /// past.
    pub(super) fn welcome(
        &mut self,
        source: &dyn StreamSource,
        outputs: &mut Vec<HubOutput>,
    ) -> Result<(), HubCloseReason> {
        let Phase::AwaitingLog { identity, live, .. } = &self.phase else { return Ok(()) };
        let Some(log_id) = source.log_id() else { return Ok(()) };
        if !source.knows_identities_of(&self.node) {
            return Ok(());
        }
        let (identity, live) = (identity.clone(), live.clone());
        let logged = source.known_identity(&self.node)?;
        let known = [logged, live].into_iter().flatten().max_by_key(|known| {
            let is_another = known.boot.nonce != identity.boot.nonce;
            (known.rank(), is_another)
        });
        self.assign(source)?;
        outputs.push(HubOutput::Send(HubMessage::Welcome(Welcome {
            protocol: PROTOCOL,
            log_id,
            streams: self.served().map(|sender| sender.stream().clone()).collect(),
            known: known.clone(),
            verbs: RequestVerb::ALL.to_vec(),
            takes_events: true,
        })));
        if let Some(known) = known.filter(|known| known.outranks(&identity)) {
            return Err(HubCloseReason::Refused(stale(&known)));
        }
        self.phase = Phase::Open { identity, log_id, since_ms: self.now_ms };
        self.heartbeat_ms = self.now_ms;
        Ok(())
    }

    /// Refuses an edge once the log has a later start of its node, which another hub has appended.
    /// Reports of that start outrank those of the edge, until the edge raises its boot number.
    pub(super) fn check_rank(
        &self,
        source: &dyn StreamSource,
        identity: &Identity,
    ) -> Result<(), HubCloseReason> {
        match source.known_identity(&self.node)? {
            Some(known) if known.outranks(identity) => Err(HubCloseReason::Refused(stale(&known))),
            _ => Ok(()),
        }
    }
}

/// The refusal of an edge whose identity is older than `known`.
fn stale(known: &Identity) -> Refusal {
    let message = format!(
        "the cloud knows incarnation {} boot {} of node {}: raise the boot number past it",
        known.incarnation.0, known.boot.number, known.node,
    );
    Refusal { code: RefusalCode::StaleIdentity, message }
}
