//! The socket as a client meets it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_event::ResourceKey;
use headwater_object::Object;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::source::{PublishedObject, SourceEvent, Takeover};

/// How long anything here may take: far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many events wait for the controller.
const EVENTS_MAX: usize = 4;

struct Running {
    folder: tempfile::TempDir,
    events: mpsc::Receiver<SourceEvent>,
    stop: CancellationToken,
    role: watch::Sender<WriterRole>,
    ended: tokio::task::JoinHandle<Result<(), SourceError>>,
}

impl Running {
    async fn start(published: BTreeMap<ResourceKey, PublishedObject>) -> (Self, Vec<String>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let stop = CancellationToken::new();
        let source = Box::new(ObjectsSocket::new(folder.path().join("objects.sock")));
        let mut context = SourceContext::detached(published, sender, &stop);
        let role = watch::Sender::default();
        context.workloads.role = role.subscribe();
        let ended = tokio::spawn(source.run(context));
        let mut running = Self { folder, events, stop, role, ended };
        let mut list = Vec::new();
        while list.last().is_none_or(|event| event != "done") {
            list.push(running.next().await);
        }
        (running, list)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("objects.sock")
    }

    async fn next(&mut self) -> String {
        let event = tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("in time");
        text(event.expect("the source goes on"))
    }

    /// Sends lines on a new connection. Returns the events and the answers.
    async fn send(&mut self, lines: Vec<u8>) -> (Vec<String>, Vec<Value>) {
        let mut stream = UnixStream::connect(self.socket()).await.expect("listening");
        let client = async move {
            stream.write_all(&lines).await.expect("taken");
            stream.shutdown().await.expect("shut down");
            let mut answers = String::new();
            stream.read_to_string(&mut answers).await.expect("answered");
            answers.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        };
        tokio::pin!(client);
        let mut events = Vec::new();
        let answers = loop {
            tokio::select! {
                event = self.events.recv() => events.push(text(event.expect("it goes on"))),
                answers = &mut client => break answers,
            }
        };
        // An answer follows its event.
        while let Ok(event) = self.events.try_recv() {
            events.push(text(event));
        }
        (events, answers)
    }

    async fn stopped(self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.ended).await.expect("in time");
        let ended = ended.expect("no panic");
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_stop()), "asked to");
        assert!(!self.folder.path().join("objects.sock").exists(), "the socket is gone");
    }
}

fn text(event: SourceEvent) -> String {
    match event {
        SourceEvent::Init => "init".to_owned(),
        SourceEvent::InitDone => "done".to_owned(),
        SourceEvent::InitApply(object) => format!("+{}", object.key()),
        SourceEvent::Apply(object, cause) => {
            let intended = cause.intended_time.map(|time| format!(" {time}"));
            format!("+{}{}", object.key(), intended.unwrap_or_default())
        }
        SourceEvent::Delete { key, .. } => format!("-{key}"),
        SourceEvent::TakenOver { epoch } => format!("taken over {epoch}"),
        SourceEvent::Notice(notice) => panic!("{notice}"),
    }
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

fn lines(values: &[Value]) -> Vec<u8> {
    values.iter().map(|value| format!("{value}\n")).collect::<String>().into_bytes()
}

#[tokio::test]
async fn objects_come_and_go_in_the_order_of_their_lines() {
    let (mut source, list) = Running::start(BTreeMap::new()).await;
    assert_eq!(list, ["init", "done"]);
    let (events, answers) = source
        .send(lines(&[
            json!({"object": secret("a"), "intended_time": "2026-01-31T12:00:00Z"}),
            json!({"object": secret("b")}),
            json!({"delete": "default/secret/a"}),
        ]))
        .await;
    assert_eq!(
        events,
        ["+default/secret/a 2026-01-31T12:00:00Z", "+default/secret/b", "-default/secret/a"]
    );
    assert_eq!(answers, [json!({"lines": 3, "accepted": 3, "refused": 0})]);
    source.stopped().await;
}

#[tokio::test]
async fn a_line_that_is_refused_is_answered_and_the_next_one_read() {
    let (mut source, _) = Running::start(BTreeMap::new()).await;
    let mut input = b"nonsense\n\n".to_vec();
    input.extend(lines(&[json!({"delete": "default/secret/absent"})]));
    input.extend(std::iter::repeat_n(b'x', LINE_BYTES_MAX + 1));
    input.push(b'\n');
    // The last line need not end.
    input.extend(lines(&[json!({"object": secret("a")})]).strip_suffix(b"\n").expect("a line"));
    let (events, answers) = source.send(input).await;
    assert_eq!(events, ["+default/secret/a"]);
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(answers[0]["line"], 1);
    assert!(answers[1]["error"].as_str().expect("text").contains("default/secret/absent"));
    assert!(answers[2]["error"].as_str().expect("text").contains("longer than"));
    assert_eq!(answers[3], json!({"lines": 4, "accepted": 1, "refused": 3}));
    source.stopped().await;
}

#[tokio::test]
async fn the_largest_object_passes_and_a_larger_one_is_refused_by_name() {
    let (mut source, _) = Running::start(BTreeMap::new()).await;
    let map = |name: &str, bytes: usize| {
        let data = json!({"k": "x".repeat(bytes)});
        json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}})
    };
    let (events, answers) = source
        .send(lines(&[map("fits", OBJECT_BYTES_MAX - 300), map("large", OBJECT_BYTES_MAX)]))
        .await;
    assert_eq!(events, ["+default/configmap/fits"]);
    assert!(answers[0]["error"].as_str().expect("text").starts_with("default/configmap/large: "));
    source.stopped().await;
}

