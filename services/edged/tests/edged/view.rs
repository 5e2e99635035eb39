//! The edge's view: absence, operations and malformed events.

use std::time::Duration;

use headwater_proto::local::Operation;
use headwater_proto::local::operation::Verb;

use crate::bench::{Bench, content, is_alive, is_running, script_pod, until};
use crate::fake_edge::FakeEdge;

#[tokio::test]
async fn absence_before_the_first_complete_view_ends_nothing() {
    let mut bench = Bench::new(&[]);
    let pid_file = bench.path("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", pid_file.display());
    bench.edge.apply(&script_pod("web", "u1", &script));
    let first = bench.edged().await;
    let pid = content(&pid_file).await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    first.stop().await;

    // The edge has lost its view, and its listing is incomplete. Another pod is in it already.
    let other = script_pod("other", "u2", "exec sleep 1000");
    bench.edge = FakeEdge::start(&bench.path("edge.sock"), &[other], false);
    let second = bench.edged().await;
    bench.edge.until_status("other", "the pod that is there", is_running).await;
    assert!(is_alive(&pid), "absence meant nothing yet");
    assert!(bench.edged_dir().join("pods/u1").exists());

    bench.edge.list_again(true);
    let left = bench.edged_dir().join("pods/u1");
    until("nothing left of the orphan", || (!left.exists()).then_some(())).await;
    assert!(!is_alive(&pid));
    second.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_operation_without_an_executor_is_refused() {
    let bench = Bench::new(&[]);
    let edged = bench.edged().await;
    bench.edge.watched().await;
    let ask = Operation {
        id: "42".to_owned(),
        source: "function".to_owned(),
        verb: Verb::CreateVolume.into(),
        resource: "shop/volume/data".to_owned(),
        ..Operation::default()
    };
    bench.edge.ask(ask);
    let answered = |all: &[Operation]| {
        all.iter().find(|o| o.verb() == Verb::Response && o.parent_id == "42").cloned()
    };
    let answer = bench.edge.until("the answer", answered).await;
    assert_eq!(answer.resource, "shop/volume/data");
    assert!(String::from_utf8_lossy(&answer.content).contains("no executor"));
    edged.stop().await;
}

#[tokio::test]
async fn the_answer_to_a_query_is_no_request_and_is_not_answered() {
    let bench = Bench::new(&[]);
    let edged = bench.edged().await;
    bench.edge.watched().await;
    // A query of the mesh for a Secret: the edge delivers the answer to the group of Secrets, too.
    let operation = |parent: &str, id: &str, verb: Verb| Operation {
        id: id.to_owned(),
        parent_id: parent.to_owned(),
        source: "meta".to_owned(),
        verb: verb.into(),
        resource: "shop/secret/s".to_owned(),
        content: "{}".into(),
    };
    bench.edge.ask(operation("7", "", Verb::Response));
    bench.edge.ask(operation("", "8", Verb::Action));
    let is_answer = |operation: &&Operation| operation.verb() == Verb::Response;
    let answers = |all: &[Operation]| {
        let answers: Vec<_> = all.iter().filter(is_answer).cloned().collect();
        answers.iter().any(|answer| answer.parent_id == "8").then_some(answers)
    };
    let answers = bench.edge.until("the answer to the request", answers).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    edged.stop().await;
}

#[tokio::test]
async fn an_event_that_cannot_be_read_harms_no_other() {
    let bench = Bench::new(&[]);
    let mut bad = script_pod("bad", "../u1", "exec sleep 1000");
    bench.edge.apply(&bad);
    bad["metadata"]["name"] = "worse".into();
    bad["spec"]["containers"] = "none".into();
    bench.edge.apply(&bad);
    bench.edge.apply(&script_pod("good", "u2", "exec sleep 1000"));
    let edged = bench.edged().await;
    bench.edge.until_status("good", "a running pod", is_running).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_report_that_fails_is_retried_and_delays_no_other() {
    let pods = ["a", "b"].map(|name| script_pod(name, name, "exec sleep 1000"));
    let bench = Bench::new(&pods);
    bench.edge.fail("shop/podstatus/a", true);
    let edged = bench.edged().await;
    bench.edge.until_status("b", "the status of the other pod", is_running).await;
    assert!(crate::fake_edge::latest_status(&bench.edge.operations(), "a").is_none());
    bench.edge.fail("shop/podstatus/a", false);
    bench.edge.until_status("a", "the status that failed", is_running).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}
