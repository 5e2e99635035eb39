//! Pods that the pod worker made, and of which it has no record any more.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_cri::CriSettings;
use headwater_cri::client::CriClient;
use headwater_cri::proto::{
    PodSandbox, PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest,
};
use headwater_cri::spec::{DIR_LABEL, NODE_LABEL, POD_NAME, POD_UID};
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, Fault, Twin};
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::{NodeRuntime, RuntimeError, RuntimeOpener};
use headwater_edged::{Edged, EdgedConfig, EdgedError, RuntimeKind, Settings};
use headwater_event::NodeName;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::bench::{
    Bench, is_running, on_a_twin, on_a_twin_with, sandboxes, start_twin, uid, until,
};
use crate::fake_edge::statuses;

/// Opens the runtime of a twin, which refuses so many lists of sandboxes from then on.
#[derive(Debug)]
struct TwinOpener {
    twin: Arc<Twin>,
    refused: usize,
}

#[tonic::async_trait]
impl RuntimeOpener for TwinOpener {
    async fn open(
        &self,
        node: &NodeName,
        dir: &Path,
        settings: &Settings,
        notices: mpsc::Sender<PodUid>,
    ) -> Result<NodeRuntime, RuntimeError> {
        let cri = CriSettings::new(self.twin.socket().to_owned());
        let opened = headwater_cri::open(&cri, node, dir, settings, notices).await;
        let runtime = opened.map_err(|error| RuntimeError::Absent(error.to_string()))?;
        (0..self.refused).for_each(|_| self.twin.fail_next("ListPodSandbox", Fault::Refused));
        Ok(runtime)
    }
}

/// Whether these sandboxes are left, and no other.
async fn are_left(client: &CriClient, kept: &[String]) -> Option<()> {
    let mut ids: Vec<_> = sandboxes(client).await.into_iter().map(|it| it.id).collect();
    ids.sort();
    (ids == kept).then_some(())
}

