//! Manifests with mistakes, as their author sees them: at the terminal, in `status`, in the metrics.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use headwater_e2e::running::{Running, WAIT};

const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replcas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: wbe}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: main, image: web}]
";

const CONFIG: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: first}
";

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

fn start(folder: &Path, args: &[&str]) -> Running {
    let path = folder.to_str().expect("UTF-8");
    Running::start(&[&[path, "--runtime", "hollow", "--nodes", "1"], args].concat())
}

/// The trouble lines of `status`.
fn troubles(running: &Running) -> Option<Vec<String>> {
    let text = running.text(&["status"])?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("trouble  "));
    Some(lines.map(str::to_owned).collect())
}

/// The value of a series.
fn metric(running: &Running, series: &str) -> Option<String> {
    let answer = running.http_get("/metrics")?;
    answer.lines().find_map(|line| Some(line.strip_prefix(series)?.trim().to_owned()))
}

#[test]
fn what_a_cluster_would_not_accept_is_named_with_its_line_until_it_is_repaired() {
    let files = folder(&[("web.yaml", WEB), ("c.yaml", CONFIG), ("d.yaml", CONFIG)]);
    let running = start(files.path(), &[]);
    running.wait_for_pods(1, |status| status == "Running");
    let expected = [
        "d.yaml:1: ConfigMap default/words is described already in c.yaml:1",
        "web.yaml:5: Deployment default/web: unknown field spec.replcas; did you mean replicas?",
        "web.yaml:6: Deployment default/web: spec.selector does not match",
    ];
    let lines = running.wait_for("the troubles", |running| {
        troubles(running).filter(|lines| lines.len() == expected.len())
    });
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{lines:?}");
        running.wait_for("the trouble at the terminal", |running| {
            running.output().contains(&format!("warning: {expected}")).then_some(())
        });
    }
    let gauge = |reason: &str| {
        metric(&running, &format!("headwater_controller_manifest_troubles{{reason=\"{reason}\"}}"))
    };
    assert_eq!(gauge("doubtful").as_deref(), Some("2"));
    assert_eq!(gauge("duplicate").as_deref(), Some("1"));

    let repaired = WEB.replace("replcas", "replicas").replace("wbe", "web");
    fs::write(files.path().join("web.yaml"), repaired).expect("written");
    fs::remove_file(files.path().join("d.yaml")).expect("removed");
    running.wait_for("a status without trouble", |running| troubles(running).filter(Vec::is_empty));
    running.wait_for("the repair at the terminal", |running| {
        let line = "note: web.yaml:5: repaired: Deployment default/web: unknown field";
        running.output().contains(line).then_some(())
    });
    assert_eq!(gauge("doubtful").as_deref(), Some("0"));
}

#[test]
fn under_strict_a_manifest_with_a_mistake_changes_nothing() {
    let right = WEB.replace("replcas", "replicas").replace("wbe", "web");
    let files = folder(&[("web.yaml", &right)]);
    let running = start(files.path(), &["--strict"]);
    running.wait_for_pods(1, |status| status == "Running");
    let two = right.replace("replicas: 1", "replicas: 2\n  paussed: false");
    fs::write(files.path().join("web.yaml"), &two).expect("written");
    running.wait_for("the refusal", |running| {
        let lines = troubles(running)?;
        let begin =
            "web.yaml:6: Deployment default/web: unknown field spec.paussed; did you mean paused?";
        lines.iter().any(|line| line.starts_with(begin)).then_some(())
    });
    assert_eq!(running.items(&["get", "pods"]).len(), 1, "nothing has changed");
    fs::write(files.path().join("web.yaml"), two.replace("paussed", "paused")).expect("written");
    running.wait_for_pods(2, |status| status == "Running");
}

