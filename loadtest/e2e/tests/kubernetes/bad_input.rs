//! Kubeconfigs, servers and settings that cannot be used: each is named with what to do.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::thread;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_daemon::end_within;
use headwater_e2e::running::{Running, WAIT, headwater, output};
use tempfile::TempDir;

use crate::world::stderr_of;

/// The exit status of wrong usage, and of any other failure.
const USAGE: i32 = 2;
const FAILURE: i32 = 1;

/// A kubeconfig for `server`, with fields of its cluster and its user.
fn kubeconfig(folder: &Path, name: &str, server: &str, cluster: &str, user: &str) -> PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         contexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\"{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    );
    let file = folder.join(name);
    fs::write(&file, text).expect("written");
    file
}

/// Runs `up` on a data directory of its own.
fn up(folder: &TempDir, args: &[&str]) -> Output {
    let mut command = headwater();
    command.arg("up").args(args).arg("--data").arg(folder.path().join("data"));
    output(&mut command)
}

/// Checks the end of a command: its status, and what it names.
fn check(output: &Output, status: i32, named: &[&str]) {
    let stderr = stderr_of(output);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    for part in named {
        assert!(stderr.contains(part), "no {part:?}: {stderr}");
    }
}

#[test]
fn what_needs_no_server_is_refused_before_anything_starts() {
    let folder = TempDir::new().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let right = kubeconfig(folder.path(), "right", "https://127.0.0.1:1", "", "token: t");
    let right = right.display().to_string();
    fs::write(folder.path().join("malformed"), "clusters: 7").expect("written");
    let (absent, malformed) = (file("absent"), file("malformed"));
    let text = fs::read_to_string(&right).expect("read");
    for (name, whole, part) in
        [("userless", "user: u}", "user: v}"), ("lost", "cluster: c,", "cluster: d,")]
    {
        fs::write(folder.path().join(name), text.replace(whole, part)).expect("written");
    }
    let (userless, lost) = (file("userless"), file("lost"));
    for (args, named) in [
        (vec!["--kubeconfig", &absent], vec!["absent cannot be read", "name a file"]),
        (vec!["--kubeconfig", &malformed], vec!["malformed cannot be used; correct it"]),
        (
            vec!["--kubeconfig", &right, "--context", "there"],
            vec!["right has no context \"there\"; it has here"],
        ),
        (
            vec!["--kubeconfig", &userless],
            vec!["userless names the user \"v\", and the file has u; correct the context"],
        ),
        (
            vec!["--kubeconfig", &lost],
            vec!["lost names the cluster \"d\", and the file has c; correct the context"],
        ),
        (vec!["--context", "there"], vec!["--kubeconfig"]),
        (vec!["--kubeconfig", &right, "--in-cluster"], vec!["--in-cluster"]),
        (vec![&*right, "--kubeconfig", &right], vec!["--kubeconfig", "cannot be used with"]),
        (vec!["--in-cluster"], vec!["--kubeconfig FILE"]),
    ] {
        check(&up(&folder, &args), USAGE, &named);
        assert!(!folder.path().join("data").exists(), "{args:?} starts");
    }
    let mut command = headwater();
    command.args(["up", "--kubeconfig", &right]);
    let selected = output(command.env("HEADWATER_KUBERNETES_NODE_SELECTOR", "zone near (a)"));
    let named = ["HEADWATER_KUBERNETES_NODE_SELECTOR", "zone near (a)", "KEY in (A,B)"];
    check(&selected, USAGE, &named);
    let controller = |more: &[&str]| {
        let args = ["controller", "--check", "--kafka", "127.0.0.1:1", "--kubeconfig", &right];
        output(headwater().args(args).args(more))
    };
    let tls = ["--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"];
    let anywhere = [&["--listen", "0.0.0.0:7301"][..], &tls].concat();
    check(&controller(&anywhere), USAGE, &["hubs cannot connect to 0.0.0.0:7301", "--advertise"]);
    let nowhere = [&anywhere[..], &["--advertise", "controller"]].concat();
    check(&controller(&nowhere), USAGE, &["--advertise", "\"controller\"", "HOST:PORT"]);
}

