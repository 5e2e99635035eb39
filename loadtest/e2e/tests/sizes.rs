//! Objects of the largest size, one byte less and one byte more, through every hop.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use headwater_e2e::running::{Running, WAIT};
use serde_json::{Value, json};

/// What Kubernetes itself stores of one object, and what is replicated: canonical JSON.
const OBJECT_BYTES_MAX: usize = 3 * 512 * 1024;

#[test]
fn an_object_of_the_largest_size_goes_through_every_hop_and_a_larger_one_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifests = folder.path().join("manifests");
    fs::create_dir_all(&manifests).expect("a folder");
    let names =
        ["socket-less", "socket-exact", "socket-more", "file-less", "file-exact", "file-more"];
    fs::write(manifests.join("pod.json"), pod(&names).to_string()).expect("written");
    let probe = config_map("file-probe", "", "");
    fs::write(manifests.join("file-probe.json"), probe.to_string()).expect("written");
    let socket = folder.path().join("objects.sock");
    let text = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let running = Running::start(&[
        &text(&manifests),
        "--objects",
        &text(&socket),
        "--nodes",
        "1",
        "--runtime",
        "hollow",
    ]);
    running.wait_until_in_step();

    // The fields that a file's object has besides the file's content: UID, time, file name.
    let published = running.wait_for("the probe", |running| {
        running.json(&["get", "configmap", "file-probe", "-o", "json"])
    });
    let names_its_file = length(&published);
    let name = "file-probe".len();
    for (kind, bytes) in sizes() {
        let socket_name = format!("socket-{kind}");
        let empty = config_map(&socket_name, "", &format!("uid-{kind}"));
        let object =
            config_map(&socket_name, &"x".repeat(bytes - length(&empty)), &format!("uid-{kind}"));
        let answer = send(&socket, &json!({"object": object}));
        assert_eq!(answer.contains("\"accepted\":1"), kind != "more", "{kind}: {answer}");
        if kind == "more" {
            assert!(answer.contains("default/configmap/socket-more"), "{answer}");
            assert!(answer.contains(&OBJECT_BYTES_MAX.to_string()), "{answer}");
        }
        // It has the name twice: its own and that of its file.
        let file = format!("file-{kind}");
        let overhead = names_its_file + 2 * file.len() - 2 * name;
        let object = config_map(&file, &"x".repeat(bytes - overhead), "");
        fs::write(manifests.join(format!("{file}.json")), object.to_string()).expect("written");
    }

    for name in ["socket-less", "socket-exact", "file-less", "file-exact"] {
        let bytes = if name.ends_with("less") { OBJECT_BYTES_MAX - 1 } else { OBJECT_BYTES_MAX };
        for place in [&[][..], &["--node", "node-1"]] {
            let args = [&["get", "configmap", name, "-o", "json"], place].concat();
            let object =
                running.wait_for(&format!("{name} by {args:?}"), |running| running.json(&args));
            assert_eq!(length(&object), bytes, "{name} by {args:?}");
        }
    }
    running.wait_for("the larger file, by name", |running| {
        let output = running.output();
        let line = output.lines().find(|line| line.contains("file-more.json"))?;
        (line.contains("1572865 bytes") && line.contains("1572864")).then_some(())
    });
    for name in ["socket-more", "file-more"] {
        assert!(running.text(&["get", "configmap", name]).is_none(), "{name}");
    }
    // All of the largest at once, and a small one behind them.
    fs::write(manifests.join("probe-2.json"), config_map("socket-last", "y", "").to_string())
        .expect("written");
    running.wait_until_in_step();
    let history = running.history("node/node-1");
    let sizes: Vec<usize> = history.iter().map(|event| length(&event["object"])).collect();
    assert!(sizes.contains(&OBJECT_BYTES_MAX), "{sizes:?}");
    let verified = running.ask(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

fn sizes() -> [(&'static str, usize); 3] {
    [("less", OBJECT_BYTES_MAX - 1), ("exact", OBJECT_BYTES_MAX), ("more", OBJECT_BYTES_MAX + 1)]
}

fn length(object: &Value) -> usize {
    object.to_string().len()
}

fn config_map(name: &str, filler: &str, uid: &str) -> Value {
    let mut metadata = json!({"name": name, "namespace": "default"});
    if !uid.is_empty() {
        metadata["uid"] = json!(uid);
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": filler}})
}

/// A pod that may use each of them, so that its node needs each.
fn pod(names: &[&str]) -> Value {
    let names = names.iter().chain(&["file-probe", "socket-last"]);
    let env: Vec<Value> =
        names.map(|name| json!({"configMapRef": {"name": name, "optional": true}})).collect();
    let container = json!({"name": "c", "image": "none", "envFrom": env});
    let spec = json!({"nodeName": "node-1", "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": spec})
}

/// Says a line, and gives the answer.
fn send(socket: &std::path::Path, line: &Value) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(WAIT)).expect("it can be");
    let _ = stream.write_all(format!("{line}\n").as_bytes());
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}
