//! What containers may do: their user, their rights, and what they reach of the pod worker.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use headwater_edged::{Edged, RuntimeKind, shared_rights};
use serde_json::{Value, json};

use crate::bench::{Bench, is_ready, log, script_pod, until};

const USER: u32 = 41_001;
const GROUP: u32 = 41_002;
const FS_GROUP: u32 = 41_003;
const OTHER_GROUP: u32 = 41_004;

/// A pod worker that lets no container run as root.
async fn strict(bench: &Bench) -> headwater_edged::Handle {
    let mut config = bench.config();
    if let RuntimeKind::Process(process) = &mut config.runtime {
        process.allow_root = false;
    }
    Edged::spawn(config).await.expect("starts")
}

/// Runs the pod to its end, and returns the lines of its log without times.
async fn lines(bench: &Bench, edged: &headwater_edged::Handle, pod: &Value) -> Vec<String> {
    bench.edge.apply(pod);
    let name = pod["metadata"]["name"].as_str().expect("a name");
    let ended = |log: &String| log.contains(" F end\n");
    let all =
        until("the end of the script", || Some(log(&edged.logs(), name, false)).filter(ended));
    all.await
        .lines()
        .map(|line| line.splitn(4, ' ').last().unwrap_or_default().to_owned())
        .collect()
}

fn separate(mut pod: Value) -> Value {
    pod["spec"]["securityContext"] = json!({
        "runAsUser": USER, "runAsGroup": GROUP, "fsGroup": FS_GROUP,
        "supplementalGroups": [OTHER_GROUP],
    });
    pod
}

