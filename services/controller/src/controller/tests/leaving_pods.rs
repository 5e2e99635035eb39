//! Rollouts that wait until a pod has left: its node says so, and no other one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::source::manifest::{ManifestFolder, ManifestSettings};

/// A controller whose source is a folder with workloads.
struct Workloads {
    world: World,
    folder: tempfile::TempDir,
    running: Running,
    reports: AtomicU64,
    looks: AtomicU64,
}

fn manifest(kind: &str, replicas: u64, image: &str) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    })
    .to_string()
}

fn ready() -> Value {
    let since = "2026-01-01T00:00:00Z";
    let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": since});
    json!({"phase": "Running", "conditions": [condition]})
}

impl Workloads {
    async fn start(manifest: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("db.json"), manifest).expect("written");
        // A node without a pod has a stream by its Node.
        let node = |name| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n");
        let nodes = ["a", "b"].map(node).join("---\n");
        std::fs::write(folder.path().join("nodes.yaml"), nodes).expect("written");
        let world = World::new();
        let running = Self::start_in(&world, folder.path().to_owned()).await;
        let (reports, looks) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { world, folder, running, reports, looks }
    }

    async fn start_in(world: &World, folder: PathBuf) -> Running {
        let quiet = Duration::from_millis(10);
        let settings = ManifestSettings { quiet, ..ManifestSettings::new(folder) };
        let nodes = BTreeSet::from(["a", "b"].map(|node| node.parse().expect("a name")));
        let nodes = watch::Sender::new(nodes).subscribe();
        let source = Box::new(ManifestFolder::new(settings, nodes));
        let (sender, _) = mpsc::channel(1);
        let running = world.start_with(vec![source], sender).await;
        running.reconciled(0).await;
        for node in ["a", "b"] {
            let node = node.parse().expect("a name");
            world.append_upstream(&node, position(&node, Vec::new())).await;
            running.folds(node.as_str()).await;
        }
        running
    }

    async fn restart(self) -> Self {
        let epoch = self.running.controller.progress().borrow().epoch;
        self.running.controller.stop().await;
        let running = Self::start_in(&self.world, self.folder.path().to_owned()).await;
        running.reconciled(epoch.0).await;
        Self { running, ..self }
    }

    fn write(&self, manifest: &str) {
        std::fs::write(self.folder.path().join("db.json"), manifest).expect("written");
    }

    /// Waits until the source has looked at the files once more.
    async fn look(&self) {
        let name = format!("look-{}", self.looks.fetch_add(1, Ordering::Relaxed));
        let text = format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n");
        std::fs::write(self.folder.path().join(format!("{name}.yaml")), text).expect("written");
        let key = format!("default/service/{name}").parse().expect("a key");
        let picture = self.running.controller.picture();
        until_true("a look", async || picture.object(&key).is_some()).await;
    }

    /// The pods of the source, with their nodes and UIDs, by name.
    fn pods(&self) -> Vec<(String, String, String)> {
        let filter = Filter { kind: "pod", ..Filter::default() };
        let pods = self.running.controller.picture().objects(&filter, 0).expect("readable");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pod = |(key, pod): (&ResourceKey, &Value)| {
            (key.name().to_owned(), text(&pod["spec"]["nodeName"]), text(&pod["metadata"]["uid"]))
        };
        pods.iter().map(pod).collect()
    }

    fn names(&self) -> Vec<String> {
        self.pods().into_iter().map(|(name, ..)| name).collect()
    }

    async fn until(&self, names: &[&str]) {
        until_true(&format!("{names:?}"), async || self.names() == names).await;
    }

    async fn report(&self, node: &str, body: ReportBody) {
        let seq = self.reports.fetch_add(1, Ordering::Relaxed) + 1;
        self.world.report(node, seq, body).await;
        self.running.folds(node).await;
    }

    async fn report_ready(&self, node: &str, name: &str, uid: &str) {
        let pod = format!("default/pod/{name}").parse().expect("a key");
        let status = ready().to_string().into();
        self.report(node, ReportBody::PodStatus { pod, uid: uid.to_owned(), status }).await;
    }

    async fn report_removed(&self, node: &str, name: &str, uid: &str) {
        let pod = format!("default/pod/{name}").parse().expect("a key");
        self.report(node, ReportBody::PodStatusRemoved { pod, uid: uid.to_owned() }).await;
    }

    /// Waits until there are `count` pods, and reports each as ready.
    async fn roll_out(&self, count: usize) -> Vec<(String, String, String)> {
        let mut reported = BTreeSet::new();
        while reported.len() < count {
            until_true("a pod", async || self.pods().len() > reported.len()).await;
            for (name, node, uid) in self.pods() {
                if reported.insert(name.clone()) {
                    self.report_ready(&node, &name, &uid).await;
                }
            }
        }
        self.pods()
    }
}

fn other(node: &str) -> &'static str {
    if node == "a" { "b" } else { "a" }
}

#[tokio::test]
async fn a_stateful_set_waits_for_the_node_of_the_pod_that_left_also_over_a_restart_and_for_no_other()
 {
    let set = |replicas| manifest("StatefulSet", replicas, "i");
    let workloads = Workloads::start(&set(3)).await;
    let pods = workloads.roll_out(3).await;
    let (name, node, uid) = &pods[2];
    // Neither a pod that never was, nor one that another node has.
    workloads.report_ready("b", "db-9", "u-9").await;
    workloads.report_ready(other(node), name, uid).await;
    workloads.write(&set(1));
    workloads.until(&["db-0", "db-1"]).await;
    workloads.look().await;
    assert_eq!(workloads.names(), ["db-0", "db-1"], "db-2 has not ended");
    let workloads = workloads.restart().await;
    workloads.look().await;
    assert_eq!(workloads.names(), ["db-0", "db-1"], "db-2 has not ended");
    workloads.report_removed(node, name, uid).await;
    workloads.until(&["db-0"]).await;
    workloads.running.controller.stop().await;
}

#[tokio::test]
async fn a_recreated_deployment_waits_for_the_nodes_of_its_pods_that_left_and_for_no_other() {
    let deployment = |image| manifest("Deployment", 1, image);
    let workloads = Workloads::start(&deployment("i:1")).await;
    let (name, node, uid) = workloads.roll_out(1).await.remove(0);
    workloads.report_ready(other(&node), &name, &uid).await;
    let made_up = format!("{}-bcdfg", name.rsplit_once('-').expect("a drawn name").0);
    workloads.report_ready(other(&node), &made_up, "u").await;
    workloads.write(&deployment("i:2"));
    workloads.until(&[]).await;
    workloads.look().await;
    assert_eq!(workloads.names(), [""; 0], "the old pod has not ended");
    let workloads = workloads.restart().await;
    workloads.look().await;
    assert_eq!(workloads.names(), [""; 0], "the old pod has not ended");
    workloads.report_removed(&node, &name, &uid).await;
    until_true("the new pod", async || workloads.pods().len() == 1).await;
    assert_ne!(workloads.names(), [name]);
    workloads.running.controller.stop().await;
}
