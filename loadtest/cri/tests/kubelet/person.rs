//! A person on the gateway: commands, ports and logs by the local socket.

use std::time::Duration;

use headwater_cri_lab::BUSYBOX_IMAGE;
use headwater_kubelet::client::{ClientError, CommandEvent, CommandRequest};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use crate::bench::{Bench, DEADLINE, FOREVER, POLL, pod, uid, with_bench};

/// Streams at a time: the limit of a node.
const STREAMS: usize = 50;

/// What goes each way through one stream.
const BULK_BYTES: usize = 100 << 20;

/// The time limit of that.
const BULK_WITHIN: Duration = Duration::from_secs(300);

/// The bytes of one message.
const MESSAGE_BYTES: usize = 32 << 10;

fn request(command: &[&str], stdin: bool, tty: bool) -> CommandRequest {
    CommandRequest {
        namespace: "shop".to_owned(),
        pod: "web".to_owned(),
        container: "main".to_owned(),
        command: Some(command.iter().map(|word| (*word).to_owned()).collect()),
        stdin,
        tty,
    }
}

/// The output, the errors and the exit code of a command without input.
async fn run(bench: &Bench, command: &[&str]) -> (String, String, i32) {
    let stream = bench.client.command(&request(command, false, false)).await.expect("it starts");
    let (_input, mut output) = stream.split();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match timeout(DEADLINE, output.next()).await.expect("in time").expect("whole") {
            Some(CommandEvent::Stdout(bytes)) => out.extend(bytes),
            Some(CommandEvent::Stderr(bytes)) => err.extend(bytes),
            Some(CommandEvent::Exit(code)) => {
                let text = |bytes| String::from_utf8(bytes).expect("text");
                return (text(out), text(err), code);
            }
            other => panic!("{other:?} after {out:?}"),
        }
    }
}

/// The status and the body of an answer.
async fn get(bench: &Bench, path: &str) -> (u16, String) {
    get_from(bench, path, "localhost").await
}

