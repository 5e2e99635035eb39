//! What a container wrote, from the log files of its node's pod worker.

use std::path::PathBuf;
use std::time::Duration;

use headwater_controller::Filter;
use headwater_edged::log_paths;
use headwater_event::ResourceKey;
use headwater_proto::operator::LogsRequest;
use serde_json::Value;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Sight, internal};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks waiting for a slow reader.
const CHUNKS_MAX: usize = 4;

/// How often a followed file is looked at: a person reads along.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// The text that a container wrote, line by line, without the log's own columns.
pub(super) async fn logs(
    sight: &Sight,
    request: &LogsRequest,
) -> Result<impl Stream<Item = std::io::Result<Vec<u8>>> + Send + use<>, Status> {
    let pod = find(sight, request)?;
    let node = text(&pod, "/spec/nodeName").ok_or_else(|| {
        Status::failed_precondition(format!("pod {} is not on a node yet", request.pod))
    })?;
    let (node, _) = sight.node(node)?;
    let container = container(&pod, request)?;
    let dir = (sight.node_dirs)(&node);
    let paths = {
        let (namespace, pod) = (request.namespace.clone(), request.pod.clone());
        let (previous, dir) = (request.previous, dir.clone());
        move || log_paths(&dir, &namespace, &pod, &container, previous)
    };
    let found = paths().map_err(|error| internal(&error))?;
    if found.is_empty() && !request.follow {
        let which = if request.previous { "no earlier run" } else { "not started" };
        let name = &request.pod;
        return Err(Status::not_found(format!("the container of pod {name} has {which}")));
    }
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    let follow = request.follow;
    tokio::spawn(async move {
        if let Err(error) = send(found, follow, paths, &sender).await {
            let _ = sender.send(Err(error)).await;
        }
    });
    Ok(ReceiverStream::new(receiver))
}

async fn send(
    found: Vec<PathBuf>,
    follow: bool,
    paths: impl Fn() -> std::io::Result<Vec<PathBuf>>,
    sender: &mpsc::Sender<std::io::Result<Vec<u8>>>,
) -> std::io::Result<()> {
    let mut files = found;
    let mut text = Text::default();
    loop {
        let newest = files.last().cloned();
        for path in &files {
            let follow_this = follow && Some(path) == newest.as_ref();
            if !send_file(path, follow_this, &paths, &mut text, sender).await? {
                return Ok(());
            }
        }
        if !follow {
            return Ok(());
        }
        // The container was started again, or its file was rotated.
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        files = paths()?.pop().into_iter().collect();
    }
}

/// Sends one file; a followed one until it is no longer the newest. `false`: nobody reads.
async fn send_file(
    path: &PathBuf,
    follow: bool,
    paths: &impl Fn() -> std::io::Result<Vec<PathBuf>>,
    text: &mut Text,
    sender: &mpsc::Sender<std::io::Result<Vec<u8>>>,
) -> std::io::Result<bool> {
    let mut file = File::open(path).await?;
    let opened = file.metadata().await?;
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut bytes).await?;
        if read > 0 {
            let chunk = text.of(&bytes[..read]);
            if !chunk.is_empty() && sender.send(Ok(chunk)).await.is_err() {
                return Ok(false);
            }
            continue;
        }
        if !follow {
            return Ok(true);
        }
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_INTERVAL) => {}
            () = sender.closed() => return Ok(false),
        }
        let same = match (paths()?.pop(), tokio::fs::metadata(path).await) {
            (Some(newest), Ok(now)) => {
                use std::os::unix::fs::MetadataExt;
                newest == *path && now.ino() == opened.ino()
            }
            _ => false,
        };
        if !same && file.read(&mut bytes[..1]).await? == 0 {
            return Ok(true);
        }
    }
}

/// Takes the log's own columns (`time stream tag text`, as CRI runtimes write) off each line.
#[derive(Default)]
struct Text {
    partial: Vec<u8>,
}

impl Text {
    fn of(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.partial.extend_from_slice(bytes);
        let mut out = Vec::new();
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else { return out };
        let rest = self.partial.split_off(end + 1);
        for line in self.partial.split_inclusive(|byte| *byte == b'\n') {
            let mut columns = line.splitn(4, |byte| *byte == b' ');
            let tag = columns.nth(2);
            match (tag, columns.next()) {
                // A partial line: the next one continues it.
                (Some(b"P"), Some(text)) => out.extend(text.strip_suffix(b"\n").unwrap_or(text)),
                (Some(_), Some(text)) => out.extend(text),
                _ => out.extend(line),
            }
        }
        self.partial = rest;
        out
    }
}

fn find(sight: &Sight, request: &LogsRequest) -> Result<Value, Status> {
    let key = ResourceKey::new(Some(&request.namespace), "pod", &request.pod)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let filter = Filter { kind: "pod", namespace: &request.namespace, name: &request.pod };
    let objects = sight.picture.objects(&filter, (sight.wall_clock)());
    objects
        .map_err(|error| internal(&error))?
        .remove(&key)
        .ok_or_else(|| Status::not_found(format!("pods {:?} not found", request.pod)))
}

/// The container meant: the one named, or the only one.
fn container(pod: &Value, request: &LogsRequest) -> Result<String, Status> {
    let names: Vec<&str> = ["/spec/containers", "/spec/initContainers"]
        .iter()
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten()
        .filter_map(|container| container["name"].as_str())
        .collect();
    let mains = pod.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    match request.container.as_str() {
        "" if mains == 1 => Ok(names[0].to_owned()),
        "" => Err(Status::invalid_argument(format!(
            "pod {} has several containers, name one with -c: {}",
            request.pod,
            names.join(", ")
        ))),
        name if names.contains(&name) => Ok(name.to_owned()),
        name => Err(Status::invalid_argument(format!(
            "pod {} has no container {name}; it has {}",
            request.pod,
            names.join(", ")
        ))),
    }
}

fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_container_wrote_is_shown() {
        let mut text = Text::default();
        let mut shown = text.of(b"2026-01-01T00:00:00.1Z stdout F hello world\n2026-01-01T");
        shown.extend(text.of(b"00:00:01Z stderr P part \n2026-01-01T00:00:02Z stderr F whole\n"));
        shown.extend(text.of(b"2026-01-01T00:00:03Z stdout F \n"));
        assert_eq!(String::from_utf8_lossy(&shown), "hello world\npart whole\n\n");
    }
}