#[tokio::test]
async fn one_connection_too_many_is_refused_also_while_the_controller_takes_no_events() {
    let (running, _) = Running::start(BTreeMap::new()).await;
    let connect = async || UnixStream::connect(running.socket()).await.expect("listening");
    let mut slow = connect().await;
    let object = |number: usize| json!({"object": secret(&format!("s{number}"))});
    let objects: Vec<_> = (0..2 * EVENTS_MAX).map(object).collect();
    slow.write_all(&lines(&objects)).await.expect("taken");
    tokio::time::timeout(PATIENCE, async {
        while running.events.len() < EVENTS_MAX {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the queue of events fills");
    let mut idle = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        idle.push(connect().await);
    }
    let mut answer = String::new();
    let refusal = async { connect().await.read_to_string(&mut answer).await };
    tokio::time::timeout(PATIENCE, refusal).await.expect("in time").expect("answered");
    assert!(answer.contains("connections are open already"), "{answer}");
    running.stopped().await;
}

#[tokio::test]
async fn what_an_earlier_run_published_is_listed_but_for_what_manifests_described() {
    let mut manifest = secret("from-a-file");
    manifest["metadata"]["annotations"] = json!({"headwater/manifest": "a.yaml"});
    let (mut source, list) = Running::start(published([secret("sent"), manifest])).await;
    assert_eq!(list, ["init", "+default/secret/sent", "done"]);
    let (events, _) = source.send(lines(&[json!({"delete": "default/secret/sent"})])).await;
    assert_eq!(events, ["-default/secret/sent"]);
    source.stopped().await;
}

/// The published form of these objects.
fn published(objects: impl IntoIterator<Item = Value>) -> BTreeMap<ResourceKey, PublishedObject> {
    let objects = objects.into_iter().map(|mut value| {
        let uid = format!("u-{}", value["metadata"]["name"].as_str().expect("a name"));
        let given = value["metadata"].as_object_mut().expect("a map").entry("uid");
        given.or_insert_with(|| uid.into());
        let object = Object::from_value(value).expect("an object");
        let (uid, version) = (object.uid().to_owned(), object.resource_version().to_owned());
        let published = PublishedObject::new(uid, version, object.payload().clone());
        (object.key().clone(), published)
    });
    objects.collect()
}

#[tokio::test]
async fn a_standby_refuses_lines_and_continues_with_what_the_writer_published() {
    let labelled = |name: &str, label: &str| {
        let mut secret = secret(name);
        secret["metadata"]["labels"] = json!({"team": label});
        secret
    };
    let pod = |name: &str| {
        let volume = json!({"name": "s", "secret": {"secretName": "goes"}});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "a", "containers": [{"name": "c"}], "volumes": [volume]}})
    };
    let secrets = ["stays", "changes", "goes", "again", "unused"].map(|name| labelled(name, "a"));
    let before = secrets.into_iter().chain([pod("user"), pod("former")]);
    let (mut source, _) = Running::start(published(before)).await;
    source.role.send_replace(WriterRole::Standby);
    let (events, answers) = source.send(lines(&[json!({"object": secret("refused")})])).await;
    assert_eq!(events, Vec::<String>::new());
    assert!(answers[0]["error"].as_str().expect("text").contains("another controller"));
    assert_eq!(answers[1], json!({"lines": 1, "accepted": 0, "refused": 1}));

    let mut again = labelled("again", "a");
    again["metadata"]["uid"] = json!("another");
    let secrets = [labelled("stays", "a"), labelled("changes", "b"), labelled("comes", "a"), again];
    let after: Vec<Value> = secrets.into_iter().chain([pod("user")]).collect();
    let takeover =
        |epoch, objects| Takeover { epoch, published: Arc::new(published(objects)), is_live: true };
    let first = takeover(2, after.clone());
    source.role.send_replace(WriterRole::Writer { takeover: Some(first.clone()) });
    let mut events = Vec::new();
    while events.last().is_none_or(|event| event != "taken over 2") {
        events.push(source.next().await);
    }
    events.pop();
    events.sort();
    // Of what is not published, a pod is gone, and what a pod names. No stream has what no node needs.
    assert_eq!(
        events,
        [
            "+default/secret/again",
            "+default/secret/changes",
            "+default/secret/comes",
            "-default/pod/former",
            "-default/secret/again",
            "-default/secret/goes",
        ]
    );
    // The role may be sent again: the answer is not repeated, and what was accepted since stays.
    let (events, _) = source.send(lines(&[json!({"object": secret("new")})])).await;
    assert_eq!(events, ["+default/secret/new"]);
    source.role.send_replace(WriterRole::Writer { takeover: Some(first) });
    let (events, _) = source.send(lines(&[json!({"object": secret("newer")})])).await;
    assert_eq!(events, ["+default/secret/newer"]);
    // A request that comes with the takeover is applied to what is published.
    let second = takeover(4, after);
    source.role.send_replace(WriterRole::Writer { takeover: Some(second) });
    let (events, _) = source.send(lines(&[json!({"delete": "default/secret/comes"})])).await;
    let (taken, requested) = events.split_at(1);
    assert_eq!(taken.last().map(String::as_str), Some("taken over 4"));
    assert_eq!(requested, ["-default/secret/comes"]);
    source.stopped().await;
}

