//! kubectl, through a real API server that proves itself by certificate and speaks SPDY to the node.

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_cri_lab::Containerd;
use headwater_daemon::{OutputLines, output_within};
use headwater_identity::{Acceptor, TlsFiles, system_clock};
use headwater_kubelet::Door;
use headwater_kubelet::access::Access;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::bench::{DEADLINE, pod, with_bench};

/// What goes through `exec -i` and comes back, and what `cp` copies there and back.
const BULK_BYTES: usize = 100 << 20;
const FILE_BYTES: usize = 1 << 20;

/// How long the bulk may take there and back, encrypted in a debug build on two busy cores.
const BULK_WITHIN: Duration = Duration::from_secs(300);

/// The time limit of the start of a containerd, of a pod worker and of a pod.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// kubectl that runs on, and its output.
fn background(cluster: &ControlPlane, args: &[&str]) -> (Running, OutputLines) {
    let mut command = kubectl(cluster);
    let mut child = command.args(args).stdout(Stdio::piped()).spawn().expect("kubectl starts");
    let lines = OutputLines::of(child.stdout.take().expect("piped"));
    (Running(child), lines)
}

fn kubectl(cluster: &ControlPlane) -> Command {
    let mut kubectl = cluster.kubectl();
    kubectl.args(["--namespace", "shop"]);
    kubectl
}

/// Runs kubectl to its end.
fn output(command: &mut Command) -> Output {
    output_within(command, DEADLINE).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(cluster: &ControlPlane, args: &[&str]) -> String {
    let output = output(kubectl(cluster).args(args));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "kubectl {args:?}: {words}");
    text(&output)
}

/// Creates an object, and returns it as the API server has it.
fn create(cluster: &ControlPlane, dir: &Path, object: &Value) -> Value {
    let file = dir.join("object.json");
    fs::write(&file, object.to_string()).expect("written");
    let file = file.display().to_string();
    serde_json::from_str(&run(cluster, &["create", "-f", &file, "-o", "json"])).expect("JSON")
}

/// Bytes that repeat late.
fn bulk(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((at / 7 + at / 255) % 256).expect("a byte")).collect()
}

#[test]
fn kubectl_reaches_pods_through_an_api_server() {
    if !Containerd::is_possible() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let data = scratch.path().join("cluster");
    let settings = ControlPlaneSettings {
        parts: Vec::new(),
        data: Some(data.clone()),
        ..ControlPlaneSettings::default()
    };
    let cluster = ControlPlane::start(settings).expect("a control plane");
    run(&cluster, &["create", "namespace", "shop"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    create(
        &cluster,
        scratch.path(),
        &json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "gw-1"},
        }),
    );
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let patch = status.to_string();
    run(&cluster, &["patch", "node", "gw-1", "--subresource=status", "--type=merge", "-p", &patch]);
    let script = "echo hello; (while :; do echo served | nc -l -p 8080; done) & \
                  trap 'exit 0' TERM; while :; do echo tick; sleep 1; done";
    let mut web = pod("web", script);
    web["metadata"] = json!({"name": "web", "namespace": "shop"});
    let web = create(&cluster, scratch.path(), &web);

    let certificates = data.join("certificates");
    let (ready, is_ready) = mpsc::sync_channel(1);
    let (done, is_done) = oneshot::channel::<()>();
    thread::scope(|scope| {
        let node = scope.spawn(|| {
            let doors = move || {
                let file = |name: &str| certificates.join(name);
                let files = TlsFiles {
                    ca: file("ca.crt"),
                    certificate: file("server.crt"),
                    key: file("server.key"),
                };
                listener.set_nonblocking(true).expect("it can be");
                vec![Door::Tls {
                    listener: tokio::net::TcpListener::from_std(listener).expect("a listener"),
                    acceptor: Acceptor::open_http1(files, system_clock()).expect("certificates"),
                    access: Access::default(),
                }]
            };
            with_bench(doors, move |bench| async move {
                bench.run(&[web]).await;
                ready.send(()).expect("the test waits");
                // An end of the test is an end, too.
                let _ = is_done.await;
            });
        });
        is_ready.recv_timeout(READY_WITHIN).expect("the pod runs");
        let runs = json!({"status": {"phase": "Running"}}).to_string();
        run(
            &cluster,
            &["patch", "pod", "web", "--subresource=status", "--type=merge", "-p", &runs],
        );
        verbs(&cluster, scratch.path());
        drop(done);
        node.join().expect("the node runs to its end");
    });
}

fn verbs(cluster: &ControlPlane, dir: &Path) {
    // Logs. The first line may follow the start by a moment.
    let (_follow, lines) = background(cluster, &["logs", "-f", "web"]);
    for line in ["hello", "tick", "tick"] {
        assert_eq!(lines.next_within(DEADLINE).expect("a line"), line);
    }
    assert_eq!(run(cluster, &["logs", "web", "--limit-bytes=5"]), "hello");
    assert!(run(cluster, &["logs", "web", "--tail=1", "--timestamps"]).contains("Z tick"));

    // Exec: output, errors, exit code; what goes in comes out, and its end is known.
    let mut exec = kubectl(cluster);
    exec.args(["exec", "web", "--", "sh", "-c", "echo a; echo b >&2; exit 4"]);
    let done = output(&mut exec);
    assert_eq!((text(&done).as_str(), done.status.code()), ("a\n", Some(4)));
    assert!(String::from_utf8_lossy(&done.stderr).starts_with("b\n"));
    let (sent, file) = (bulk(BULK_BYTES), dir.join("bulk"));
    fs::write(&file, &sent).expect("written");
    let mut cat = kubectl(cluster);
    cat.args(["exec", "-i", "web", "--", "cat"]).stdin(fs::File::open(&file).expect("a file"));
    let copied = output_within(&mut cat, BULK_WITHIN).expect("it ends in time");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert!(copied.stdout == sent, "{} of {} bytes", copied.stdout.len(), sent.len());

    // Copy, which is exec of tar.
    let (there, back) = (dir.join("there"), dir.join("back"));
    fs::write(&there, &sent[..FILE_BYTES]).expect("written");
    run(cluster, &["cp", &there.display().to_string(), "web:/tmp/file"]);
    run(cluster, &["cp", "web:/tmp/file", &back.display().to_string()]);
    assert!(fs::read(&back).expect("copied") == sent[..FILE_BYTES]);

    // Attach: the output of the container's own process.
    let (_attach, lines) = background(cluster, &["attach", "web"]);
    assert_eq!(lines.next_within(DEADLINE).expect("a line"), "tick");

    // Port-forward.
    let forward = ["port-forward", "web", ":8080", "--address=127.0.0.1"];
    let (_forward, lines) = background(cluster, &forward);
    let line = lines.next_within(DEADLINE).expect("a line");
    let address = line.split_whitespace().nth(2).expect("an address").to_owned();
    let mut served = String::new();
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("it can be");
    stream.read_to_string(&mut served).expect("text");
    assert_eq!(served, "served\n");

    // What a node refuses reaches a person.
    let refused = output(kubectl(cluster).args(["logs", "web", "-c", "none"]));
    assert!(!refused.status.success());
    let refused = output(kubectl(cluster).args(["exec", "web", "--", "no-such-program"]));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no-such-program"));
}