/// Makes a sandbox like this one, with these labels instead of its own.
async fn make_like(client: &CriClient, of: &PodSandbox, labels: &[(&str, &str)]) -> String {
    let metadata = PodSandboxMetadata {
        uid: labels.iter().map(|(_, value)| *value).collect(),
        ..of.metadata.clone().expect("a name")
    };
    let mut all = of.labels.clone();
    all.extend(labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let config =
        PodSandboxConfig { metadata: Some(metadata), labels: all, ..PodSandboxConfig::default() };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    client.run_pod_sandbox(request).await.expect("a sandbox").pod_sandbox_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_record_ends_and_those_of_other_nodes_stay() {
    if !Containerd::is_possible() {
        return;
    }
    let often = Duration::from_millis(200);
    let (_scratch, twin, bench, edged) = on_a_twin_with(|settings| settings.relist = often).await;
    let client = CriClient::new(twin.socket());
    for name in ["web", "stays"] {
        bench.edge.apply(&bench.pod(name, ""));
        bench.status(name, "a running pod", is_running).await;
    }
    edged.stop().await;

    // The disk loses both pods, and the cloud deletes one of them.
    let listed = sandboxes(&client).await;
    let of = |name: &str| {
        let is = |it: &&PodSandbox| it.labels.get(POD_NAME).is_some_and(|own| own == name);
        listed.iter().find(is).expect("a sandbox").clone()
    };
    let (web, stays) = (of("web"), of("stays"));
    for name in ["web", "stays"] {
        fs::remove_dir_all(bench.edged_dir().join("pods").join(uid(name))).expect("removed");
    }
    bench.edge.delete("shop/pod/web");
    let mut kept = vec![stays.id.clone()];
    for labels in [(NODE_LABEL, "gw-2"), (DIR_LABEL, "/other")] {
        kept.push(make_like(&client, &web, &[labels]).await);
    }
    kept.sort();
    let edged = bench.edged().await;
    assert!(
        until(|| are_left(&client, &kept)).await.is_some(),
        "left: {:#?}",
        sandboxes(&client).await
    );
    assert_eq!(twin.starts("stays"), 1, "a pod of the view runs on");

    // A call whose end nothing waited for acts after its pod is gone.
    make_like(&client, &web, &[(POD_NAME, "late"), (POD_UID, "late")]).await;
    assert!(
        until(|| are_left(&client, &kept)).await.is_some(),
        "left: {:#?}",
        sandboxes(&client).await
    );
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_runs_without_a_record_is_no_new_one_though_the_runtime_names_it_late() {
    /// More lists than are made until the faults end.
    const REFUSED: usize = 1000;
    /// So many lists are refused first. The pod worker and the tasks of its runtime make one each at the start, and the latter
    /// one a second from then on.
    const REFUSED_FIRST: u64 = 6;
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin_with(|settings| settings.pods_max = 1).await;
    let client = CriClient::new(twin.socket());
    bench.edge.apply(&bench.pod("stays", ""));
    bench.status("stays", "a running pod", is_running).await;
    edged.stop().await;

    // The disk loses the pod. By its name another one would come first, and the node has room for one.
    let listed = sandboxes(&client).await;
    let began = listed.first().expect("a sandbox").created_at / 1_000_000_000;
    fs::remove_dir_all(bench.edged_dir().join("pods").join(uid("stays"))).expect("removed");
    bench.edge.apply(&bench.pod("new", ""));
    // A status has whole seconds.
    let is_later = || async { (Timestamp::now().as_second() > began).then_some(()) };
    until(is_later).await.expect("the clock goes on");

    let before = statuses(&bench.edge.operations(), "stays").len();
    let refuse = || (0..REFUSED).for_each(|_| twin.fail_next("ListPodSandbox", Fault::Refused));
    let edged = bench.edged_after(refuse).await;
    let lists = twin.calls("ListPodSandbox");
    let are_refused =
        || async { (twin.calls("ListPodSandbox") >= lists + REFUSED_FIRST).then_some(()) };
    until(are_refused).await.expect("the runtime is asked again");
    let of_new = statuses(&bench.edge.operations(), "new");
    assert!(of_new.is_empty(), "it is judged before the other is known: {of_new:#?}");
    twin.forget_planned_faults();
    let status = bench.status("new", "its end", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "OutOfpods", "{status}");
    let since = || statuses(&bench.edge.operations(), "stays").into_iter().skip(before);
    let again = || async { since().find(is_running) };
    let status = until(again).await.expect("a running pod");
    let start = status["startTime"].as_str().expect("a time").parse::<Timestamp>();
    assert_eq!(start.expect("a time").as_second(), began, "the start of its sandbox");
    assert!(since().all(|status| status["phase"] != "Failed"));
    assert_eq!(twin.starts("stays"), 1);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_file_whose_record_cannot_be_read_runs_on() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin) = start_twin();
    twin.add_image(BUSYBOX_IMAGE);
    let mut bench = Bench::new(twin.socket());
    let folder = bench.dir.path().join("manifests");
    fs::create_dir(&folder).expect("a folder");
    let write = |bench: &Bench, name: &str| {
        let file = folder.join(format!("{name}.yaml"));
        fs::write(file, bench.pod(name, "").to_string()).expect("written");
    };
    bench.static_pods = Some(folder.clone());
    write(&bench, "web");
    let edged = bench.edged().await;
    let has_started = |name: &str| (twin.starts(name) > 0).then_some(());
    until(|| async { has_started("web") }).await.expect("the pod starts");
    edged.stop().await;

    let pods = fs::read_dir(bench.edged_dir().join("pods")).expect("a folder");
    let pods: Vec<_> = pods.map(|pod| pod.expect("a pod").path().join("pod.json")).collect();
    let [record] = &pods[..] else { panic!("one pod: {pods:?}") };
    fs::write(record, "torn").expect("written");
    write(&bench, "other");
    // The view, which does not have the pod, is whole before the files are read.
    bench.settings.static_pod_check = Duration::from_millis(500);
    let edged = bench.edged().await;
    until(|| async { has_started("other") }).await.expect("the pod of the other file starts");
    assert_eq!((twin.starts("web"), twin.calls("StopContainer")), (1, 0));
    // The other pod may start before it is written.
    let is_whole = || async {
        let record: Value = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
        (record["is_static"] == true && record["grace_seconds"] == 2).then_some(())
    };
    assert!(until(is_whole).await.is_some(), "{:?}", fs::read_to_string(record));
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_runtime_takes_over_only_once_every_pod_without_a_record_is_named() {
    /// More lists than are made until then.
    const REFUSED: usize = 20;
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    let twin = Arc::new(twin);
    let client = CriClient::new(twin.socket());
    bench.edge.apply(&bench.pod("web", ""));
    bench.status("web", "a running pod", is_running).await;
    edged.stop().await;
    fs::remove_dir_all(bench.edged_dir().join("pods").join(uid("web"))).expect("removed");

    let clear = |refused: usize| {
        let opener = TwinOpener { twin: twin.clone(), refused };
        let (node, no_edge) = ("gw-1".parse().expect("a node name"), "/dev/null".into());
        let kind = RuntimeKind::Other(Arc::new(opener));
        let mut config = EdgedConfig::new(node, no_edge, bench.edged_dir(), kind);
        config.settings = bench.settings.clone();
        Edged::clear(config, Duration::from_secs(2))
    };
    let error = clear(REFUSED).await.expect_err("the runtime does not name the pod");
    assert!(matches!(error, EdgedError::Strays(_)), "{error}");
    twin.forget_planned_faults();
    assert_eq!(sandboxes(&client).await.len(), 1, "nothing was ended");
    let ended = clear(0).await.expect("the pod ends").ended;
    let names: Vec<_> = ended.iter().map(|pod| pod.key.to_string()).collect();
    assert_eq!(names, ["shop/pod/web"]);
    assert_eq!(sandboxes(&client).await, []);
}
