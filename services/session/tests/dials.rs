//! Dials: which sessions carry them, and which edges take them.

use headwater_event::{Boot, Identity, Incarnation, LogId};
use headwater_session::message::{
    Dial, DialId, DialSupport, EdgeMessage, Hello, HubMessage, PROTOCOL, Welcome,
};
use headwater_session::{
    EdgeInput, EdgeOutput, EdgeSession, EdgeSettings, EdgeState, HubInput, HubOutput, HubSession,
    HubSettings, MemorySource, Readiness,
};
use uuid::Uuid;

const DIAL: Dial = Dial { id: DialId([7; 16]), within_ms: 10_000 };

fn log_id() -> LogId {
    LogId { number: 1, uuid: Uuid::from_u128(1) }
}

fn identity() -> Identity {
    let node = "a".parse().expect("well-formed");
    Identity { node, incarnation: Incarnation(1), boot: Boot { number: 1, nonce: 1 } }
}

#[test]
fn a_dial_is_sent_in_an_open_session_of_an_edge_that_takes_dials() {
    let mut source = MemorySource::new(100);
    source.begin(log_id());
    source.set_readiness(Readiness::Reconciled);
    for dials in [DialSupport::None, DialSupport::Taken, DialSupport::Confirmed] {
        let mut hub = HubSession::new(HubSettings::default(), identity().node);
        let hello = Hello {
            protocol: PROTOCOL,
            identity: identity(),
            positions: Vec::new(),
            window_bytes: 1 << 20,
            connection: 1,
            dials,
        };
        hub.step(&source, HubInput::Received(EdgeMessage::Hello(hello)));
        assert_eq!(hub.step(&source, HubInput::Dial(DIAL)), [], "the edge is not welcome yet");
        hub.step(&source, HubInput::Admitted { known: None });
        assert!(hub.is_open());
        let sent = hub.step(&source, HubInput::Dial(DIAL));
        let wanted = Vec::from_iter(
            (dials != DialSupport::None).then_some(HubOutput::Send(HubMessage::Dial(DIAL))),
        );
        assert_eq!(sent, wanted);
        assert_eq!(hub.step(&source, HubInput::Received(EdgeMessage::DialReceipt)), []);
        assert!(hub.is_open(), "a receipt violates nothing");
    }
}

#[test]
fn an_edge_takes_and_confirms_a_dial_only_if_its_hello_offered_to() {
    for takes_dials in [false, true] {
        let state = EdgeState { identity: identity(), positions: Vec::new(), assignment: None };
        let settings = EdgeSettings { takes_dials, ..EdgeSettings::default() };
        let mut edge = EdgeSession::new(settings, state);
        let hello = edge.step(EdgeInput::Connected);
        let offers = |output: &EdgeOutput| matches!(output, EdgeOutput::Send(EdgeMessage::Hello(hello)) if hello.dials == DialSupport::Confirmed);
        assert_eq!(hello.iter().any(offers), takes_dials);
        edge.step(EdgeInput::Received(HubMessage::Welcome(Welcome {
            protocol: PROTOCOL,
            log_id: log_id(),
            streams: Vec::new(),
            known: None,
            verbs: Vec::new(),
            takes_events: true,
        })));
        let taken = edge.step(EdgeInput::Received(HubMessage::Dial(DIAL)));
        let receipt = EdgeOutput::Send(EdgeMessage::DialReceipt);
        let wanted = if takes_dials { vec![receipt, EdgeOutput::Dial(DIAL)] } else { Vec::new() };
        assert_eq!(taken, wanted);
        assert!(edge.is_open(), "a dial violates nothing");
    }
}
