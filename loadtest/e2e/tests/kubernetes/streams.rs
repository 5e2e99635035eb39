//! kubectl and our own commands to the pods of an edge that neither can reach: through the hub's one port, over
//! a connection that the edge makes. Control plane, program and containers share one network.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings};
use headwater_daemon::OutputLines;
use headwater_e2e::running::{Running, WAIT, headwater};
use serde_json::{Value, json};

use crate::world::{
    USER, create, deployed, free_port, kubectl, kubectl_output, kubelet_table, node, output,
    stderr_of, without_controllers,
};

/// What goes through `exec -i` and comes back, and what `cp` copies there and back: many windows of a stream.
const BULK_BYTES: usize = 16 << 20;
const FILE_BYTES: usize = 1 << 20;

/// A process that ends with the test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// kubectl that runs on, and its output.
fn background(cluster: &ControlPlane, args: &[&str]) -> (Background, OutputLines) {
    let mut command = cluster.kubectl();
    command.args(args);
    started(command)
}

/// A command that runs on, and its output.
fn started(mut command: Command) -> (Background, OutputLines) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = OutputLines::of(child.stdout.take().expect("piped"));
    (Background(child), lines)
}

/// A command of ours to the pods behind a hub.
fn through(hub: &str, certificates: &Path, verb: &str, args: &[&str]) -> Command {
    let mut command = headwater();
    command.args([verb, "--hub", hub]).stdin(Stdio::null());
    for (flag, file) in [
        ("--tls-ca", "ca.crt"),
        ("--tls-cert", "kubelet-client.crt"),
        ("--tls-key", "kubelet-client.key"),
    ] {
        command.arg(flag).arg(certificates.join(file));
    }
    command.args(args);
    command
}

/// Bytes that repeat late.
fn bulk(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at / 7 + at / 255) % 256).expect("a byte")).collect()
}

#[test]
fn kubectl_reaches_the_pods_of_an_edge_through_the_port_of_its_hub() {
    if !Containerd::is_possible() {
        return;
    }
    let test = || {
        let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
        containerd.machine().enter_network().expect("the network is there");
        through_the_hub(containerd.socket());
    };
    if let Err(panic) = thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

fn through_the_hub(runtime: &Path) {
    let scratch = tempfile::tempdir().expect("a folder");
    let data = scratch.path().join("cluster");
    let settings =
        ControlPlaneSettings { data: Some(data.clone()), ..ControlPlaneSettings::default() };
    let (cluster, kubeconfig) = deployed(settings);
    without_controllers(&cluster);
    create(&cluster, &node("gw-1"));

    let (port, certificates) = (free_port(), data.join("certificates"));
    let config = scratch.path().join("up.toml");
    let text = format!(
        "{}[kubernetes]\nkubelet_address = \"127.0.0.1:{port}\"\n",
        kubelet_table(&certificates, port)
    );
    fs::write(&config, text).expect("written");
    let (config, kubeconfig) = (config.display().to_string(), kubeconfig.display().to_string());
    let runtime = runtime.display().to_string();
    let of_cluster = ["--config", &config, "--kubeconfig", &kubeconfig, "--nodes", "gw-1"];
    let of_runtime = ["--runtime", "cri", "--cri-endpoint", &runtime];
    let running = Running::start(&[&of_cluster[..], &of_runtime].concat());

    let status = || -> Value {
        let node = kubectl(&cluster, &["get", "node", "gw-1", "-o", "json"]);
        serde_json::from_str::<Value>(&node).expect("JSON")["status"].clone()
    };
    running.wait_for("the address of the hub in the Node", |_| {
        let status = status();
        let is_hubs =
            status["addresses"] == json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
        let port_of = &status["daemonEndpoints"]["kubeletEndpoint"]["Port"];
        (is_hubs && *port_of == json!(port)).then_some(())
    });
    running.wait_for("the account of pods", |_| {
        kubectl_output(&cluster, &["get", "serviceaccount", "default"])
            .status
            .success()
            .then_some(())
    });
    let script = "echo hello; (while :; do echo served | nc -l -p 8080; done) & \
                  trap 'exit 0' TERM; while :; do echo tick; sleep 1; done";
    create(
        &cluster,
        &json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {
                "nodeName": "gw-1",
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": BUSYBOX_IMAGE, "command": ["/bin/sh", "-c", script],
                }],
            },
        }),
    );
    running.wait_for("the pod to run", |_| {
        let phase = kubectl(&cluster, &["get", "pod", "web", "-o", "jsonpath={.status.phase}"]);
        (phase == "Running").then_some(())
    });
    verbs(&running, &cluster, scratch.path());
    let hub = format!("127.0.0.1:{port}");
    own_verbs(&running, &hub, &certificates);

    // What the node refuses reaches a person, and so does an unknown pod of the hub.
    let refused = kubectl_output(&cluster, &["exec", "web", "--", "no-such-program"]);
    assert!(stderr_of(&refused).contains("no-such-program"), "{}", stderr_of(&refused));

    // Offline: the answer names the last contact.
    assert!(running.ask(&["link", "cut", "gw-1"]).status.success());
    let words = running.wait_for("the end of the session", |_| {
        let output = kubectl_output(&cluster, &["exec", "web", "--", "true"]);
        (!output.status.success()).then(|| stderr_of(&output))
    });
    let args = ["web", "-c", "main", "--", "true"];
    let ours = output(&mut through(&hub, &certificates, "exec", &args));
    assert_eq!(ours.status.code(), Some(1));
    assert!(stderr_of(&ours).contains("heard it last at 20"), "{}", stderr_of(&ours));
    let log = kubectl_output(&cluster, &["logs", "web", "--tail=1"]);
    assert!(stderr_of(&log).contains("ServiceUnavailable"), "{}", stderr_of(&log));
    assert!(words.contains("node gw-1 is not connected to the cloud"), "{words}");
    assert!(words.contains("heard it last at 20"), "{words}");
    assert!(running.ask(&["link", "restore", "gw-1"]).status.success());
    running.wait_for("the log again", |_| {
        kubectl_output(&cluster, &["logs", "web", "--tail=1"]).status.success().then_some(())
    });
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0], "the roles refuse what the controller does");
}

