//! A witness: records what the program shows, and checks later that it is still true.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use headwater_check::positions::Positions;
use headwater_daemon::end_within;
use headwater_e2e::evidence::Evidence;
use headwater_e2e::running::{Running, WAIT, headwater};
use headwater_event::{Event, Seq, StreamId};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::NODES;

/// An event as `history -o json` shows it.
#[derive(Clone, Debug, Deserialize)]
struct Shown {
    stream: String,
    seq: u64,
    kind: String,
    uid: String,
    object: Option<Box<RawValue>>,
}

/// What a container was called, and how often it had been restarted.
type Restarts = BTreeMap<String, u64>;

/// See the module.
pub(crate) struct Witness {
    file: PathBuf,
    following: Vec<Child>,
    shown: BTreeMap<(StreamId, Seq), Shown>,
    restarts: Restarts,
}

impl Witness {
    /// A witness that records in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        let file = folder.join("shown.jsonl");
        Self { file, following: Vec::new(), shown: BTreeMap::new(), restarts: Restarts::new() }
    }

    /// Follows every stream, from the last event that was shown, until it is killed.
    pub(crate) fn attend(&mut self, running: &Running) {
        let streams = NODES.map(|node| format!("node/{node}"));
        for stream in streams.iter().map(String::as_str).chain(["cluster"]) {
            let id: StreamId = stream.parse().expect("a stream");
            let shown = self.shown.keys().filter(|(of, _)| *of == id).count() + 1;
            let notes = File::options().create(true).append(true).open(&self.file);
            let following = headwater()
                .args(["history", stream, "-f", "-o", "json", "--from", &shown.to_string()])
                // What is shown is compared with the log, byte for byte.
                .arg("--show-secrets")
                .arg("--data")
                .arg(running.data())
                .stdout(notes.expect("notes"))
                .stderr(Stdio::null())
                .spawn();
            self.following.push(following.expect("headwater starts"));
        }
    }

    /// Reads the positions of all nodes and the statuses of the pods once.
    pub(crate) fn ask(&mut self, running: &Running) {
        let status = running.json(&["status", "-o", "json"]).unwrap_or_default();
        for node in status["nodes"].as_array().into_iter().flatten() {
            for stream in node["streams"].as_array().into_iter().flatten() {
                check_positions(node, stream);
            }
        }
        for pod in running.items(&["get", "pods"]) {
            for container in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
                let id = container["containerID"].as_str().unwrap_or_default().to_owned();
                let Some(count) = container["restartCount"].as_u64() else { continue };
                if !id.is_empty() && container["state"]["running"].is_object() {
                    let before = *self.restarts.entry(id.clone()).or_insert(count);
                    assert_eq!(before, count, "{id}: the same run, counted again: {container}");
                }
            }
        }
    }

    /// Checks that everything it read is in the log. No process runs.
    pub(crate) fn check(&mut self, evidence: &Evidence) -> Result<(), String> {
        for following in self.following.drain(..) {
            // The followed process is dead, so this ends; otherwise that is a failure of its own.
            end_within(following, WAIT).map_err(|error| error.to_string())?;
        }
        let notes = fs::read_to_string(&self.file).unwrap_or_default();
        for line in notes.lines() {
            // The last line of a killed conversation may be torn.
            let Ok(shown) = serde_json::from_str::<Shown>(line) else { continue };
            let stream: StreamId = shown.stream.parse().map_err(|e| format!("{line}: {e}"))?;
            self.shown.insert((stream, Seq(shown.seq)), shown);
        }
        // What was read is in memory.
        File::create(&self.file).map_err(|error| error.to_string())?;
        for ((stream, seq), shown) in &self.shown {
            let logged = evidence.events(stream).iter().find(|event| event.seq == *seq);
            let same = logged.is_some_and(|logged| {
                let object = match &logged.event {
                    Event::Applied(applied) => Some(applied.object.as_ref()),
                    Event::Removed(_) | Event::Head => None,
                };
                let bytes = shown.object.as_ref().map(|object| object.get().as_bytes());
                logged.event.kind() == shown.kind
                    && logged.event.uid() == shown.uid
                    && object == bytes
            });
            if !same {
                return Err(format!("{stream} {seq} was shown as {shown:?}, it is {logged:?}"));
            }
        }
        Ok(())
    }
}

fn check_positions(node: &Value, stream: &Value) {
    let seq = |name: &str| Seq(stream[name].as_u64().unwrap_or_default());
    let id: StreamId = stream["stream"].as_str().unwrap_or_default().parse().expect("a stream");
    // What was sent is of the last session, until the next one has begun.
    let connected = node["connected"] == true;
    let sent = if connected { seq("sent").max(seq("applied")) } else { seq("tail") };
    let positions = Positions {
        acked: seq("acked"),
        durable: seq("durable"),
        applied: seq("applied"),
        received: seq("applied"),
        sent,
        tail: seq("tail"),
    };
    if let Err(broken) = positions.check(&id) {
        panic!("{broken}: {node}");
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        for following in &mut self.following {
            let _ = following.kill();
            let _ = following.wait();
        }
    }
}
