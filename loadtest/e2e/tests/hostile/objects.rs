//! The objects socket: lines that are none, lines without end, connections without end.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use headwater_e2e::running::{Running, WAIT};

/// Connections that there may be at once, and then some.
const CONNECTIONS: usize = 80;

#[test]
fn lines_of_any_kind_are_answered_by_their_number_and_the_next_is_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (manifests, socket) = (folder.path().join("manifests"), folder.path().join("o.sock"));
    fs::create_dir_all(&manifests).expect("a folder");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
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
    let good = r#"{"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "good"}, "data": {}}}"#;
    let pod = |name: &str, spec: &str| {
        format!(
            r#"{{"object": {{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": {name}}}, "spec": {spec}}}}}"#
        )
    };
    let bad: Vec<Vec<u8>> = vec![
        b"nonsense".to_vec(),
        b"\xff\xfe".to_vec(),
        b"{\"delete\": \"a/b/c\0\"}".to_vec(),
        b"{}".to_vec(),
        b"[]".to_vec(),
        br#"{"object": 1}"#.to_vec(),
        br#"{"object": {}, "unknown": 1}"#.to_vec(),
        br#"{"delete": "default/pod/absent"}"#.to_vec(),
        br#"{"object": {}, "intended_time": "the day before"}"#.to_vec(),
        format!(r#"{{"object": {}"#, "[".repeat(100_000)).into_bytes(),
        "x".repeat(3 << 20).into_bytes(),
        pod(r#""../x""#, "{}").into_bytes(),
        pod("1", "{}").into_bytes(),
        pod(r#""p""#, r#"{"containers": 1}"#).into_bytes(),
        pod(r#""p""#, r#"{"containers": [], "terminationGracePeriodSeconds": 1e400}"#).into_bytes(),
        pod(&format!("{:?}", "n".repeat(1_000)), "{}").into_bytes(),
    ];
    let mut input = bad.join(&b'\n');
    input.push(b'\n');
    input.extend_from_slice(good.as_bytes());
    let answer = send(&socket, &input);
    let lines: Vec<serde_json::Value> =
        answer.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (last, refused) = lines.split_last().expect("an answer");
    assert_eq!(refused.len(), bad.len(), "{answer}");
    for (number, line) in refused.iter().enumerate() {
        assert_eq!(line["line"], number + 1, "{line}");
        assert!(line["error"].as_str().is_some_and(|error| !error.is_empty()), "{line}");
    }
    assert_eq!((&last["accepted"], &last["lines"]), (&1.into(), &(bad.len() + 1).into()), "{last}");

    let open: Vec<UnixStream> =
        (0..CONNECTIONS).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    running.wait_for("a refusal of one connection too many", |_| {
        send(&socket, good.as_bytes()).contains("already").then_some(())
    });
    drop(open);
    running.wait_for("room again", |_| {
        send(&socket, good.as_bytes()).contains("\"accepted\":1").then_some(())
    });
    assert!(!running.output().contains("panicked"), "{}", running.output());
}

/// Says all of it, and gives the answers.
fn send(socket: &Path, input: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(WAIT)).expect("it can be");
    // A refused client is not read to the end.
    let _ = stream.write_all(input);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}