#[test]
fn an_emptied_folder_removes_nothing_and_is_followed_when_its_files_are_back() {
    let right = WEB.replace("replcas", "replicas").replace("wbe", "web");
    let files = folder(&[("web.yaml", &right)]);
    let running = start(files.path(), &[]);
    running.wait_for_pods(1, |status| status == "Running");
    fs::remove_file(files.path().join("web.yaml")).expect("removed");
    running.wait_for("the trouble", |running| {
        let lines = troubles(running)?;
        let is_named = |line: &String| {
            line.starts_with("the source manifests failed at ")
                && line.contains("every manifest under")
        };
        lines.iter().any(is_named).then_some(())
    });
    assert_eq!(running.items(&["get", "pods"]).len(), 1, "nothing is removed");
    fs::write(files.path().join("web.yaml"), right.replace("replicas: 1", "replicas: 2"))
        .expect("written");
    running.wait_for_pods(2, |status| status == "Running");
    running.wait_for("a status without trouble", |running| troubles(running).filter(Vec::is_empty));
}

/// Gives a line to the objects socket, and returns its answer.
fn give(socket: &Path, line: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(WAIT)).ok()?;
    stream.write_all(line.as_bytes()).ok()?;
    stream.shutdown(Shutdown::Write).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn an_object_of_two_sources_is_a_trouble_and_the_other_one_takes_the_place_of_the_first() {
    let files = folder(&[("a.yaml", &CONFIG.replace("words", "others")), ("c.yaml", CONFIG)]);
    let sockets = tempfile::tempdir().expect("a temporary folder");
    let socket = sockets.path().join("objects.sock");
    let running = start(files.path(), &["--objects", socket.to_str().expect("UTF-8")]);
    let word = |running: &Running| {
        let found = running.json(&["get", "cm", "words", "-o", "json"])?;
        found["data"]["word"].as_str().map(str::to_owned)
    };
    running.wait_for("the object of the folder", |running| word(running));
    let line = r#"{"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}, "data": {"word": "of the socket"}}}"#;
    let answer = running.wait_for("the socket", |_| give(&socket, line));
    assert!(answer.contains("\"accepted\":1"), "{answer}");
    let expected = "default/configmap/words: two sources have this object, manifests and objects;";
    running.wait_for("the trouble", |running| {
        troubles(running)?.iter().any(|line| line.starts_with(expected)).then_some(())
    });
    let gauge = || metric(&running, "headwater_controller_manifest_troubles{reason=\"duplicate\"}");
    assert_eq!(gauge().as_deref(), Some("1"));
    assert_eq!(word(&running).as_deref(), Some("first"));

    fs::remove_file(files.path().join("c.yaml")).expect("removed");
    running.wait_for("the object of the socket", |running| {
        (word(running)? == "of the socket").then_some(())
    });
    running.wait_for("a status without trouble", |running| troubles(running).filter(Vec::is_empty));
    assert_eq!(gauge().as_deref(), Some("0"));
    running.wait_for("the repair at the terminal", |running| {
        running.output().contains(&format!("note: repaired: {expected}")).then_some(())
    });
}

#[test]
fn a_key_twice_in_json_is_named_as_in_yaml_and_refused_under_strict() {
    let twice = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
        "data": {"word": "first", "word": "second"}}"#;
    for (args, count, rest) in [
        (&[][..], 1, "the last one counts"),
        (&["--strict"][..], 0, "remove one of the two (--strict)"),
    ] {
        let files = folder(&[("c.json", twice), ("a.yaml", &CONFIG.replace("words", "others"))]);
        let running = start(files.path(), args);
        let expected = format!("c.json:2: duplicate mapping key: word: {rest}");
        running.wait_for("the trouble", |running| {
            troubles(running)?.contains(&expected).then_some(())
        });
        running.wait_for("the other document", |running| {
            running.json(&["get", "cm", "others", "-o", "json"])
        });
        let words = running.items(&["get", "cm"]);
        let found = words.iter().filter(|one| one["metadata"]["name"] == "words").count();
        assert_eq!(found, count, "{words:?}");
    }
}
