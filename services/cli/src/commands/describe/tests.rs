//! Descriptions, compared as text.

use headwater_proto::operator::{StoryEvent, StoryReference, StoryReport, StoryStream};
use jiff::Timestamp;
use serde_json::json;

use super::*;

fn stream(name: &str, earlier_events: u64) -> StoryStream {
    let event = StoryEvent {
        seq: 4,
        time_ms: 0,
        kind: "PodApplied".to_owned(),
        writer_epoch: 1,
        key: "shop/pod/web".to_owned(),
        change: "created".to_owned(),
    };
    StoryStream { stream: name.to_owned(), events: vec![event], earlier_events }
}

fn at(seconds: i64) -> Moment {
    Moment::present(Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(seconds))
}

fn description() -> Description {
    Description {
        object_type: ObjectType::named("pod").expect("a type"),
        object: json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u",
                         "labels": {"app": "web", "tier": "front"}},
            "spec": {"nodeName": "node-1",
                     "volumes": [{"name": "c", "configMap": {"name": "conf"}}],
                     "containers": [{"name": "main", "image": "nginx", "command": ["sleep", "9"],
                                     "volumeMounts": [{"name": "c", "mountPath": "/c"}]}]},
            "status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [{
                "name": "main", "ready": false, "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff",
                    "message": "back-off 40s restarting failed container=main pod=web"}},
                "lastState": {"terminated": {"reason": "Error", "exitCode": 3,
                    "finishedAt": "1970-01-01T00:00:00Z"}}}]},
        }),
        history: StoryResponse {
            streams: vec![stream("node/node-1", 2)],
            reports: vec![StoryReport {
                time_ms: 0,
                node: "node-1".to_owned(),
                boot: 1,
                seq: 2,
                summary: "Pending, 0 of 1 ready".to_owned(),
            }],
            references: vec![StoryReference {
                key: "shop/configmap/conf".to_owned(),
                required: true,
                present: false,
            }],
            ..StoryResponse::default()
        },
        node: Some(NodeStatus {
            name: "node-1".to_owned(),
            state: "away".to_owned(),
            last_contact_ms: 1,
            ..NodeStatus::default()
        }),
        is_past: false,
        pods: Vec::new(),
        events: Vec::new(),
    }
}

#[test]
fn an_image_that_does_not_run_yet_needs_a_restart() {
    let mut description = description();
    let of = |description: &Description| description.text(at(0));
    let status = &mut description.object["status"]["containerStatuses"][0];
    status["image"] = json!("nginx:1");
    assert!(!of(&description).contains("restart:"), "the next run has the image of the spec");
    let status = &mut description.object["status"]["containerStatuses"][0];
    status["state"] = json!({"running": {}});
    let text = of(&description);
    assert!(text.contains("nginx (needs a restart: nginx:1 runs)\n"), "{text}");
}

