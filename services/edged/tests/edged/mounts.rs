//! Where containers see their volumes.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, content, is_ready, probe, script_pod};

/// A pod with a ConfigMap and an empty directory at these paths.
fn pod(name: &str, uid: &str, [words, place]: [&str; 2], script: &str) -> Value {
    let mut pod = script_pod(name, uid, script);
    pod["spec"]["volumes"] = json!([
        {"name": "words", "configMap": {"name": "words"}}, {"name": "place", "emptyDir": {}},
    ]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "words", "mountPath": words}, {"name": "place", "mountPath": place}]);
    pod
}

fn words() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "words", "namespace": "shop"}, "data": {"text": "hello\n"},
    })
}

#[tokio::test]
async fn an_absolute_path_shows_its_volume_or_the_container_waits_and_names_it() {
    let bench = Bench::new(&[words()]);
    let out = bench.path("out");
    std::fs::create_dir(&out).expect("made");
    // Another user writes there.
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o777)).expect("opened");
    std::fs::set_permissions(bench.dir.path(), std::fs::Permissions::from_mode(0o755))
        .expect("opened");
    let script = format!(
        "cp /etc/headwater-test/text {0}/text; echo work > /headwater-test/deep/file; \
         cat $HEADWATER_ROOT/headwater-test/deep/file > {0}/work; \
         head -1 /etc/passwd > {0}/passwd; ls /usr/bin/env > {0}/env; \
         (echo x > /etc/headwater-other) 2> /dev/null || echo refused > {0}/other; \
         grep NoNewPrivs /proc/self/status > {0}/rights; exec sleep 1000",
        out.display()
    );
    let paths = ["/etc/headwater-test", "/headwater-test/deep"];
    bench.edge.apply(&pod("web", "u1", paths, &script));
    let edged = bench.edged().await;
    if !nix::unistd::geteuid().is_root() {
        let waits = |status: &Value| {
            let waiting = &status["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"].as_str().is_some_and(|message| {
                    message.contains("volumeMounts[0].mountPath: /etc/headwater-test: only a pod")
                })
        };
        bench.edge.until_status("web", "a wait", waits).await;
        edged.stop_pods(Duration::from_secs(5)).await;
        return;
    }
    let agree = async || {
        for (name, wanted) in [
            ("text", "hello\n"),
            ("work", "work\n"),
            ("env", "/usr/bin/env\n"),
            // A file beside the path would be lost, and is not made.
            ("other", "refused\n"),
            ("rights", "NoNewPrivs:\t1\n"),
        ] {
            assert_eq!(content(&out.join(name)).await, wanted, "{name}");
            std::fs::remove_file(out.join(name)).expect("removed");
        }
        let neighbour = content(&out.join("passwd")).await;
        assert!(neighbour.starts_with("root:"), "it is the host's: {neighbour}");
        std::fs::remove_file(out.join("passwd")).expect("removed");
        for path in ["/etc/headwater-test", "/headwater-test"] {
            assert!(!Path::new(path).exists(), "nothing is made on the host");
        }
    };
    agree().await;
    let mut of_user = pod("of-user", "u2", paths, &script);
    of_user["spec"]["securityContext"] = json!({"runAsUser": 41_001, "fsGroup": 41_002});
    bench.edge.apply(&of_user);
    agree().await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn commands_of_probes_see_an_absolute_path_too() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let bench = Bench::new(&[words()]);
    let mut pod =
        pod("web", "u1", ["/headwater-test-words", "/headwater-test-place"], "exec sleep 1000");
    let script = "test -s /headwater-test-words/text && touch /headwater-test-place/probed";
    pod["spec"]["containers"][0]["readinessProbe"] =
        probe(json!({"exec": {"command": ["sh", "-c", script]}}));
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    assert!(bench.edged_dir().join("pods/u1/volumes/place/probed").exists());
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_path_that_cannot_be_shown_is_named_with_what_to_do() {
    let bench = Bench::new(&[words()]);
    let open = bench.path("open");
    std::fs::create_dir(&open).expect("made");
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).expect("opened");
    let path = open.join("words");
    let paths = ["work", path.to_str().expect("UTF-8")];
    bench.edge.apply(&pod("web", "u1", paths, "exec sleep 1000"));
    let edged = bench.edged().await;
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "CreateContainerConfigError"
            && waiting["message"].as_str().is_some_and(|message| {
                message.contains("volumeMounts[1].mountPath")
                    && message.contains(path.to_str().expect("UTF-8"))
                    && (message.contains(": use a path in another")
                        || message.contains("run it as root"))
            })
    };
    bench.edge.until_status("web", "a wait", waits).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}