#[test]
fn an_exec_plugin_that_does_not_end_ends_the_start() {
    let folder = TempDir::new().expect("a folder");
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sleep, args: [\"60\"], \
                interactiveMode: Never}";
    let slow = kubeconfig(folder.path(), "slow", "https://127.0.0.1:1", "", exec);
    let slow = slow.display().to_string();
    let mut doctor = headwater();
    doctor.args(["doctor", "--kubeconfig", &slow]).stdout(Stdio::piped());
    let doctor = doctor.spawn().expect("headwater starts");
    let named = ["the plugin \"sleep\"", &slow, "no credentials within 30s", "run it by hand"];
    check(&up(&folder, &["--kubeconfig", &slow]), FAILURE, &named);
    let doctor = end_within(doctor, WAIT).expect("headwater ends");
    let printed = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(printed.contains("no credentials within 30s"), "{printed}");
}

#[test]
fn credentials_that_a_server_refuses_end_the_start() {
    let folder = TempDir::new().expect("a folder");
    let only_api = ControlPlaneSettings { parts: Vec::new(), ..ControlPlaneSettings::default() };
    let cluster = ControlPlane::start(only_api).expect("a control plane");
    let server = cluster.server();
    let with = |name: &str, cluster: &str, user: &str| {
        kubeconfig(folder.path(), name, server, cluster, user).display().to_string()
    };
    let expired = with("expired", ", insecure-skip-tls-verify: true", "token: was-valid");
    check(&up(&folder, &["--kubeconfig", &expired]), FAILURE, &[server, "(401)", "renew them"]);
    let made = output(headwater().args(["ca", "init"]).arg(folder.path().join("other")));
    check(&made, 0, &[]);
    let other = folder.path().join("other/ca.crt").display().to_string();
    let foreign = with("foreign", &format!(", certificate-authority: {other}"), "token: t");
    let named = [server, "not by the CA of the kubeconfig", "correct certificate-authority"];
    check(&up(&folder, &["--kubeconfig", &foreign]), FAILURE, &named);
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: \"false\", \
                interactiveMode: Never}";
    let plugin = with("plugin", "", exec);
    check(
        &up(&folder, &["--kubeconfig", &plugin]),
        FAILURE,
        &[server, "check the user of", "plugin"],
    );
}

/// Answers the question for the version with 1.32, for ever.
fn old_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(stream))));
    format!("http://{address}")
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let _request = stream.read(&mut [0; 4096])?;
    let body = r#"{"major":"1","minor":"32","gitVersion":"v1.32.7"}"#;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_server_that_is_too_old_ends_the_start() {
    let folder = TempDir::new().expect("a folder");
    let server = old_server();
    let old = kubeconfig(folder.path(), "old", &server, "", "token: t").display().to_string();
    let named = [&server, "version v1.32.7", "needs Kubernetes 1.33 or later", "upgrade"];
    check(&up(&folder, &["--kubeconfig", &old]), FAILURE, &named);
    let doctor = output(headwater().args(["doctor", "--kubeconfig", &old]));
    let printed = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(printed.contains("upgrade the cluster: Headwater needs 1.33"), "{printed}");
}

#[test]
fn a_server_that_is_away_is_waited_for_and_named() {
    let folder = TempDir::new().expect("a folder");
    // Port 1 of this machine has no listener.
    let server = "https://127.0.0.1:1";
    let away = kubeconfig(folder.path(), "away", server, "", "token: t").display().to_string();
    let running = Running::start(&["--kubeconfig", &away, "--nodes", "gw-1"]);
    running.wait_for("the server in status", |running| {
        running.text(&["status"]).filter(|status| status.contains(server))
    });
    let answer = running.http_get("/readyz").expect("an answer");
    assert!(answer.contains(" 500 ") && answer.contains(server), "{answer}");
}
