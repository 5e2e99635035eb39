//! The plan of each operation, and the operations that the edge refuses in any state.

use proptest::prelude::*;

use super::*;

fn planned(
    source: &str,
    verb: Verb,
    resource: &str,
    content: &str,
) -> Result<Plan, OperationError> {
    let node = "gw-1".parse().expect("a node name");
    let operation = Operation {
        id: "1".to_owned(),
        parent_id: String::new(),
        source: source.to_owned(),
        verb,
        resource: resource.to_owned(),
        content: Bytes::copy_from_slice(content.as_bytes()),
    };
    plan(&node, &operation)
}

fn key(text: &str) -> ResourceKey {
    text.parse().expect("a key")
}

#[test]
fn edged_reports_its_node_its_statuses_and_their_end() {
    let object = Bytes::from_static(br#"{"kind":"Node"}"#);
    for verb in [Verb::Insert, Verb::Update] {
        assert_eq!(
            planned("edged", verb, "null/node/gw-1", r#"{"kind":"Node"}"#),
            Ok(Plan::Report(ReportBody::Node { object: object.clone() }))
        );
        assert_eq!(
            planned(
                "edged",
                verb,
                "d/podstatus/web",
                r#"{"uid":"u1","status": {"phase":"Running"} }"#
            ),
            Ok(Plan::SetStatus {
                pod: key("d/pod/web"),
                uid: "u1".to_owned(),
                status: Bytes::from_static(br#"{"phase":"Running"}"#),
            })
        );
    }
    assert_eq!(
        planned("edged", Verb::Delete, "d/pod/web", r#"{"uid":"u1"}"#),
        Ok(Plan::Terminate { pod: key("d/pod/web"), uid: "u1".to_owned() })
    );
    assert_eq!(
        planned("edged", Verb::Delete, "d/podstatus/web", ""),
        Ok(Plan::RemoveStatus { pod: key("d/pod/web"), uid: None })
    );
    assert_eq!(
        planned("edged", Verb::Delete, "d/podstatus/web", r#"{"uid":"u1"}"#),
        Ok(Plan::RemoveStatus { pod: key("d/pod/web"), uid: Some("u1".to_owned()) })
    );
}

#[test]
fn edged_may_report_nothing_else() {
    for (verb, resource, content) in [
        (Verb::Update, "null/node/gw-2", "{}"),
        (Verb::Update, "d/node/gw-1", "{}"),
        (Verb::Delete, "null/node/gw-1", "{}"),
        (Verb::Update, "d/pod/web", "{}"),
        (Verb::Insert, "d/secret/s", "{}"),
    ] {
        let refused = planned("edged", verb, resource, content).expect_err(resource);
        assert!(matches!(refused, OperationError::Forbidden(_)), "{verb} {resource}: {refused:?}");
    }
}

#[test]
fn a_malformed_operation_is_invalid() {
    for (verb, resource, content) in [
        (Verb::Update, "d/podstatus/web", ""),
        (Verb::Update, "d/podstatus/web", r#"{"uid":"u"}"#),
        (Verb::Update, "d/podstatus/web", r#"{"uid":"u","status":7}"#),
        (Verb::Update, "d/podstatus/web", r#"{"status":{}}"#),
        (Verb::Update, "d/podstatus", r#"{"uid":"u","status":{}}"#),
        (Verb::Update, "null/node/gw-1", "not JSON"),
        (Verb::Update, "null/node/gw-1", "[]"),
        (Verb::Delete, "d/pod/web", "{}"),
        (Verb::Query, "web", ""),
        (Verb::Query, "a/b/c/d", ""),
        (Verb::Query, "/pod", ""),
        (Verb::Query, "", ""),
        (Verb::Connection, "null/connection/gw-1", "true"),
    ] {
        let refused = planned("edged", verb, resource, content).expect_err(resource);
        assert!(
            matches!(refused, OperationError::Invalid(_)),
            "{verb} {resource} {content}: {refused:?}"
        );
    }
}

#[test]
fn what_is_larger_than_an_object_is_refused_to_its_sender() {
    let content = |bytes: usize| format!("\"{}\"", " ".repeat(bytes - 2));
    let planned = |bytes| planned("function", Verb::Update, "d/result/f", &content(bytes));
    assert!(matches!(planned(OBJECT_BYTES_MAX), Ok(Plan::Report(_))));
    let refused = planned(OBJECT_BYTES_MAX + 1).expect_err("too large");
    let text = "d/result/f: the content has 1572865 bytes; the cloud takes 1572864";
    assert_eq!(refused.to_string(), text);
}

#[test]
fn an_event_of_edged_goes_to_the_cloud_if_it_is_an_object_of_its_size() {
    let planned = |content: &str| planned("edged", Verb::Update, "d/event/web.1", content);
    assert_eq!(
        planned(r#"{"reason":"BackOff"}"#),
        Ok(Plan::Report(ReportBody::Event {
            key: key("d/event/web.1"),
            object: Bytes::from_static(br#"{"reason":"BackOff"}"#),
        }))
    );
    assert!(matches!(planned("[]"), Err(OperationError::Invalid(_))));
    let large = format!("{{{}}}", " ".repeat(EVENT_BYTES_MAX));
    let refused = planned(&large).expect_err("too large");
    assert_eq!(
        refused.to_string(),
        "d/event/web.1: the Event has 8194 bytes; the cloud takes 8192"
    );
}

#[test]
fn messages_of_functions_go_to_the_cloud() {
    assert_eq!(
        planned("function", Verb::Update, "d/result/f", "[1, 2]"),
        Ok(Plan::Report(ReportBody::Message {
            key: key("d/result/f"),
            content: Bytes::from_static(b"[1, 2]"),
        }))
    );
    assert_eq!(
        planned("function", Verb::Delete, "d/result/f", ""),
        Ok(Plan::Report(ReportBody::Message {
            key: key("d/result/f"),
            content: Bytes::from_static(b"null"),
        }))
    );
    assert!(matches!(
        planned("function", Verb::Update, "d/result/f", "{"),
        Err(OperationError::Invalid(_))
    ));
    for foreign in ["null/node/gw-1", "d/podstatus/web", "d/event/web.1"] {
        let refused = planned("function", Verb::Update, foreign, "{}").expect_err(foreign);
        assert!(matches!(refused, OperationError::Forbidden(_)), "{foreign}: {refused:?}");
    }
}

#[test]
fn operations_of_others_are_delivered_by_routing() {
    for (source, resource, group) in [
        ("function-manager", "d/rule/r", Group::Function),
        ("mesh", "d/endpoints/e", Group::Mesh),
        ("operator", "d/pod/p", Group::Edged),
    ] {
        for verb in [Verb::Insert, Verb::Update, Verb::Delete, Verb::Response] {
            assert_eq!(planned(source, verb, resource, ""), Ok(Plan::Deliver(group)), "{source}");
        }
    }
    assert_eq!(
        planned("edged", Verb::Response, "d/endpoints/e", ""),
        Ok(Plan::Deliver(Group::Mesh))
    );
}

#[test]
fn a_query_names_one_object_or_all_of_a_type() {
    assert_eq!(
        planned("edged", Verb::Query, "d/secret/s", ""),
        Ok(Plan::Find { key: key("d/secret/s"), cloud: CloudQuery::WhenAbsent })
    );
    assert_eq!(
        planned("edged", Verb::Query, "d/secret", ""),
        Ok(Plan::List { namespace: Some("d".to_owned()), kind: "secret".to_owned() })
    );
    assert_eq!(
        planned("edged", Verb::Query, "null/node", ""),
        Ok(Plan::List { namespace: None, kind: "node".to_owned() })
    );
    assert_eq!(
        planned("edged", Verb::Query, "*/secret", ""),
        Ok(Plan::List { namespace: None, kind: "secret".to_owned() })
    );
    assert_eq!(
        planned("edged", Verb::Query, "null/secret", ""),
        Ok(Plan::List { namespace: Some("null".to_owned()), kind: "secret".to_owned() })
    );
}

#[test]
fn an_operation_without_an_executor_is_refused() {
    for verb in [
        Verb::Action,
        Verb::ActionResult,
        Verb::CreateVolume,
        Verb::DeleteVolume,
        Verb::ControllerPublishVolume,
        Verb::ControllerUnpublishVolume,
    ] {
        let refused = planned("function-manager", verb, "d/x/y", "{}").expect_err("no executor");
        assert!(matches!(refused, OperationError::NoExecutor(_)), "{verb}: {refused:?}");
    }
}

#[test]
fn connection_and_meta_sync_are_understood() {
    assert_eq!(
        planned("edged", Verb::Connection, "null/connection/gw-1", r#"{"connected":true}"#),
        Ok(Plan::IsConnected(true))
    );
    assert_eq!(planned("", Verb::MetaSync, "", ""), Ok(Plan::MetaSync));
}

proptest! {
    #[test]
    fn no_operation_panics(source in ".{0,12}", resource in ".{0,40}", content in ".{0,40}", verb in 0..15_usize) {
        let verbs = [
            Verb::Insert, Verb::Update, Verb::Delete, Verb::Query, Verb::Response,
            Verb::Connection, Verb::MetaSync, Verb::Action, Verb::ActionResult,
            Verb::CreateVolume, Verb::DeleteVolume, Verb::ControllerPublishVolume,
            Verb::ControllerUnpublishVolume, Verb::Token, Verb::Csr,
        ];
        let _ = planned(&source, verbs[verb], &resource, &content);
    }
}
