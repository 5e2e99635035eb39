//! A session with an end of another version.

use bytes::Bytes;
use headwater_event::{Incarnation, Report, ReportBody, ReportId, ResourceKey};
use headwater_session::message::{
    EdgeMessage, HubMessage, PROTOCOL, Request, RequestError, RequestVerb, Response, Welcome,
};
use headwater_session::{EdgeInput, EdgeOutput, HubInput, HubOutput, HubSession, HubSettings};

use crate::edge::{greeting_edge, open_edge, welcome};
use crate::hub::{open_hub, source};
use crate::{log_id, private};

#[test]
fn an_edge_of_an_earlier_version_gets_errors_that_it_knows() {
    let source = source(3, 3);
    let (mut hub, _) = open_hub(&source, 3, 1 << 20);
    for (id, verb) in [(1, None), (2, Some(RequestVerb::Get))] {
        let key = "ns/pod/p1".parse().expect("well-formed");
        let request = Request { verb, ..Request::get(id, 1000, key) };
        hub.step(&source, HubInput::Received(EdgeMessage::Request(request)));
        let conflict = || RequestError::Conflict("why".to_owned());
        let answer = Response { id, outcome: Err(conflict()) };
        let outputs = hub.step(&source, HubInput::Answered(answer));
        let expected = match verb {
            None => RequestError::Unavailable("conflict: why".to_owned()),
            Some(_) => conflict(),
        };
        let response = Response { id, outcome: Err(expected) };
        assert_eq!(outputs, [HubOutput::Send(HubMessage::Response(response))]);
    }
}

#[test]
fn an_edge_sends_a_hub_only_what_its_welcome_announces() {
    let (mut edge, _) = greeting_edge();
    let streams = vec![private()];
    let earlier = Welcome {
        protocol: PROTOCOL,
        log_id: log_id(),
        streams,
        known: None,
        verbs: Vec::new(),
        takes_events: false,
    };
    edge.step(EdgeInput::Received(HubMessage::Welcome(earlier)));
    assert!(edge.is_open());
    let key = "ns/secret/s".parse().expect("well-formed");
    let outputs = edge.step(EdgeInput::Asked(Request::get(1, 50, key)));
    let [EdgeOutput::Answered(response)] = &outputs[..] else { panic!("{outputs:?}") };
    let Err(RequestError::Unavailable(reason)) = &response.outcome else { panic!("{response:?}") };
    assert!(reason.contains("the hub is of an earlier version"), "{reason}");
}

#[test]
fn a_message_that_is_not_known_has_no_effect() {
    let source = source(3, 3);
    let (mut hub, _) = open_hub(&source, 3, 1 << 20);
    assert_eq!(hub.step(&source, HubInput::Received(EdgeMessage::Unknown)), []);
    assert!(hub.is_open());
    let mut edge = open_edge();
    assert_eq!(edge.step(EdgeInput::Received(HubMessage::Unknown)), []);
    assert!(edge.is_open());
    // Before the hello it is none.
    let node = "gw-1".parse().expect("a name");
    let mut hub = HubSession::new(HubSettings::default(), node);
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Unknown));
    assert!(matches!(outputs.last(), Some(HubOutput::Close(_))), "{outputs:?}");
}

#[test]
fn a_hub_of_an_earlier_version_receives_events_as_messages() {
    let key: ResourceKey = "d/event/p.1".parse().expect("a key");
    let object = Bytes::from_static(br#"{"reason":"BackOff"}"#);
    let id = ReportId { incarnation: Incarnation(1), boot: 3, seq: 1 };
    let event = ReportBody::Event { key: key.clone(), object: object.clone() };
    let message = ReportBody::Message { key, content: object };
    for (takes_events, sent) in [(true, event.clone()), (false, message)] {
        let (mut edge, _) = greeting_edge();
        let EdgeInput::Received(HubMessage::Welcome(welcome)) = welcome(None) else {
            panic!("a welcome")
        };
        let welcome = Welcome { takes_events, ..welcome };
        edge.step(EdgeInput::Received(HubMessage::Welcome(welcome)));
        let report = Report { id, body: event.clone(), traceparent: None };
        let outputs = edge.step(EdgeInput::Outbox { reports: vec![report], is_end: true });
        let reports = outputs.iter().find_map(|output| match output {
            EdgeOutput::Send(EdgeMessage::Reports(reports)) => Some(&reports.reports),
            _ => None,
        });
        let expected = vec![Report { id, body: sent, traceparent: None }];
        assert_eq!(reports, Some(&expected), "takes events: {takes_events}");
    }
}
