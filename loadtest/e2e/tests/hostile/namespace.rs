//! A namespace with the name that keys have in place of one.

use serde_json::{Value, json};

use crate::bench::{Bench, one};

#[test]
fn a_pod_of_the_namespace_null_waits_for_a_secret_that_only_the_default_namespace_has() {
    let bench = Bench::new();
    bench.write("default-secret", &secret("default", "of default"));
    let env = json!([{
        "name": "WORD", "valueFrom": {"secretKeyRef": {"name": "token", "key": "word"}},
    }]);
    let command = json!(["sh", "-c", "echo the word is $WORD; sleep 100000"]);
    bench.write(
        "pod",
        &json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "reader", "namespace": "null"},
            "spec": {
                "nodeName": "node-1",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "command": command, "env": env}],
            },
        }),
    );
    let container = |at: &str| {
        let pod = one(&bench.running, &["get", "pod", "reader", "-n", "null"])?;
        pod.pointer(&format!("/status/containerStatuses/0/state/{at}")).cloned()
    };
    let message = bench.running.wait_for("the pod waits", |_| container("waiting/message"));
    assert!(message.as_str().is_some_and(|message| message.contains("token")), "{message}");
    let names = |args: &[&str]| bench.running.text(args).unwrap_or_default();
    let of_node = ["get", "secret", "-A", "--node", "node-1", "-o", "name"];
    assert_eq!(names(&of_node), "", "no secret is at the node");
    assert!(!names(&["get", "pod", "-n", "default", "-o", "name"]).contains("reader"));

    bench.write("null-secret", &secret("null", "of null"));
    bench.running.wait_for("the pod runs", |_| container("running"));
    bench.running.wait_for("its word", |running| {
        let log = running.text(&["logs", "reader", "-n", "null"])?;
        (log == "the word is of null\n").then_some(())
    });
    assert_eq!(names(&of_node), "secret/token\n", "that of its own namespace");
    bench.goes_on("a namespace `null`");
}

fn secret(namespace: &str, word: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "token", "namespace": namespace}, "stringData": {"word": word},
    })
}