#[test]
fn the_description_of_a_pod_has_its_history() {
    let text = description().text(at(10));
    for expected in [
        "Name:             web\n",
        "Labels:           app=web\n                  tier=front\n",
        "Node:             node-1 (away)\n",
        "Status:           CrashLoopBackOff, 0 of 1 ready\n",
        "Waits For:        its node, which is away\n",
        "                  shop/configmap/conf, which does not exist\n",
        "(until 1970-01-01T00:00:40Z, in 30s)\n",
        "    Command:      sleep 9\n",
        "    Last State:   Terminated\n",
        "      Exit Code:  3\n",
        "    Mounts:       /c from c\n",
        "Events in node/node-1 (2 earlier ones are not shown):\n",
        "PodApplied   1       shop/pod/web   created\n",
        "Pending, 0 of 1 ready\n",
        "Streams of node-1:\n",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
}

#[test]
fn a_pod_of_a_node_that_does_not_exist_waits_for_it() {
    let mut description = description();
    description.object["spec"]["nodeName"] = json!("gw-9");
    description.node = None;
    let text = description.text(at(0));
    assert!(text.contains("Waits For:        node gw-9, which does not exist\n"), "{text}");
    description.is_past = true;
    let text = description.text(at(0));
    assert!(!text.contains("node gw-9, which"), "the nodes of then are not known: {text}");
}

#[test]
fn the_description_of_a_pod_names_the_fields_that_its_runtime_ignores() {
    let mut description = description();
    assert!(!description.text(at(0)).contains("Ignored Fields"));
    description.object["status"]["conditions"] = json!([{
        "type": "headwater/SpecHonoured", "status": "False", "reason": "FieldsIgnored",
        "message": "spec.priority: pods are not ranked\nspec.comand: unknown to this version",
    }]);
    let text = description.text(at(0));
    let expected = "Ignored Fields:   spec.priority: pods are not ranked\n                  \
                    spec.comand: unknown to this version\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_pod_whose_probe_fails_waits_for_the_probe() {
    let mut description = description();
    let line = "container main: readiness probe has failed since 2026-01-02T03:04:05Z: no";
    description.object["status"]["conditions"] = json!([{
        "type": "headwater/ProbeFailing", "status": "True", "reason": "ProbeFailed",
        "message": line,
    }]);
    description.node = None;
    description.is_past = true;
    description.history.references.clear();
    description.object["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    let text = description.text(at(0));
    assert!(text.contains(&format!("Waits For:        {line}\n")), "{text}");
}

#[test]
fn nothing_in_an_object_rules_the_terminal() {
    let mut description = description();
    description.object["metadata"]["labels"]["app"] = json!("\u{1b}[2J");
    description.object["spec"]["containers"][0]["name"] = json!("main\n\u{1b}[0m");
    let text = description.text(at(0));
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn the_description_of_a_node_has_its_state() {
    let mut description = description();
    description.object_type = ObjectType::named("node").expect("a type");
    description.pods = vec![description.object.clone()];
    let text = description.text(at(0));
    for expected in [
        "Link:             away, last contact ",
        "Identity:         incarnation 0",
        "shop        web ",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
}

#[test]
fn another_object_is_printed_unchanged() {
    let mut description = description();
    description.object_type = ObjectType::named("cm").expect("a type");
    description.object =
        json!({"metadata": {"name": "conf", "namespace": "shop"}, "data": {"a": "b"}});
    description.history.used_by = vec!["shop/web".to_owned()];
    let text = description.text(at(0));
    assert!(
        text.contains("data:\n  a: b\n") && text.contains("Used By:          pod/shop/web"),
        "{text}"
    );
}

#[test]
fn every_stream_that_has_the_object_is_shown() {
    let mut description = description();
    description.object_type = ObjectType::named("cm").expect("a type");
    description.history.streams = vec![stream("node/node-1", 0), stream("node/node-2", 3)];
    description.history.more_streams = 5;
    let text = description.text(at(0));
    for expected in [
        "Events in node/node-1:\n",
        "Events in node/node-2 (3 earlier ones are not shown):\n",
        "5 more streams have it: name a node with --node\n",
    ] {
        assert!(text.contains(expected), "{expected:?} in\n{text}");
    }
}

#[test]
fn a_past_pod_without_a_status_has_unknown_values() {
    let mut description = description();
    description.object.as_object_mut().expect("a pod").remove("status");
    (description.history, description.node) = (StoryResponse::default(), None);
    let text = description.text(Moment { has_statuses: false, ..at(0) });
    for expected in [
        "Status:           <unknown>\n",
        "IP:               <unknown>\n",
        "    State:        <unknown>\n",
        "    Ready:        <unknown>\n",
        "    Restart Count:<unknown>\n",
    ] {
        assert!(text.replace("Count: <", "Count:<").contains(expected), "{expected:?} in\n{text}");
    }
    assert!(!text.contains("Waits For"), "{text}");
}
