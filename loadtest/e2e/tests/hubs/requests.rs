//! Requests of a node: from its local API through a hub to the active controller, also after the first one has died.

use std::path::Path;

use headwater_e2e::fleet::Fleet;
use headwater_e2e::local_api::operate;
use headwater_proto::local::Failure;
use headwater_proto::local::failure::Code;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;

use crate::PARTITIONS;

/// The arguments of a controller that listens for hubs.
const LISTENING: [&str; 3] = ["--listen", "127.0.0.1:0", "--insecure-loopback"];

/// A pod that names a ConfigMap that is not there, and a token.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  nodeName: gw-1
  serviceAccountName: robot
  containers:
  - {name: main, image: "registry.local/app:1.2", envFrom: [{configMapRef: {name: absent}}]}
"#;

/// How a request of the node ends: its code and words.
fn failure(socket: &Path, verb: Verb, resource: &str, content: &str) -> (Code, String) {
    match operate(socket, verb, resource, content) {
        Outcome::Failure(Failure { code, message }) => {
            (Code::try_from(code).expect("known"), message)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_reaches_the_active_controller_and_has_words_while_there_is_none() {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    fleet.write("web.yaml", POD);
    fleet.add_controller_with("controller", &LISTENING);
    fleet.add_hub("hub");
    fleet.add_edge("gw-1", &["hub"]);
    let socket = fleet.part("gw-1").data().join("nodes/gw-1/edge.sock");
    let get = |resource: &str| failure(&socket, Verb::Query, resource, "");
    let reaches_a_controller = |fleet: &Fleet, what: &str| {
        fleet.wait_for(what, |_| {
            (socket.exists() && get("default/configmap/absent").0 == Code::NotFound).then_some(())
        });
    };
    reaches_a_controller(&fleet, "an answer of the controller");

    // What no pod of the node names, and another node.
    assert_eq!(get("default/configmap/other").0, Code::Forbidden);
    assert_eq!(get("null/node/gw-2").0, Code::Forbidden);
    // A token for a pod that the node does not have.
    let bound = r#"{"kind":"Pod","apiVersion":"v1","name":"db","uid":"u"}"#;
    let token = format!(r#"{{"spec":{{"boundObjectRef":{bound}}}}}"#);
    let (code, words) = failure(&socket, Verb::Token, "default/serviceaccount/robot", &token);
    assert_eq!(code, Code::Forbidden, "{words}");
    assert!(words.contains("this node has no pod default/pod/db"), "{words}");

    // Without a controller a request ends in words.
    fleet.part_mut("controller").kill();
    let words = fleet.wait_for("words", |_| {
        let (code, words) = get("default/configmap/absent");
        (code == Code::Unavailable).then_some(words)
    });
    assert!(words.contains("controller"), "{words}");
    // Another one takes over.
    fleet.add_controller_with("controller-2", &LISTENING);
    reaches_a_controller(&fleet, "an answer of the next controller");
}