/// The same for another name of the server.
async fn get_from(bench: &Bench, path: &str, host: &str) -> (u16, String) {
    let stream = UnixStream::connect(bench.socket()).await.expect("it listens");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", host);
    let request = request.body(Empty::<bytes::Bytes>::new()).expect("a request");
    let answer = timeout(DEADLINE, sender.send_request(request)).await.expect("in time");
    let answer = answer.expect("an answer");
    let status = answer.status().as_u16();
    let body = timeout(DEADLINE, answer.into_body().collect()).await.expect("in time");
    let body = body.expect("whole").to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn a_person_runs_commands_reads_logs_and_sees_the_pods() {
    with_bench(Vec::new, |bench| async move {
        let script = format!("echo hello; echo oops >&2; {FOREVER}");
        let mut web = pod("web", &script);
        // On a busy machine the start of a process takes longer than the second of a probe without a time.
        let probe =
            json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 60});
        web["spec"]["containers"][0]["readinessProbe"] = probe;
        bench.run(&[web]).await;

        let (out, err, code) = run(&bench, &["sh", "-c", "echo a b; echo c >&2; exit 7"]).await;
        assert_eq!((out.as_str(), err.as_str(), code), ("a b\n", "c\n", 7));
        let (_, _, code) = run(&bench, &["true"]).await;
        assert_eq!(code, 0);
        let missing = bench.client.command(&request(&["no-such-program"], false, false)).await;
        let (_input, mut output) = missing.expect("the runtime finds out later").split();
        let failed = output.next().await.expect("whole").expect("words");
        let CommandEvent::Failed(words) = failed else { panic!("{failed:?}") };
        assert!(words.contains("no-such-program"), "{words}");

        // A terminal has a size, and one output.
        let stream = bench.client.command(&request(&["sh"], true, true)).await.expect("a shell");
        let (mut input, mut output) = stream.split();
        input.resize(123, 45).await.expect("sent");
        // The terminal may get its size after the command starts, and shows what is typed.
        let typed =
            b"until stty size | grep -q '45 123'; do sleep 0.1; done; echo si''zed >&2; exit 3\n";
        input.write(typed).await.expect("sent");
        let mut seen = String::new();
        let code = loop {
            match timeout(DEADLINE, output.next()).await.expect("in time").expect("whole") {
                Some(CommandEvent::Stdout(bytes)) => {
                    seen.push_str(&String::from_utf8_lossy(&bytes))
                }
                Some(CommandEvent::Exit(code)) => break code,
                other => panic!("{other:?} after {seen}"),
            }
        };
        assert!(seen.contains("sized") && code == 3, "{code}: {seen}");

        let (status, log) = get(&bench, "/containerLogs/shop/web/main").await;
        assert_eq!(status, 200);
        // Two outputs of one moment may change places.
        let mut lines: Vec<_> = log.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["hello", "oops"]);
        let (_, log) = get(&bench, "/containerLogs/shop/web/main?limitBytes=3&stream=Stdout").await;
        assert_eq!(log, "hel");
        let (status, words) = get(&bench, "/containerLogs/shop/web/main?previous=true").await;
        assert_eq!(status, 400, "{words}");
        assert!(words.contains("previous terminated container \"main\" in pod \"web\" not found"));

        let (status, pods) = get(&bench, "/pods").await;
        let pods: serde_json::Value = serde_json::from_str(&pods).expect("JSON");
        assert_eq!((status, &pods["kind"]), (200, &"PodList".into()));
        assert_eq!(pods["items"][0]["status"]["phase"], "Running");
        let (_, running) = get(&bench, "/runningpods/").await;
        assert!(running.contains("\"name\":\"main\"") && !running.contains("phase"), "{running}");
        let (_, metrics) = get(&bench, "/metrics").await;
        assert!(metrics.contains("kubelet_running_pods 1\n"), "{metrics}");
        // Linux counts CPU time and memory of every process.
        let of_main = format!(
            "{{container=\"main\",image=\"{BUSYBOX_IMAGE}\",namespace=\"shop\",pod=\"web\"}} "
        );
        let number = |text: &str, name: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}{of_main}")));
            line?.parse().ok()
        };
        let (_, metrics) = get(&bench, "/metrics/cadvisor").await;
        for name in
            ["container_memory_usage_bytes", "container_start_time_seconds", "container_threads"]
        {
            assert!(number(&metrics, name).is_some_and(|value| value > 0.0), "{name}: {metrics}");
        }
        assert!(
            metrics.contains(
                "container_cpu_usage_seconds_total{container=\"\",cpu=\"total\",image=\"\""
            ),
            "{metrics}"
        );
        let results = format!(
            "prober_probe_total{{container=\"main\",namespace=\"shop\",pod=\"web\",pod_uid=\"{}\",\
             probe_type=\"Readiness\",result=\"successful\"}} ",
            uid("web")
        );
        // The container runs before its first probe has ended.
        let end = Instant::now() + DEADLINE;
        loop {
            let (_, metrics) = get(&bench, "/metrics/probes").await;
            let count =
                metrics.lines().find_map(|line| line.strip_prefix(&results)?.parse::<u64>().ok());
            if count.is_some_and(|count| count > 0) {
                break;
            }
            assert!(Instant::now() < end, "{metrics}");
            tokio::time::sleep(POLL).await;
        }
        for path in ["/healthz", "/healthz/ping", "/healthz/syncloop"] {
            assert_eq!(get(&bench, path).await, (200, "ok".to_owned()), "{path}");
        }
    });
}

/// The answer of a path, once it is as expected.
async fn json_until(
    bench: &Bench,
    path: &str,
    is_expected: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let end = Instant::now() + DEADLINE;
    loop {
        let (status, text) = get(bench, path).await;
        assert_eq!(status, 200, "{text}");
        let answer = serde_json::from_str(&text).expect("JSON");
        if is_expected(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "{answer}");
        tokio::time::sleep(POLL).await;
    }
}

