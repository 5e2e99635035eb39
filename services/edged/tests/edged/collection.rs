//! Images that nothing needs, on a runtime in memory whose disk has room for a few.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_edged::runtime::Images as _;
use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::{Edged, EdgedConfig, EventLevel, Handle, NOTICES_MAX};
use headwater_proto::local::Operation;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Bench, is_running, script_pod};

const USED: &str = "localhost/used:1";
const PINNED: &str = "localhost/pinned:1";

fn config(bench: &Bench) -> EdgedConfig {
    let mut config = bench.config();
    config.settings.image_collection_period = Duration::from_millis(50);
    config.settings.image_collection.age_min = Duration::ZERO;
    config.settings.image_list_period = Duration::from_millis(50);
    config.settings.node_check = Duration::from_millis(50);
    config.settings.events = EventLevel::All;
    config
}

/// A pod worker whose runtime has images already.
async fn edged_with(config: EdgedConfig, images: &[&str]) -> (Handle, MemoryRuntime) {
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let runtime = MemoryRuntime::new(notices);
    for image in images {
        runtime.pull(image, &[]).await.expect("pulled");
    }
    runtime.pin_image(PINNED);
    let edged = Edged::spawn_with(config, runtime.node_runtime(), noticed).await;
    (edged.expect("the pod worker starts"), runtime)
}

async fn names(runtime: &MemoryRuntime) -> BTreeSet<String> {
    let images = runtime.list().await.expect("images");
    images.into_iter().flat_map(|image| image.names).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The messages of the node's Events of a reason.
fn events(operations: &[Operation], reason: &str) -> Vec<String> {
    let of_node = operations.iter().filter(|it| it.resource.starts_with("default/event/gw-1."));
    let events = of_node.map(|it| serde_json::from_slice::<Value>(&it.content).expect("JSON"));
    let events = events.filter(|event| event["reason"] == reason && event["type"] == "Warning");
    events.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The names of the images in the latest Node object.
fn stated(operations: &[Operation]) -> Option<BTreeSet<String>> {
    let node = operations.iter().rfind(|it| it.resource == "null/node/gw-1")?;
    let node: Value = serde_json::from_slice(&node.content).expect("JSON");
    let images = node["status"]["images"].as_array()?;
    let names = images.iter().flat_map(|image| image["names"].as_array().cloned());
    Some(names.flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn images_that_no_container_has_go_when_the_disk_is_full_and_the_node_states_the_others() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"][0]["image"] = json!(USED);
    let bench = Bench::new(std::slice::from_ref(&pod));
    let old = ["localhost/a:1", "localhost/b:1", "localhost/c:1", "localhost/d:1"];
    let images = [&old[..], &[USED, PINNED]].concat();
    let (edged, runtime) = edged_with(config(&bench), &images).await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    let all = set(&images);
    bench.edge.until("all images in the Node", |found| (stated(found)? == all).then_some(())).await;
    assert_eq!(names(&runtime).await, all, "the disk has room");
    // 6 of 7 are in use, which is more than 85 %, and 5 are fewer than 80 %.
    runtime.set_room(7);
    let five = |found: &[Operation]| stated(found).filter(|names| names.len() == 5);
    let left = bench.edge.until("five images in the Node", five).await;
    assert_eq!(left, names(&runtime).await);
    assert!(left.is_superset(&set(&[USED, PINNED])), "{left:?}");
    // One removal fails, all others are not enough.
    let stuck = left.iter().find(|name| old.contains(&&***name)).expect("an old image").clone();
    runtime.refuse_removal(&stuck);
    runtime.set_room(2);
    let failed = |found: &[Operation]| events(found, "ImageGCFailed").pop();
    let message = bench.edge.until("an Event", failed).await;
    assert!(message.contains("errors in image deletion"), "{message}");
    assert_eq!(names(&runtime).await, set(&[USED, PINNED, &stuck]));
    assert_eq!(events(&bench.edge.operations(), "FreeDiskSpaceFailed"), Vec::<String>::new());
    edged.stop().await;
}

#[tokio::test]
async fn a_disk_that_stays_full_is_told_in_events_of_the_node() {
    let bench = Bench::new(&[]);
    let (edged, runtime) = edged_with(config(&bench), &[PINNED, "localhost/a:1"]).await;
    runtime.set_room(1);
    let full = |found: &[Operation]| events(found, "FreeDiskSpaceFailed").pop();
    let message = bench.edge.until("an Event", full).await;
    assert!(message.contains("(100% of 1.0 MiB used)"), "{message}");
    bench.edge.until("another Event", |found| events(found, "ImageGCFailed").pop()).await;
    assert_eq!(names(&runtime).await, set(&[PINNED]));
    runtime.set_room(0);
    let none = |found: &[Operation]| events(found, "InvalidDiskCapacity").pop();
    let message = bench.edge.until("an Event", none).await;
    assert_eq!(message, "invalid capacity 0 on image filesystem");
    edged.stop().await;
}

#[tokio::test]
async fn an_image_goes_at_its_maximum_age_though_the_disk_has_room() {
    let bench = Bench::new(&[]);
    let mut config = config(&bench);
    config.settings.image_collection.age_max = Some(Duration::from_millis(1));
    let (edged, runtime) = edged_with(config, &[PINNED, "localhost/a:1"]).await;
    bench.edge.until("one image", |found| (stated(found)? == set(&[PINNED])).then_some(())).await;
    assert_eq!(names(&runtime).await, set(&[PINNED]));
    edged.stop().await;
}

#[tokio::test]
async fn a_young_image_stays_on_a_full_disk() {
    let bench = Bench::new(&[]);
    let mut config = config(&bench);
    config.settings.image_collection.age_min = Duration::from_mins(2);
    let (edged, runtime) = edged_with(config, &[PINNED, "localhost/a:1"]).await;
    runtime.set_room(1);
    runtime.pull("localhost/new:1", &[]).await.expect("pulled");
    let full = |found: &[Operation]| events(found, "FreeDiskSpaceFailed").pop();
    bench.edge.until("an Event", full).await;
    let all = set(&[PINNED, "localhost/a:1", "localhost/new:1"]);
    assert_eq!(names(&runtime).await, all);
    edged.stop().await;
}
