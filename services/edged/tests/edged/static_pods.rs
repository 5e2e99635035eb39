//! Pods of the node's own files run without a cloud, and end with their files.

use std::path::PathBuf;
use std::time::Duration;

use headwater_edged::{Edged, Handle};
use headwater_proto::local::Operation;
use headwater_proto::local::operation::Verb;
use serde_json::Value;

use crate::bench::{Bench, content, deleting, is_alive, is_running, script_pod, until};
use crate::fake_edge::asked_delete;

/// The folder of the test's static pods.
fn folder(bench: &Bench) -> PathBuf {
    let folder = bench.path("manifests");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

async fn start(bench: &Bench) -> Handle {
    let mut config = bench.config();
    config.static_pods = Some(folder(bench));
    config.settings.static_pod_check = Duration::from_millis(20);
    Edged::spawn(config).await.expect("the pod worker starts")
}

/// A pod that writes its process to the file of this name, and runs.
fn writer(bench: &Bench, name: &str, pid: &str) -> Value {
    let script = format!("echo $$ > {}; exec sleep 1000", bench.path(pid).display());
    script_pod(name, name, &script)
}

fn write(bench: &Bench, file: &str, pod: &Value) {
    std::fs::write(folder(bench).join(file), pod.to_string()).expect("written");
}

async fn ended(pid: &str) {
    until("the end of the process", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_pod_of_a_file_runs_without_a_view_is_replaced_with_its_file_and_ends_with_it() {
    let bench = Bench::with_view(&[], false);
    write(&bench, "web.yaml", &writer(&bench, "web", "first"));
    let edged = start(&bench).await;
    let first = content(&bench.path("first")).await;
    let pods = edged.pods().list().await.expect("the pod worker answers");
    let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    assert_eq!(names, ["web-gw-1"]);
    write(&bench, "web.yaml", &writer(&bench, "web", "second"));
    let second = content(&bench.path("second")).await;
    assert!(!is_alive(&first), "the pod of before has ended");
    // The next pod worker adopts it.
    edged.stop().await;
    let edged = start(&bench).await;
    write(&bench, "web.yaml", &Value::from("no pod"));
    write(&bench, "other.yaml", &writer(&bench, "other", "third"));
    let third = content(&bench.path("third")).await;
    assert!(is_alive(&second), "a file without a pod takes none");
    std::fs::remove_file(folder(&bench).join("other.yaml")).expect("removed");
    std::fs::remove_file(folder(&bench).join("web.yaml")).expect("removed");
    ended(&second).await;
    ended(&third).await;
    let left = || std::fs::read_dir(bench.edged_dir().join("pods")).expect("pods").count();
    until("nothing left of the pods", || (left() == 0).then_some(())).await;
    let reported = bench.edge.operations().into_iter().map(|operation| operation.resource);
    let of_pods: Vec<_> = reported.filter(|resource| resource.contains("web-gw-1")).collect();
    assert_eq!(of_pods, Vec::<String>::new(), "the cloud does not know the pods");
    edged.stop().await;
}

#[tokio::test]
async fn what_becomes_of_the_folder_and_of_the_view_touches_no_pod_of_the_other() {
    let bench = Bench::new(&[]);
    write(&bench, "web.yaml", &writer(&bench, "web", "of-file"));
    bench.edge.apply(&writer(&bench, "app", "app"));
    let edged = start(&bench).await;
    let (of_file, of_view) =
        (content(&bench.path("of-file")).await, content(&bench.path("app")).await);
    // The folder goes: nothing ends. The pod of the view goes: it ends alone.
    std::fs::rename(folder(&bench), bench.path("away")).expect("renamed");
    bench.edge.delete("shop/pod/app");
    ended(&of_view).await;
    assert!(is_alive(&of_file));
    // The next pod worker does not see the folder, and the view is complete.
    edged.stop().await;
    let mut config = bench.config();
    config.static_pods = Some(bench.path("elsewhere"));
    let edged = Edged::spawn(config).await.expect("the pod worker starts");
    bench.edge.apply(&writer(&bench, "app", "again"));
    content(&bench.path("again")).await;
    assert!(is_alive(&of_file), "a folder that is away takes no pod");
    edged.stop().await;
    // Without the setting there are no static pods.
    let edged = bench.edged().await;
    ended(&of_file).await;
    assert_eq!(asked_delete(&bench.edge.operations(), "web-gw-1"), None);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_static_pod_keeps_its_name_from_a_pod_of_the_view_which_comes_when_the_file_is_gone() {
    let bench = Bench::new(&[]);
    write(&bench, "web.yaml", &writer(&bench, "web", "of-file"));
    let edged = start(&bench).await;
    let of_file = content(&bench.path("of-file")).await;
    bench.edge.apply(&writer(&bench, "web-gw-1", "view"));
    bench.edge.apply(&writer(&bench, "later", "later"));
    content(&bench.path("later")).await;
    assert!(!bench.path("view").exists() && is_alive(&of_file));
    std::fs::remove_file(folder(&bench).join("web.yaml")).expect("removed");
    content(&bench.path("view")).await;
    assert!(!is_alive(&of_file));
    edged.stop_pods(Duration::from_secs(5)).await;
}

/// The contents of what was reported of the pod `web-gw-1` by this verb.
fn reported(operations: &[Operation], verb: Verb) -> Vec<Value> {
    let of_pod = operations.iter().filter(|it| it.resource == "shop/podstatus/web-gw-1");
    let contents = of_pod.filter(|it| it.verb() == verb).map(|it| &it.content);
    contents.map(|content| serde_json::from_slice(content).expect("JSON")).collect()
}

/// Waits until the status of the running pod is reported under this UID.
async fn reported_as(bench: &Bench, uid: &str) {
    let found = |all: &[Operation]| {
        let statuses = reported(all, Verb::Update);
        statuses
            .last()
            .is_some_and(|it| it["uid"] == uid && is_running(&it["status"]))
            .then_some(())
    };
    bench.edge.until("the status of the mirror", found).await;
}

#[tokio::test]
async fn the_cloud_shows_a_static_pod_by_a_mirror_which_has_its_status_and_decides_nothing() {
    let bench = Bench::new(&[]);
    write(&bench, "web.yaml", &writer(&bench, "web", "of-file"));
    let edged = start(&bench).await;
    let of_file = content(&bench.path("of-file")).await;
    let stated = |all: &[Operation]| {
        let node = all.iter().rfind(|it| it.resource == "null/node/gw-1")?;
        let node: Value = serde_json::from_slice(&node.content).expect("JSON");
        let stated = node["metadata"]["annotations"]["headwater/static-pods"].as_str()?;
        let stated: Value = serde_json::from_str(stated).expect("JSON");
        Some(stated).filter(|stated| stated["pods"][0].is_object())
    };
    let stated = bench.edge.until("the statement of the node", stated).await;
    assert_eq!(stated["complete"], true);
    assert!(reported(&bench.edge.operations(), Verb::Update).is_empty(), "it has no mirror");

    let mirror = |uid: &str| {
        let mut mirror = stated["pods"][0].clone();
        mirror["metadata"]["uid"] = uid.into();
        let annotations = &mut mirror["metadata"]["annotations"];
        annotations["kubernetes.io/config.mirror"] =
            annotations["kubernetes.io/config.hash"].clone();
        mirror
    };
    bench.edge.apply(&mirror("mirror-1"));
    reported_as(&bench, "mirror-1").await;
    // A person deletes the mirror: the pod runs on, and the next mirror has its status.
    bench.edge.apply(&deleting(&mirror("mirror-1"), 0));
    bench.edge.delete("shop/pod/web-gw-1");
    bench.edge.apply(&mirror("mirror-2"));
    reported_as(&bench, "mirror-2").await;
    // So has the next pod worker.
    edged.stop().await;
    let before = bench.edge.operations().len();
    let edged = start(&bench).await;
    let again = |all: &[Operation]| {
        let statuses = reported(all.get(before..)?, Verb::Update);
        (statuses.last()?["uid"] == "mirror-2").then_some(())
    };
    bench.edge.until("the status once more", again).await;
    assert!(is_alive(&of_file));
    assert_eq!(content(&bench.path("of-file")).await, of_file, "no mirror runs");

    std::fs::remove_file(folder(&bench).join("web.yaml")).expect("removed");
    ended(&of_file).await;
    let removed = |all: &[Operation]| reported(all, Verb::Delete).pop();
    let removed = bench.edge.until("the end of the status", removed).await;
    assert_eq!(removed["uid"], "mirror-2");
    assert_eq!(asked_delete(&bench.edge.operations(), "web-gw-1"), None);
    edged.stop().await;
}
