//! Pods that ask for what no pod should get. Each waits or fails with a reason; the pod worker
//! and the pods beside them go on, and nothing outside is touched.

use std::fs;

use serde_json::{Value, json};

use crate::bench::{Bench, one};

#[test]
fn a_pod_that_requests_too_much_is_rejected_by_name_and_the_others_run() {
    let bench = Bench::new();
    let precious = bench.manifests.with_file_name("precious");
    fs::create_dir_all(&precious).expect("a folder");
    fs::write(precious.join("file"), "precious").expect("written");
    let host = precious.display().to_string();
    let doubling: Vec<Value> = (0..64)
        .map(|n| json!({"name": format!("V{n}"), "value": format!("$(V{})xx", n - 1).repeat(2)}))
        .collect();
    let with = |mounts: Value| {
        json!({
            "volumes": [
                {"name": "host", "hostPath": {"path": host}},
                {"name": "words", "configMap": {"name": "words"}},
            ],
            "containers": [{"name": "c", "command": ["sleep", "1000"], "volumeMounts": mounts}],
        })
    };
    let command = |words: Value| json!({"containers": [{"name": "c", "command": words}]});
    let cases = [
        (
            "doubles",
            json!({"containers": [{"name": "c", "command": ["sleep", "9"], "env": doubling}]}),
        ),
        ("zero", command(json!(["sleep", "1\u{0}0"]))),
        ("empty-word", command(json!([""]))),
        ("long-word", command(json!(["echo", "x".repeat(200_000)]))),
        ("climbs", with(json!([{"name": "words", "mountPath": "/a/../../../../etc"}]))),
        ("sub-climbs", with(json!([{"name": "words", "mountPath": "/a", "subPath": "../../x"}]))),
        ("no-volume", with(json!([{"name": "../../../../..", "mountPath": "/a"}]))),
        ("absolute", with(json!([{"name": "/etc", "mountPath": "/a"}]))),
        (
            "replaces",
            with(json!([
                {"name": "host", "mountPath": "/h"}, {"name": "words", "mountPath": "/h/file"},
            ])),
        ),
        (
            "bad-env",
            json!({"containers": [{
                "name": "c", "command": ["sleep", "9"], "env": [{"name": "A=B", "value": "x"}],
            }]}),
        ),
        (
            "bad-field",
            json!({"containers": [{
                "name": "c", "command": ["sleep", "9"],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['"}}}],
            }]}),
        ),
        (
            "bad-quantity",
            json!({"containers": [{
                "name": "c", "command": ["sleep", "9"], "resources": {"limits": {"cpu": "many"}},
                "env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            }]}),
        ),
    ];
    for (name, spec) in &cases {
        write(&bench, name, spec);
    }
    // These run: what they ask for is bounded, not refused.
    let probe = json!({
        "exec": {"command": ["false"]}, "periodSeconds": i32::MAX, "initialDelaySeconds": -5,
        "timeoutSeconds": i32::MIN, "failureThreshold": 0, "terminationGracePeriodSeconds": i64::MAX,
    });
    write(
        &bench,
        "patient",
        &json!({
            "terminationGracePeriodSeconds": i64::MAX,
            "containers": [{"name": "c", "command": ["sleep", "1000"], "livenessProbe": probe}],
        }),
    );
    for (name, _) in &cases {
        bench.running.wait_for(&format!("pod {name} has a reason"), |running| {
            let pod = one(running, &["get", "pod", name])?;
            let status = &pod["status"]["containerStatuses"][0];
            let reason =
                |path: &str| status.pointer(path).and_then(Value::as_str).map(str::to_owned);
            reason("/state/waiting/message")
                .or_else(|| reason("/state/waiting/reason"))
                .or_else(|| reason("/state/terminated/message"))
                .or_else(|| reason("/lastState/terminated/message"))
                .filter(|text| !text.is_empty() && text != "ContainerCreating")
        });
    }
    bench.running.wait_for("pod patient runs", |running| {
        let pod = one(running, &["get", "pod", "patient"])?;
        (pod["status"]["phase"] == "Running").then_some(())
    });
    // One that may take for ever to end is ended all the same.
    write(
        &bench,
        "patient",
        &json!({
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "command": ["sleep", "1001"]}],
        }),
    );
    bench.goes_on("pods that ask for too much");
    assert_eq!(fs::read_to_string(precious.join("file")).expect("it is there"), "precious");
}

fn write(bench: &Bench, name: &str, spec: &Value) {
    let mut spec = spec.clone();
    spec["nodeName"] = json!("node-1");
    let metadata = json!({"name": name});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    fs::write(bench.manifests.join(format!("{name}.json")), pod.to_string()).expect("written");
}