#[test]
fn volumes_of_a_pod_are_measured_and_those_of_claims_are_metrics() {
    with_bench(Vec::new, |bench| async move {
        bench.edge.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop", "uid": "c1"}, "spec": {},
        }));
        let script = "head -c 300000 /dev/zero > /data/file; sync; touch /data/done; sleep 1000000";
        let mut web = pod("web", script);
        let container = &mut web["spec"]["containers"][0];
        container["volumeMounts"] = json!([
            {"name": "data", "mountPath": "/data"}, {"name": "scratch", "mountPath": "/scratch"}]);
        // It is ready when the file is there.
        container["readinessProbe"] = json!({
            "exec": {"command": ["test", "-e", "/data/done"]},
            "periodSeconds": 1, "timeoutSeconds": 60,
        });
        web["spec"]["volumes"] = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": "/tmp"}},
        ]);
        bench.run(&[web]).await;
        let is_ready = |pods: &serde_json::Value| {
            pods["items"][0]["status"]["containerStatuses"][0]["ready"] == true
        };
        json_until(&bench, "/pods", is_ready).await;
        // The first request begins the measurement.
        let is_measured = |summary: &serde_json::Value| {
            summary["pods"][0]["volume"].as_array().is_some_and(|volumes| !volumes.is_empty())
        };
        let summary = json_until(&bench, "/stats/summary", is_measured).await;
        let volumes = summary["pods"][0]["volume"].as_array().expect("volumes");
        let [data, scratch] = &volumes[..] else { panic!("two are the pod's: {volumes:?}") };
        assert_eq!(data["pvcRef"], json!({"name": "data", "namespace": "shop"}));
        let number = |of: &serde_json::Value, field: &str| of[field].as_u64().expect("a number");
        let used = number(data, "usedBytes");
        assert!((300_000..1 << 20).contains(&used), "{data}");
        assert!(number(data, "capacityBytes") > used && number(data, "inodesUsed") == 3, "{data}");
        assert_eq!((&scratch["name"], number(scratch, "inodesUsed")), (&json!("scratch"), 1));
        assert!(scratch["pvcRef"].is_null(), "{scratch}");
        let (_, metrics) = get(&bench, "/metrics").await;
        let line = format!(
            "kubelet_volume_stats_used_bytes{{namespace=\"shop\",persistentvolumeclaim=\"data\"}} {used}\n"
        );
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    });
}

#[test]
fn what_is_not_there_is_refused_in_a_kubelets_words() {
    with_bench(Vec::new, |bench| async move {
        bench.run(&[pod("web", FOREVER)]).await;
        for (path, status, words) in [
            ("/containerLogs/shop/none/main", 404, "pod \"none\" does not exist"),
            ("/containerLogs/shop/web/none", 404, "container \"none\" not found in pod \"web\""),
            ("/containerLogs/shop/web/..%2f..%2fetc", 404, "not found in pod"),
            ("/containerLogs/shop/web/main?tailLines=x", 400, "Unable to decode query."),
            ("/containerLogs/shop/web/main?limitBytes=0", 422, "Invalid request."),
            ("/exec/shop/web/main?command=sh&output=1", 400, "Upgrade request required"),
            ("/run/shop/web/main?cmd=ls", 405, "Method Not Allowed"),
            ("/nothing", 404, "Page Not Found"),
        ] {
            let (found, text) = get(&bench, path).await;
            assert_eq!(found, status, "{path}: {text}");
            assert!(text.contains(words), "{path}: {text}");
        }
        let (status, words) = get_from(&bench, "/pods", "pages.example").await;
        assert_eq!(status, 403, "a page whose name leads here: {words}");
        let client = &bench.client;
        let refused = |request: CommandRequest| async move {
            match client.command(&request).await.expect_err("refused") {
                ClientError::Refused { status, words } => (status.as_u16(), words),
                error => panic!("{error}"),
            }
        };
        let sh = || request(&["sh"], false, false);
        let absent = CommandRequest { pod: "none".to_owned(), ..sh() };
        assert_eq!(refused(absent).await, (404, "pod does not exist".to_owned()));
        let absent = CommandRequest { container: "none".to_owned(), ..sh() };
        assert_eq!(refused(absent).await, (500, "container not found (\"none\")".to_owned()));
    });
}

