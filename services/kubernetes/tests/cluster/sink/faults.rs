//! Requests that are lost, refused or late.

use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};
use headwater_kubernetes::ActAs;

use super::edge::{Edge, running_status};
use super::faulty_proxy::{Fate, FaultyProxy};
use super::observer::Observer;
use super::{Api, CLUSTER};
use crate::deployment::{check_audit, deployed};
use crate::world::{Kubectl as _, World, only_api, pod};

/// The pods of a test.
const PODS: usize = 12;

/// The reports of each pod, one right after the other.
const ROUNDS: u64 = 3;

fn name(number: usize) -> String {
    format!("faulty-{number}")
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_becomes_of_a_request_the_api_shows_the_last_report_and_nothing_is_written_twice()
{
    let fates = [
        Fate::Answer(500),
        Fate::LoseAnswer,
        Fate::Pass,
        Fate::Answer(429),
        Fate::Lose,
        Fate::Pass,
        Fate::Answer(503),
    ];
    let of_status = |path: &str| path.ends_with("/status") && path.contains("/pods/");
    let proxy = FaultyProxy::start(CLUSTER.account_command(), move |number, method, path| {
        if of_status(path) || method == "DELETE" { fates[number % fates.len()] } else { Fate::Pass }
    })
    .await;
    let (api, world) = (Api::connect().await, World::new());
    let running = world.start_with_sink(proxy.kubeconfig()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "faulty").await;
    api.node("faulty").await;
    let uids = api.create_pods((0..PODS).map(name), "faulty").await;
    let observer = Observer::start(&api, "faulty").await;
    for round in 1..=ROUNDS {
        for (number, uid) in uids.iter().enumerate() {
            observer.report(&edge, &name(number), uid, round).await;
        }
    }
    observer.settle().await;
    // Each report, at most; and the Node, its status and the tolerations of each pod.
    let (passed, most) = (proxy.passed(), (ROUNDS as usize + 1) * PODS + 7);
    assert!(passed <= most, "{passed} writes arrived, {most} were needed at most");
    let delete: Vec<String> = (0..PODS).map(name).collect();
    let mut args = vec!["delete", "pod", "--wait=false"];
    args.extend(delete.iter().map(String::as_str));
    CLUSTER.run(&args);
    for (number, uid) in uids.iter().enumerate() {
        observer.report_end(&edge, &name(number), uid).await;
    }
    observer.settle().await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_named_and_the_rest_goes_on() {
    let proxy = FaultyProxy::start(CLUSTER.account_command(), |_, _, path| {
        if path.contains("/pods/right-less/status") { Fate::Answer(403) } else { Fate::Pass }
    })
    .await;
    let (api, world) = (Api::connect().await, World::new());
    let running = world.start_with_sink(proxy.kubeconfig()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "less").await;
    api.node("less").await;
    let uid = api.create_pod("right-less", "less").await;
    edge.report_status("right-less", &uid, &running_status("10.2.9.1")).await;
    running.sink_trouble("does not let the controller patch pods/status: by the proxy").await;
    let uid = api.create_pod("right-more", "less").await;
    edge.report_status("right-more", &uid, &running_status("10.2.9.2")).await;
    api.running("right-more").await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reported_while_the_api_server_is_frozen_is_shown_soon_after_it_is_thawed() {
    let settings = ControlPlaneSettings { audit: true, ..only_api() };
    let mut cluster = ControlPlane::start(settings).expect("a control plane");
    let account = deployed(&cluster, ActAs::Node);
    let (api, world) = (Api::of(cluster.kubeconfig()).await, World::new());
    let running = world.start_with_sink(&account).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "frozen").await;
    api.node("frozen").await;
    let pods: Vec<_> = (0..PODS).map(|number| pod(&name(number), "frozen", "settings")).collect();
    cluster.create(&pods);
    let mut uids = Vec::new();
    for number in 0..PODS {
        let uid = api.uid(&name(number)).await;
        edge.report_status(&name(number), &uid, &running_status("10.4.0.0")).await;
        api.running(&name(number)).await;
        uids.push(uid);
    }
    let written = running.requests("patch pods/status", "done");
    cluster.part(Part::ApiServer).freeze().expect("it can be frozen");
    for round in 0..50 {
        for (number, uid) in uids.iter().enumerate() {
            edge.report_status(&name(number), uid, &running_status(&format!("10.4.1.{round}")))
                .await;
        }
    }
    // Until requests have had no answer for too long, and after.
    let silent = Instant::now() + Duration::from_secs(60);
    while running.requests("patch pods/status", "failed") == 0 {
        assert!(Instant::now() < silent, "no request failed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.part(Part::ApiServer).thaw().expect("it can be thawed");
    for number in 0..PODS {
        let last = |pod: &serde_json::Value| pod["status"]["podIP"] == "10.4.1.49";
        api.wait_for("pod", &name(number), "as it was last reported", last).await;
    }
    // One that was on its way, and the last one of each pod: what is superseded is not sent.
    let more = running.requests("patch pods/status", "done") - written;
    assert!(more <= 2 * PODS as u64, "{more} statuses of {PODS} pods were written");
    running.controller.stop().await;
    check_audit(&cluster, &[]);
}