#[tokio::test]
async fn the_socket_is_private_and_replaces_only_a_dead_one() {
    let (source, _) = Running::start(BTreeMap::new()).await;
    let socket = source.socket();
    let mode = std::fs::metadata(&socket).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let refuse = |path: &Path| SocketListener::bind(path).err().expect("refused").to_string();
    assert!(refuse(&socket).contains("another process listens"));
    let file = source.folder.path().join("precious");
    std::fs::write(&file, "data").expect("written");
    assert!(refuse(&file).contains("precious"));
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "data");
    let dead = source.folder.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("bound"));
    drop(SocketListener::bind(&dead).expect("nobody listens there"));
    source.stopped().await;
}

mod uids {
    use super::super::line::read_line;
    use super::*;

    fn take(state: &mut State, line: &Value) -> Result<Vec<String>, String> {
        let mut minted = 0;
        let request = read_line(line.to_string().as_bytes())?;
        let events = state.apply(request, &mut || {
            minted += 1;
            format!("minted-{minted}")
        })?;
        let text = |event: &SourceEvent| match event {
            SourceEvent::Apply(object, _) => format!("+{}", object.uid()),
            SourceEvent::Delete { uid, .. } => format!("-{uid}"),
            other => format!("{other:?}"),
        };
        Ok(events.iter().map(text).collect())
    }

    fn pod(command: &str) -> Value {
        json!({"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"nodeName": "a", "containers": [{"name": "c", "command": [command]}]}}})
    }

    #[test]
    fn an_object_keeps_its_uid_until_it_is_another() {
        let mut state = State::default();
        assert_eq!(take(&mut state, &pod("run")), Ok(vec!["+minted-1".to_owned()]));
        let mut given = pod("run");
        given["object"]["metadata"]["uid"] = "given".into();
        assert_eq!(take(&mut state, &given), Ok(vec!["-minted-1".into(), "+given".into()]));
        assert_eq!(take(&mut state, &pod("run")), Ok(vec!["+given".to_owned()]));
        assert_eq!(take(&mut state, &pod("walk")), Ok(vec!["-given".into(), "+minted-1".into()]));
        let other = json!({"delete": "default/pod/p", "uid": "given"});
        assert!(take(&mut state, &other).expect_err("another").contains("minted-1"));
        assert_eq!(
            take(&mut state, &json!({"delete": "default/pod/p"})),
            Ok(vec!["-minted-1".into()])
        );
    }
}
