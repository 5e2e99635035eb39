//! The environment and volumes of containers.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, content, is_ready, is_running, script_pod, until};

fn config_map(name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop"}, "data": data,
    })
}

fn secret(name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "shop"}, "data": data,
    })
}

#[tokio::test]
async fn a_container_has_exactly_the_environment_that_its_pod_gives() {
    let bench = Bench::new(&[
        config_map("settings", json!({"COLOR": "blue", "SIZE": "7"})),
        // "hush"
        secret("token", json!({"key": "aHVzaA=="})),
    ]);
    let out = bench.path("env");
    let script =
        format!("env > {0}.part; echo \"args=$0 $1\" >> {0}.part; mv {0}.part {0}", out.display());
    let mut pod = script_pod("web", "u1", &script);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["metadata"]["annotations"] = json!({"note": "n1"});
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let container = &mut pod["spec"]["containers"][0];
    container["args"] = json!(["$(COLOR)-$$(COLOR)", "$(NOBODY)"]);
    container["envFrom"] = json!([
        {"prefix": "C_", "configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "absent", "optional": true}},
    ]);
    container["env"] = json!([
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOR"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}},
        {"name": "BOTH", "value": "$(COLOR)/$(TOKEN)"},
        {"name": "POD", "valueFrom": field("metadata.name")},
        {"name": "NS", "valueFrom": field("metadata.namespace")},
        {"name": "ID", "valueFrom": field("metadata.uid")},
        {"name": "APP", "valueFrom": field("metadata.labels['app']")},
        {"name": "NOTE", "valueFrom": field("metadata.annotations['note']")},
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
        {"name": "HOST_IP", "valueFrom": field("status.hostIP")},
    ]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    let text = content(&out).await;
    let has = |line: &str| text.lines().any(|l| l == line);
    for line in [
        "C_COLOR=blue",
        "C_SIZE=7",
        "COLOR=blue",
        "TOKEN=hush",
        "BOTH=blue/hush",
        "POD=web",
        "NS=shop",
        "ID=u1",
        "APP=web",
        "NOTE=n1",
        "NODE=gw-1",
        "HOST_IP=127.0.0.1",
        "HOSTNAME=web",
        "args=blue-$(COLOR) $(NOBODY)",
    ] {
        assert!(has(line), "{line} is missing in:\n{text}");
    }
    assert!(!text.contains("CARGO"), "nothing of the pod worker's own environment:\n{text}");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn volumes_lie_below_the_root_and_follow_their_objects_without_a_restart() {
    let bench = Bench::new(&[
        config_map("settings", json!({"color": "blue", "size": "7"})),
        secret("token", json!({"key": "aHVzaA=="})),
    ]);
    let (host, out) = (bench.path("host"), bench.path("out"));
    let script = format!(
        "cat etc/app/color > {0}.part; echo >> {0}.part; \
         cat \"$HEADWATER_ROOT/etc/all/deep/key\" etc/all/labels >> {0}.part; \
         echo >> {0}.part; pwd >> {0}.part; echo x > tmp/scratch/file; echo y > data/file; \
         mv {0}.part {0}; exec sleep 1000",
        out.display()
    );
    let mut pod = script_pod("web", "u1", &script);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["volumes"] = json!([
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "all", "projected": {"sources": [
            {"secret": {"name": "token", "items": [
                {"key": "key", "path": "deep/key", "mode": 0o400}]}},
            {"downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"configMap": {"name": "absent", "optional": true}},
        ]}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "hostPath": {"path": host, "type": "DirectoryOrCreate"}},
    ]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "settings", "mountPath": "etc/app"},
        {"name": "all", "mountPath": "etc/all"},
        {"name": "scratch", "mountPath": "tmp/scratch"},
        {"name": "data", "mountPath": "data"},
    ]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    let text = content(&out).await;
    let pod_dir = bench.edged_dir().join("pods/u1");
    let root = pod_dir.join("containers/main/rootfs");
    let root = std::fs::canonicalize(root).expect("the root");
    let wanted = format!("blue\nhushapp=\"web\"\n{}\n", root.display());
    assert_eq!(text, wanted);
    assert_eq!(content(&host.join("file")).await, "y\n");
    let key = std::fs::metadata(pod_dir.join("volumes/all/deep/key")).expect("the key");
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(key.permissions().mode() & 0o777, 0o400);

    let seen = root.join("etc/app");
    bench.edge.apply(&config_map("settings", json!({"color": "red", "shape": "round"})));
    let read = |name: &str| std::fs::read_to_string(seen.join(name)).ok();
    until("the new content", || read("color").filter(|color| color == "red")).await;
    // The names in the volume follow its content.
    until("the new key", || read("shape").filter(|shape| shape == "round")).await;
    until("the end of the old key", || read("size").is_none().then_some(())).await;
    let status = crate::fake_edge::latest_status(&bench.edge.operations(), "web");
    let status = status.expect("a status");
    assert!(is_running(&status));
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_variable_comes_from_a_file_that_another_container_wrote_and_is_waited_for() {
    let root = "$HEADWATER_ROOT/config";
    let bench = Bench::new(&[]);
    let shown = bench.path("shown");
    let mut pod = script_pod("web", "u1", &format!("echo \"$HOST\" > {}", shown.display()));
    let ready = bench.path("ready");
    // It writes a file of another form first.
    let writer = format!(
        "echo \"HOST=db\" > {root}/env; until [ -e {} ]; do sleep 0.05; done; \
         echo \"HOST='db.example'\" > {root}/new; mv {root}/new {root}/env; exec sleep 1000",
        ready.display()
    );
    let mounts = json!([{"name": "config", "mountPath": "config"}]);
    let spec = &mut pod["spec"];
    spec["volumes"] = json!([{"name": "config", "emptyDir": {}}]);
    spec["initContainers"] = json!([{
        "name": "writer", "restartPolicy": "Always", "command": ["/bin/sh", "-c", writer],
        "volumeMounts": mounts,
    }]);
    let reference = json!({"volumeName": "config", "path": "env", "key": "HOST"});
    spec["containers"][0]["env"] =
        json!([{"name": "HOST", "valueFrom": {"fileKeyRef": reference}}]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        let words = "the value is not in single quotes";
        waiting["reason"] == "CreateContainerConfigError"
            && waiting["message"].as_str().is_some_and(|message| message.contains(words))
    };
    bench.edge.until_status("web", "a container that waits for its file", waits).await;
    std::fs::write(&ready, "").expect("a file");
    assert_eq!(content(&shown).await, "db.example\n");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_pod_waits_for_what_it_names_and_starts_when_that_arrives() {
    let mut by_env = script_pod("by-env", "u1", "exec sleep 1000");
    by_env["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    let mut by_volume = script_pod("by-volume", "u2", "exec sleep 1000");
    by_volume["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "token"}}]);
    let mut by_claim = script_pod("by-claim", "u3", "exec sleep 1000");
    by_claim["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    by_claim["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "data"}]);
    let bench = Bench::new(&[by_env, by_volume, by_claim]);
    let edged = bench.edged().await;
    for (pod, reason, named) in [
        ("by-env", "CreateContainerConfigError", "configmap \"settings\" not found"),
        ("by-volume", "ContainerCreating", "secret \"token\" not found"),
        ("by-claim", "ContainerCreating", "persistentvolumeclaim \"data\" not found"),
    ] {
        let waits = |s: &Value| {
            let waiting = &s["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == reason
                && waiting["message"].as_str().is_some_and(|m| m.contains(named))
        };
        let status = bench.edge.until_status(pod, named, waits).await;
        assert_eq!(status["phase"], "Pending");
    }
    bench.edge.apply(&config_map("settings", json!({})));
    bench.edge.apply(&secret("token", json!({})));
    bench.edge.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop", "uid": "c1"}, "spec": {},
    }));
    for pod in ["by-env", "by-volume", "by-claim"] {
        bench.edge.until_status(pod, "a ready pod", is_ready).await;
    }
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_container_starts_again_with_what_its_objects_hold_by_then() {
    let bench = Bench::new(&[config_map("settings", json!({"color": "blue"}))]);
    let (out, end) = (bench.path("out"), bench.path("end"));
    let script = format!(
        "echo $COLOR >> {}; until rm {} 2> /dev/null; do sleep 0.02; done; exit 1",
        out.display(),
        end.display()
    );
    let mut pod = script_pod("web", "u1", &script);
    // The volume shows when the pod's worker has received a change.
    pod["spec"]["volumes"] =
        json!([{"name": "v", "configMap": {"name": "settings", "optional": true}}]);
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "etc/app"}]);
    container["env"] = json!([
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
    ]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    let seen = bench.edged_dir().join("pods/u1/volumes/v/color");
    let color = || std::fs::read_to_string(&seen).ok();
    let written = async |all: &str| {
        until(all, || std::fs::read_to_string(&out).ok().filter(|text| text == all)).await;
    };
    written("blue\n").await;

    bench.edge.apply(&config_map("settings", json!({"color": "red"})));
    until("the new color", || color().filter(|color| color == "red")).await;
    std::fs::write(&end, "").expect("written");
    written("blue\nred\n").await;

    bench.edge.delete("shop/configmap/settings");
    until("the end of the color", || color().is_none().then_some(())).await;
    std::fs::write(&end, "").expect("written");
    let waits = |s: &Value| {
        let state = &s["containerStatuses"][0]["state"];
        state["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let status = bench.edge.until_status("web", "the wait", waits).await;
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);

    bench.edge.apply(&config_map("settings", json!({"color": "green"})));
    written("blue\nred\ngreen\n").await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_volume_that_cannot_be_laid_out_is_named_and_tried_again() {
    let bench = Bench::new(&[]);
    let host = bench.path("late");
    let mut late = script_pod("late", "u1", "exec sleep 1000");
    late["spec"]["volumes"] =
        json!([{"name": "v", "hostPath": {"path": host, "type": "Directory"}}]);
    let mut never = script_pod("never", "u2", "exec sleep 1000");
    never["spec"]["volumes"] = json!([{"name": "v", "csi": {"driver": "d"}}]);
    bench.edge.apply(&late);
    bench.edge.apply(&never);
    let edged = bench.edged().await;
    for (pod, reason, named) in [
        ("late", "ContainerCreating", "is not a directory"),
        ("never", "CreateContainerConfigError", "spec.volumes[0].csi: "),
    ] {
        let waits = |s: &Value| {
            let waiting = &s["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == reason
                && waiting["message"].as_str().is_some_and(|m| m.contains(named))
        };
        bench.edge.until_status(pod, named, waits).await;
    }
    std::fs::create_dir(&host).expect("created");
    bench.edge.until_status("late", "a ready pod", is_ready).await;
    // A pod that never got its volume ends like any other.
    bench.edge.apply(&crate::bench::deleting(&never, 30));
    bench.edge.until("the delete", |all| crate::fake_edge::asked_delete(all, "never")).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}
