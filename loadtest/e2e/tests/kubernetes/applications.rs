//! The application cases of KubeEdge's own suite (`tests/e2e/apps`), written anew: workloads of a cluster as
//! containers of an edge.
//!
//! Its two cases of the annotation `edge.kubeedge.io/hold-upgrade` are missing: Headwater has no such hold.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::thread;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings};
use headwater_e2e::pressure::NO_DISK_PRESSURE;
use headwater_e2e::running::{Running, headwater};
use serde_json::{Value, json};

use crate::world::{
    USER, create, deployed, kubectl, kubectl_output, node, output, stderr_of, without_controllers,
};

const NODE: &str = "gw-1";

/// The port of the program in each container.
const PORT: u16 = 8080;

/// How often one pod is created and deleted, and one pod of a StatefulSet deleted, as in KubeEdge's cases.
const PODS_IN_A_ROW: usize = 10;
const DELETES_IN_A_ROW: usize = 5;

/// A cluster with one edge that runs containers.
struct World {
    cluster: ControlPlane,
    running: Running,
}

#[test]
fn workloads_of_a_cluster_run_as_containers_of_an_edge() {
    if !Containerd::is_possible() {
        return;
    }
    let test = || {
        let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
        // The edge probes its pods at their addresses, which are in this network.
        containerd.machine().enter_network().expect("the network is there");
        let (world, _config) = World::start(&containerd);
        world.deployment("one", 1);
        world.deployment("three", 3);
        world.deployment_makes_deleted_pods_anew();
        world.pods_come_and_go();
        world.pod_of_a_host_path();
        world.stateful_set_makes_its_last_pod_anew();
        world.nothing_is_left(&containerd);
    };
    if let Err(panic) = thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

impl World {
    /// Returns also the folder of its settings.
    fn start(containerd: &Containerd) -> (Self, tempfile::TempDir) {
        let (cluster, kubeconfig) = deployed(ControlPlaneSettings::default());
        without_controllers(&cluster);
        create(&cluster, &node(NODE));
        let scratch = tempfile::tempdir().expect("a folder");
        let config = scratch.path().join("up.toml");
        fs::write(&config, NO_DISK_PRESSURE).expect("written");
        let (config, kubeconfig) = (config.display().to_string(), kubeconfig.display().to_string());
        let socket = containerd.socket().display().to_string();
        let of_cluster = ["--config", &config, "--kubeconfig", &kubeconfig, "--nodes", NODE];
        let of_runtime = ["--runtime", "cri", "--cri-endpoint", &socket];
        let running = Running::start(&[&of_cluster[..], &of_runtime].concat());
        (Self { cluster, running }, scratch)
    }

    /// `E2E_APP_DEPLOYMENT_1` and `_2`.
    fn deployment(&self, name: &str, replicas: usize) {
        create(&self.cluster, &workload("Deployment", name, replicas));
        self.wait_until_running(name, replicas);
        self.delete("deployment", name);
    }

    /// `E2E_APP_DEPLOYMENT_3`.
    fn deployment_makes_deleted_pods_anew(&self) {
        let (name, replicas) = ("again", 3);
        create(&self.cluster, &workload("Deployment", name, replicas));
        let former = self.wait_until_running(name, replicas);
        let mut delete = vec!["delete", "pod", "--wait=false"];
        delete.extend(former.iter().map(String::as_str));
        kubectl(&self.cluster, &delete);
        self.running.wait_for("other pods than those that were deleted", |_| {
            let present = self.running_pods(name);
            (present.len() == replicas && present.is_disjoint(&former)).then_some(())
        });
        self.delete("deployment", name);
    }

    /// `E2E_POD_DEPLOYMENT_1` to `_4`: a pod runs and goes, ten times; one that has gone is not found.
    fn pods_come_and_go(&self) {
        for number in 0..PODS_IN_A_ROW {
            let name = format!("pod-{number}");
            create(&self.cluster, &pod(&name, &name, &json!([]), &json!([])));
            self.wait_until_running(&name, 1);
            kubectl(&self.cluster, &["delete", "pod", &name, "--wait=false"]);
            self.wait_until_gone(&name);
            let again = kubectl_output(&self.cluster, &["delete", "pod", &name]);
            let message = stderr_of(&again);
            assert!(!again.status.success() && message.contains("NotFound"), "{message}");
        }
    }

    /// `E2E_POD_DEPLOYMENT_5`: the container sees a file of the host.
    fn pod_of_a_host_path(&self) {
        let name = "host-path";
        let host = self.running.folder().join("shown");
        fs::create_dir(&host).expect("a folder");
        fs::write(host.join("file"), "of the host\n").expect("written");
        let volumes = json!([{"name": "hp", "hostPath": {"path": host}}]);
        let mounts = json!([{"name": "hp", "mountPath": "/hp"}]);
        create(&self.cluster, &pod(name, name, &volumes, &mounts));
        self.wait_until_running(name, 1);
        let mut exec = headwater();
        exec.arg("exec").arg("--data").arg(self.running.data());
        let read = output(exec.args([name, "--", "cat", "/hp/file"]).stdin(Stdio::null()));
        assert_eq!(String::from_utf8_lossy(&read.stdout), "of the host\n", "{}", stderr_of(&read));
        kubectl(&self.cluster, &["delete", "pod", name, "--wait=false"]);
        self.wait_until_gone(name);
    }

    /// `Basic StatefulSet test` and `Delete statefulSet pod multi times`.
    fn stateful_set_makes_its_last_pod_anew(&self) {
        let (name, replicas) = ("set", 2);
        create(&self.cluster, &workload("StatefulSet", name, replicas));
        self.wait_until_running(name, replicas);
        let last = format!("{name}-{}", replicas - 1);
        let uid = |pods: &[Value]| -> Option<String> {
            let pod = pods.iter().find(|pod| pod["metadata"]["name"] == *last)?;
            is_running(pod).then(|| pod["metadata"]["uid"].as_str().expect("a UID").to_owned())
        };
        for _ in 0..DELETES_IN_A_ROW {
            let former = uid(&self.pods(name)).expect("it runs");
            kubectl(&self.cluster, &["delete", "pod", &last, "--wait=false"]);
            self.running.wait_for("the pod of the next UID", |_| {
                uid(&self.pods(name)).filter(|present| *present != former)
            });
        }
        self.delete("statefulset", name);
    }

    /// The runtime has no container and no sandbox any more, and the controller was refused nothing.
    fn nothing_is_left(&self, containerd: &Containerd) {
        self.running.wait_for("no container and no sandbox", |_| {
            let listed = containerd.ctr().args(["containers", "list", "--quiet"]).output().ok()?;
            (listed.status.success() && listed.stdout.is_empty()).then_some(())
        });
        let log = self.cluster.audit_log().expect("an audit log");
        // The server's rules for nodes know a new pod a moment later: its token is requested again.
        let is_lasting = |request: &String| !request.contains("/token");
        let refused: Vec<String> = log.refused(USER).into_iter().filter(is_lasting).collect();
        assert_eq!(refused, [""; 0], "the roles refuse what the controller does");
    }

    /// The pods of an application.
    fn pods(&self, app: &str) -> Vec<Value> {
        let selector = format!("app={app}");
        let list = kubectl(&self.cluster, &["get", "pods", "-l", &selector, "-o", "json"]);
        let list: Value = serde_json::from_str(&list).expect("JSON");
        list["items"].as_array().expect("items").clone()
    }

    /// The names of its pods that run, unless they are deleted.
    fn running_pods(&self, app: &str) -> BTreeSet<String> {
        let pods = self.pods(app);
        let running = pods.iter().filter(|pod| is_running(pod));
        running.map(|pod| pod["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Waits until so many pods run on the edge, each at an address of its own; returns their names.
    fn wait_until_running(&self, app: &str, replicas: usize) -> BTreeSet<String> {
        let names = self.running.wait_for(app, |_| {
            let names = self.running_pods(app);
            (names.len() == replicas).then_some(names)
        });
        let pods = self.pods(app);
        assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == NODE), "{pods:#?}");
        let addresses: BTreeSet<_> =
            pods.iter().map(|pod| pod["status"]["podIP"].to_string()).collect();
        assert_eq!(addresses.len(), replicas, "{pods:#?}");
        names
    }

    fn delete(&self, kind: &str, name: &str) {
        kubectl(&self.cluster, &["delete", kind, name, "--wait=false"]);
        self.wait_until_gone(name);
    }

    fn wait_until_gone(&self, app: &str) {
        self.running.wait_for("no pods", |_| self.pods(app).is_empty().then_some(()));
    }
}

fn is_running(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    pod["status"]["phase"] == "Running"
        && pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.is_some_and(|conditions| conditions.iter().any(is_ready))
}

/// A Deployment or a StatefulSet.
fn workload(kind: &str, name: &str, replicas: usize) -> Value {
    let mut template = pod("", name, &json!([]), &json!([]));
    template["metadata"].as_object_mut().expect("metadata").remove("name");
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": template["metadata"], "spec": template["spec"]},
    });
    if kind == "StatefulSet" {
        spec["serviceName"] = name.into();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A pod of an application, which the scheduler places on an edge, with a probe of its port.
fn pod(name: &str, app: &str, volumes: &Value, mounts: &Value) -> Value {
    let serve = format!("trap 'exit 0' TERM; httpd -f -p {PORT} & wait");
    let probe = json!({"tcpSocket": {"port": PORT}, "periodSeconds": 1, "timeoutSeconds": 10});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "nodeSelector": {"node-role.kubernetes.io/edge": ""},
            "terminationGracePeriodSeconds": 2,
            "volumes": volumes,
            "containers": [{
                "name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", serve],
                "ports": [{"containerPort": PORT}], "volumeMounts": mounts,
                "livenessProbe": probe, "readinessProbe": probe,
            }],
        },
    })
}