#[tokio::test]
async fn a_container_of_another_user_reaches_no_file_socket_or_memory_of_the_pod_worker() {
    let bench = Bench::new(&[]);
    if !nix::unistd::geteuid().is_root() {
        // Without the rights of root no pod is kept apart, and that is reported.
        let why = shared_rights(false).expect("pods share this user's rights");
        assert!(why.contains("with the rights of the edge"), "{why}");
        return;
    }
    let closed = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("closed");
    };
    let key = bench.path("node.key");
    std::fs::write(&key, "secret").expect("written");
    // As a data directory and what the edge has in it.
    closed(bench.dir.path(), 0o700);
    closed(&key, 0o600);
    let edged = strict(&bench).await;
    // Another pod, with files of its own.
    bench.edge.apply(&separate(script_pod("other", "u0", "echo mine > file; exec sleep 1000")));
    bench.edge.until_status("other", "a ready pod", is_ready).await;

    let (dir, own) = (bench.path(""), std::process::id());
    let paths = [
        key,
        bench.path("edge.sock"),
        bench.edged_dir().join("pods/u0"),
        bench.edged_dir().join("pods/u1/pod.json"),
        bench.edged_dir().join("pods/u1/containers/main/0"),
        bench.edged_dir().join("logs"),
        format!("/proc/{own}/mem").into(),
        format!("/proc/{own}/environ").into(),
        format!("/proc/{own}/fd").into(),
    ];
    let tried: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let script = format!(
        "for path in {} /proc/$PPID/mem /proc/$PPID/environ; do \
             if cat $path/* >/dev/null 2>&1 || head -c 1 $path >/dev/null 2>&1; \
             then echo reached $path; else echo tried $path; fi; \
         done; \
         find {} -name '*.json' -o -name '*.sock' -o -name '*.log' | sed 's/^/found /'; \
         kill -0 $PPID 2>/dev/null && echo signalled; \
         echo end; exec sleep 1000",
        tried.join(" "),
        dir.display(),
    );
    let lines = lines(&bench, &edged, &separate(script_pod("web", "u1", &script))).await;
    let is_tried = |line: &&String| line.starts_with("tried ");
    assert_eq!(lines.iter().filter(is_tried).count(), paths.len() + 2, "{lines:#?}");
    assert_eq!(lines.len(), paths.len() + 3, "nothing else: {lines:#?}");
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_container_has_exactly_the_rights_of_its_spec_and_its_volumes() {
    let bench = Bench::new(&[]);
    let is_root = nix::unistd::geteuid().is_root();
    bench.edge.apply(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "keys", "namespace": "shop"},
        "data": {"key": "c2VjcmV0"},
    }));
    let edged = strict(&bench).await;
    let script = "id -u; id -g; id -G; grep -E '^(CapInh|CapPrm|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status; \
        umask; cut -d' ' -f1,6,7 /proc/$$/stat; echo $$; \
        cat run/keys/key && echo; echo mine > scratch/file && cat $HEADWATER_ROOT/scratch/file; \
        (echo more > frozen/file) 2>/dev/null || echo frozen; \
        (echo more > run/keys/key) 2>/dev/null || echo kept; \
        stat -L -c %a run/keys/key; echo end; exec sleep 1000";
    let mut pod = script_pod("web", "u1", script);
    pod["spec"]["volumes"] = json!([
        {"name": "scratch", "emptyDir": {}}, {"name": "frozen", "emptyDir": {}},
        {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
    ]);
    let mount = |name: &str, path: &str, read_only: bool| json!({"name": name, "mountPath": path, "readOnly": read_only});
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        mount("scratch", "scratch", false),
        mount("frozen", "frozen", is_root),
        mount("keys", "run/keys", true),
    ]);
    pod["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let pod = if is_root { separate(pod) } else { pod };
    let lines = lines(&bench, &edged, &pod).await;
    let text = lines.join("\n");
    let has = |line: &str| assert!(lines.iter().any(|found| found == line), "{line:?} in {text}");
    for set in ["CapInh", "CapPrm", "CapAmb"] {
        has(&format!("{set}:\t0000000000000000"));
    }
    has("NoNewPrivs:\t1");
    has("0022");
    has("secret");
    has("mine");
    // Process, session and terminal: the container leads a session without one.
    let own = lines.iter().find_map(|line| line.strip_suffix(" 0")).expect("three numbers");
    let (process, session) = own.split_once(' ').expect("two numbers");
    assert_eq!(process, session, "{text}");
    has(process);
    if is_root {
        has(&USER.to_string());
        has(&GROUP.to_string());
        has(&format!("{GROUP} {FS_GROUP} {OTHER_GROUP}"));
        has("CapBnd:\t0000000000000000");
        has("frozen");
        has("kept");
        has("440");
    }
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_container_without_a_user_waits_where_it_would_be_root() {
    let bench = Bench::new(&[script_pod("web", "u1", "exec sleep 1000")]);
    let edged = strict(&bench).await;
    if nix::unistd::geteuid().is_root() {
        let waits = |status: &Value| {
            let waiting = &status["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"].as_str().is_some_and(|message| {
                    message.contains("spec.containers[0].securityContext.runAsUser")
                        && message.contains("--allow-root")
                })
        };
        bench.edge.until_status("web", "the field and what to do", waits).await;
    } else {
        bench.edge.until_status("web", "a ready pod", is_ready).await;
    }
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_link_that_a_container_leaves_in_its_directory_leads_no_further_than_its_rights() {
    if !nix::unistd::geteuid().is_root() {
        // It has all rights of this user anyway: there is nothing to keep it from.
        assert!(shared_rights(false).is_some());
        return;
    }
    let bench = Bench::new(&[]);
    let trap = bench.path("trap");
    std::fs::create_dir(&trap).expect("made");
    let edged = strict(&bench).await;
    // The first run replaces a directory of the way to its second mount by a link.
    let script = format!(
        "if [ -e again ]; then echo end; exec sleep 1000; fi; \
         touch again; rm -r etc; ln -s {} etc; exit 1",
        trap.display()
    );
    let mut pod = separate(script_pod("web", "u1", &script));
    pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "scratch", "mountPath": "etc/app/scratch"}]);
    bench.edge.apply(&pod);
    let fails = |status: &Value| {
        let last = &status["containerStatuses"][0]["lastState"]["terminated"];
        last["reason"] == "StartError"
    };
    bench.edge.until_status("web", "a refused start", fails).await;
    assert_eq!(std::fs::read_dir(&trap).expect("listed").count(), 0, "nothing was made there");
    edged.stop_pods(Duration::from_secs(5)).await;
}
