//! Controllers that are killed at any moment, beside others, while answers are lost.

use serde_json::json;
use tokio::time::timeout;

use super::edge::Edge;
use super::faulty_proxy::{Fate, FaultyProxy};
use super::observer::{Observer, address};
use super::{Api, CLUSTER, SOON};
use crate::world::{Kubectl as _, Running, World};

/// The pods of the test.
const PODS: usize = 8;

/// The controllers that are killed one after another.
const KILLS: u64 = 2;

/// What becomes of the writes, in turn: a prime number of them, so that no request meets the same fate each
/// time.
const FATES: [Fate; 7] = [
    Fate::Pass,
    Fate::LoseAnswer,
    Fate::Pass,
    Fate::Answer(503),
    Fate::Pass,
    Fate::Lose,
    Fate::LoseAnswer,
];

fn name(number: usize) -> String {
    format!("killed-{number}")
}

/// Another controller of the same log, with its view of the edge.
async fn beside(world: &World, proxy: &FaultyProxy) -> (World, Running, Edge) {
    let world = world.beside();
    let running = world.start_with_sink(proxy.kubeconfig()).await;
    let mut progress = running.controller.progress();
    let is_standby = progress.wait_for(|now| now.is_standby);
    timeout(SOON, is_standby).await.expect("it is a standby").expect("it runs");
    let seen = Edge::unreported(&world, &running, "kills");
    (world, running, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_writes_and_whatever_is_lost_the_api_shows_the_last_report_and_none_older_for_long()
{
    let of_pod = |method: &str, path: &str| {
        method == "DELETE" || (path.ends_with("/status") && path.contains("/pods/"))
    };
    let proxy = FaultyProxy::start(CLUSTER.account_command(), move |number, method, path| {
        if of_pod(method, path) { FATES[number % FATES.len()] } else { Fate::Pass }
    })
    .await;
    let (api, world) = (Api::connect().await, World::quick());
    let first = world.start_with_sink(proxy.kubeconfig()).await;
    first.reconciled().await;
    let edge = Edge::connect(&world, &first, "kills").await;
    api.node("kills").await;
    let uids = api.create_pods((0..PODS).map(name), "kills").await;
    let observer = Observer::start(&api, "kills").await;
    let (mut writer, mut kept, mut reported) = (Some(first), Vec::new(), 0);
    for kill in 0..KILLS {
        let (next_world, next, seen) = beside(&world, &proxy).await;
        for round in 0..4 {
            reported += 1;
            for (number, uid) in uids.iter().enumerate() {
                observer.report(&edge, &name(number), uid, reported).await;
            }
            if round == 1 + kill {
                // Dropped in the middle of its requests, it releases nothing: a killed one.
                drop(writer.take());
            }
        }
        next.reconciled().await;
        writer = Some(next);
        kept.push((next_world, seen));
    }
    // What a frozen writer still had on its way arrives late.
    observer.settle().await;
    let late = json!({"status": {"podIP": address(1), "podIPs": [{"ip": address(1)}]}}).to_string();
    CLUSTER.run(&["patch", "pod", &name(0), "--subresource=status", "--type=merge", "-p", &late]);
    let deleted: Vec<String> = (1..PODS).step_by(2).map(name).collect();
    let mut args = vec!["delete", "pod", "--wait=false"];
    args.extend(deleted.iter().map(String::as_str));
    CLUSTER.run(&args);
    for number in (1..PODS).step_by(2) {
        observer.report_end(&edge, &name(number), &uids[number]).await;
    }
    observer.settle().await;
    CLUSTER.stop(writer.expect("one writes")).await;
}