fn verbs(running: &Running, cluster: &ControlPlane, dir: &Path) {
    // Logs. The first line may follow the start by a moment.
    let (_follow, lines) = background(cluster, &["logs", "-f", "web"]);
    for line in ["hello", "tick", "tick"] {
        assert_eq!(lines.next_within(WAIT).expect("a line"), line);
    }
    assert_eq!(kubectl(cluster, &["logs", "web", "--limit-bytes=5"]), "hello");

    // Exec: output, errors, exit code; what goes in comes out, and its end is known.
    let script = "echo a; echo b >&2; exit 4";
    let run = kubectl_output(cluster, &["exec", "web", "--", "sh", "-c", script]);
    assert_eq!((&*run.stdout, run.status.code()), (&b"a\n"[..], Some(4)));
    assert!(stderr_of(&run).starts_with("b\n"), "{}", stderr_of(&run));
    let (sent, file) = (bulk(BULK_BYTES), dir.join("bulk"));
    fs::write(&file, &sent).expect("written");
    let mut cat: Command = cluster.kubectl();
    cat.args(["exec", "-i", "web", "--", "cat"]).stdin(fs::File::open(&file).expect("a file"));
    let copied = output(&mut cat);
    assert!(copied.status.success(), "{}", stderr_of(&copied));
    assert!(copied.stdout == sent, "{} of {} bytes", copied.stdout.len(), sent.len());

    // Copy, which is exec of tar.
    let (there, back) = (dir.join("there"), dir.join("back"));
    fs::write(&there, &sent[..FILE_BYTES]).expect("written");
    kubectl(cluster, &["cp", &there.display().to_string(), "web:/tmp/file"]);
    kubectl(cluster, &["cp", "web:/tmp/file", &back.display().to_string()]);
    assert!(fs::read(&back).expect("copied") == sent[..FILE_BYTES]);

    // Attach: the output of the container's own process.
    let (_attach, lines) = background(cluster, &["attach", "web"]);
    assert_eq!(lines.next_within(WAIT).expect("a line"), "tick");

    // Port-forward.
    let forward = ["port-forward", "web", ":8080", "--address=127.0.0.1"];
    let (_forward, lines) = background(cluster, &forward);
    assert_eq!(running.served_through(&lines), "served\n");
}

fn own_verbs(running: &Running, hub: &str, certificates: &Path) {
    let asked = |verb, args: &[&str]| output(&mut through(hub, certificates, verb, args));
    let stdout = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let args = ["web", "-c", "main", "--", "sh", "-c", "echo a; echo b >&2; exit 4"];
    let run = asked("exec", &args);
    assert_eq!((stdout(&run).as_str(), run.status.code()), ("a\n", Some(4)));
    assert_eq!(stderr_of(&run), "b\n");
    let log = asked("logs", &["web", "-c", "main"]);
    assert!(stdout(&log).starts_with("hello\ntick\n"), "{log:?}");
    // The hub lists the pods of a node, so the container is known.
    let log = asked("logs", &["pod/web", "--node", "gw-1", "--tail", "1"]);
    assert_eq!(stdout(&log), "tick\n", "{log:?}");
    let command = through(hub, certificates, "port-forward", &["web", ":8080"]);
    let (_forward, lines) = started(command);
    assert_eq!(running.served_through(&lines), "served\n");
    for (verb, args, code, words) in [
        ("exec", &["web", "--", "true"][..], 2, "--node"),
        (
            "exec",
            &["absent", "-c", "main", "--", "true"],
            1,
            "does not exist on a node of this hub",
        ),
        ("logs", &["absent", "--node", "gw-1"], 1, "absent"),
        ("logs", &["deploy/web"], 2, "neither labels nor workloads"),
    ] {
        let refused = asked(verb, args);
        assert_eq!(refused.status.code(), Some(code), "{verb} {args:?}: {refused:?}");
        assert!(stderr_of(&refused).contains(words), "{verb} {args:?}: {}", stderr_of(&refused));
    }
}