#[test]
fn fifty_streams_at_once_carry_100_mib_whole_and_the_next_one_is_refused() {
    with_bench(Vec::new, |bench| async move {
        bench.run(&[pod("web", FOREVER)]).await;
        let mut waiting = Vec::new();
        for _ in 1..STREAMS {
            let stream = bench.client.command(&request(&["cat"], true, false)).await;
            waiting.push(stream.expect("there is room").split());
        }
        // What goes in comes out, on the last one, while the others wait.
        let echo = format!("head -c {BULK_BYTES}");
        let stream = bench.client.command(&request(&["sh", "-c", &echo], true, false)).await;
        let (mut input, mut output) = stream.expect("there is room").split();
        let refused = bench.client.command(&request(&["true"], false, false)).await;
        let refused = refused.expect_err("one too many").to_string();
        assert!(refused.contains("50 streams"), "{refused}");
        let byte = |at: usize| u8::try_from((at / 3 + at / 251) % 256).expect("a byte");
        let sending = async {
            for start in (0..BULK_BYTES).step_by(MESSAGE_BYTES) {
                let bytes: Vec<u8> = (start..start + MESSAGE_BYTES).map(byte).collect();
                input.write(&bytes).await.expect("sent");
            }
        };
        let receiving = async {
            let mut at = 0;
            loop {
                match output.next().await.expect("whole") {
                    Some(CommandEvent::Stdout(bytes)) => {
                        let is_same = bytes.iter().enumerate().all(|(i, one)| *one == byte(at + i));
                        assert!(is_same, "other bytes after {at}");
                        at += bytes.len();
                    }
                    Some(CommandEvent::Exit(code)) => break (at, code),
                    other => panic!("{other:?} after {at} bytes"),
                }
            }
        };
        let both = async { tokio::join!(sending, receiving).1 };
        let (received, code) = timeout(BULK_WITHIN, both).await.expect("in time");
        assert_eq!((received, code), (BULK_BYTES, 0));
        for (at, (input, output)) in waiting.iter_mut().enumerate() {
            let line = format!("stream {at}\n");
            input.write(line.as_bytes()).await.expect("sent");
            let echoed = timeout(DEADLINE, output.next()).await.expect("in time").expect("whole");
            assert_eq!(echoed, Some(CommandEvent::Stdout(line.into())), "stream {at}");
        }
        drop(waiting);
        // A stream that ended leaves its place.
        let end = Instant::now() + DEADLINE;
        while let Err(error) = bench.client.command(&request(&["true"], false, false)).await {
            assert!(Instant::now() < end, "{error}");
            tokio::time::sleep(POLL).await;
        }
    });
}

#[test]
fn a_log_that_is_followed_ends_with_its_run_and_a_port_answers() {
    with_bench(Vec::new, |bench| async move {
        let script = "echo one; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo two; sleep 1";
        let mut ends = pod("web", script);
        ends["spec"]["restartPolicy"] = "Never".into();
        let server = "while :; do echo served | nc -l -p 8080; done";
        bench.run(&[ends, pod("port", server)]).await;
        let followed = get(&bench, "/containerLogs/shop/web/main?follow=true&timestamps=true");
        let go = async {
            let (_, _, code) = run(&bench, &["touch", "/tmp/go"]).await;
            assert_eq!(code, 0);
        };
        let ((status, log), ()) = tokio::join!(followed, go);
        let lines: Vec<_> =
            log.lines().map(|line| line.split_once(' ').expect("a time").1).collect();
        assert_eq!((status, lines), (200, vec!["one", "two"]));

        let served = until_served(&bench).await;
        assert_eq!(served, "served\n");
    });
}

/// What the port says. The server is not there between two connections.
async fn until_served(bench: &Bench) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let stream = bench.client.port("shop", "port", 8080).await.expect("a stream");
        let (mut input, mut output) = stream.split();
        let mut served = Vec::new();
        while let Ok(Some(bytes)) = timeout(DEADLINE, output.next()).await.expect("in time") {
            served.extend(bytes);
            if served.ends_with(b"\n") {
                break;
            }
        }
        input.close().await;
        if !served.is_empty() {
            return String::from_utf8(served).expect("text");
        }
        assert!(Instant::now() < deadline, "nothing is served");
    }
}
