//! The logs of containers, from the log files that their node's runtime names.
//!
//! A log that is followed goes on through rotation and restarts. That of an earlier run is whole, and is not followed: what comes
//! after it is the log of another run. Where rotation removed files before they were read, because the reader is slow or the
//! container writes fast, a note says so.

mod container;
pub mod line;

use std::path::PathBuf;
use std::time::Duration;

use headwater_controller::Filter;
use headwater_edged::log_file::{self, Later, LogFile};
use headwater_edged::runtime::LogQuery;
use headwater_event::ResourceKey;
use headwater_proto::operator::{LogsChunk, LogsRequest};
use serde_json::Value;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use self::line::{LineFormat, LineFormatter};
use super::{OperatorDependencies, internal, objects};

/// The bytes of one read.
const CHUNK_BYTES: usize = 64 << 10;

/// The most chunks that wait for a slow reader.
const CHUNKS_MAX: usize = 4;

/// The interval at which a followed file is read: a person follows it.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// The note in the place of rows that a reader may miss.
const GAP: &str = "rows may be missing here: the log rotated faster than it was read";

/// Lists the log files of one run of a container, oldest first. A follower lists them repeatedly.
type Paths = Box<dyn Fn() -> std::io::Result<Vec<PathBuf>> + Send + Sync>;

/// The sender of the chunks of all containers.
type Chunks = mpsc::Sender<std::io::Result<LogsChunk>>;

/// Streams the lines of containers, one container after the other; followed containers as they
/// write.
pub(super) async fn logs(
    dependencies: &OperatorDependencies,
    request: LogsRequest,
) -> Result<impl Stream<Item = std::io::Result<LogsChunk>> + Send + use<>, Status> {
    let request = LogsRequest { follow: is_followed(&request), ..request };
    let pod = find(dependencies, &request).await?;
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).ok_or_else(|| {
        Status::failed_precondition(format!("pod {} is not on a node yet", request.pod))
    })?;
    let (node, view) = dependencies.node(node)?;
    let logs = view.logs().ok_or_else(|| {
        Status::failed_precondition(format!(
            "the pods of node {node} are run by a process of its own, `headwater edged`: name with \
             --data the directory of that one, in which their logs lie"
        ))
    })?;
    let chosen = container::choose(&pod, &request)?;
    let mut written: Vec<(Paths, LineFormat)> = Vec::new();
    for container in &chosen.names {
        let query = LogQuery {
            namespace: request.namespace.clone(),
            pod: request.pod.clone(),
            container: container.clone(),
            previous: request.previous,
        };
        let logs = logs.clone();
        let paths: Paths = Box::new(move || logs.files(&query));
        let is_absent = paths().map_err(|error| internal(&error))?.is_empty();
        if is_absent && !request.follow && !request.all_containers {
            return Err(container::not_written(&pod, &request, container));
        }
        let prefix = request.prefix.then(|| format!("[pod/{}/{container}] ", request.pod));
        let form =
            LineFormat { since_ms: request.since_ms, timestamps: request.timestamps, prefix };
        written.push((paths, form));
    }
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    tokio::spawn(send_all(written, chosen.note, request, sender));
    Ok(ReceiverStream::new(receiver))
}

/// Whether the log goes on. An earlier run has ended.
fn is_followed(request: &LogsRequest) -> bool {
    request.follow && !request.previous
}

async fn send_all(
    written: Vec<(Paths, LineFormat)>,
    note: String,
    request: LogsRequest,
    sender: Chunks,
) {
    if !note.is_empty() {
        // The client may have disconnected.
        let _ = sender.send(Ok(LogsChunk { note, ..LogsChunk::default() })).await;
    }
    let mut following = tokio::task::JoinSet::new();
    for (paths, form) in written {
        let (follow, tail, sender) = (request.follow, request.tail, sender.clone());
        let sending = async move {
            let mut lines = LineFormatter::new(form);
            if let Err(error) = send(tail, follow, &paths, &mut lines, &sender).await {
                let _ = sender.send(Err(error)).await;
            }
        };
        if follow {
            following.spawn(sending);
        } else {
            sending.await;
        }
    }
    following.join_all().await;
}

/// Sends the files of one container, the last `tail` lines of them if given.
async fn send(
    tail: Option<u64>,
    follow: bool,
    paths: &Paths,
    lines: &mut LineFormatter,
    sender: &Chunks,
) -> std::io::Result<()> {
    let opened = log_file::open_all(paths).await?;
    let beginning = log_file::beginning(opened, tail, sender.closed()).await?;
    let Some(mut files) = beginning else { return Ok(()) };
    loop {
        let Some((mut newest, from)) = files.pop() else {
            if !follow || !waits(sender).await {
                return Ok(());
            }
            files = log_file::from_their_starts(log_file::open_all(paths).await?);
            continue;
        };
        for (mut older, from) in files {
            if send_rest(&mut older.file, from, lines, sender).await?.is_none() {
                return Ok(());
            }
        }
        if !follow {
            send_rest(&mut newest.file, from, lines, sender).await?;
            return Ok(());
        }
        let Some(later) = follow_file(&mut newest, from, paths, lines, sender).await? else {
            return Ok(());
        };
        if later.may_miss {
            let chunk = LogsChunk { data: lines.gap().into(), note: GAP.to_owned() };
            if sender.send(Ok(chunk)).await.is_err() {
                return Ok(());
            }
        }
        files = log_file::from_their_starts(later.files);
    }
}

/// Sends a file from an offset on, until others come after it: returns those. The container restarted, or its file was rotated.
/// `None`: the client has disconnected.
async fn follow_file(
    log: &mut LogFile,
    from: u64,
    paths: &Paths,
    lines: &mut LineFormatter,
    sender: &Chunks,
) -> std::io::Result<Option<Later>> {
    let mut at = from;
    loop {
        // They are open from here on, so that rotation does not take them while the reader is slow.
        let later = log_file::after(paths, log).await?;
        let Some(end) = send_rest(&mut log.file, at, lines, sender).await? else { return Ok(None) };
        if !waits(sender).await {
            return Ok(None);
        }
        if !later.files.is_empty() {
            // A writer that does not rotate its file itself writes to the old one for a moment after the new one is there.
            let end = send_rest(&mut log.file, end, lines, sender).await?;
            return Ok(end.map(|_| later));
        }
        at = end;
        if began_anew(&log.file, at).await? {
            at = 0;
            lines.begin_anew();
        }
    }
}

/// Waits until the next look at a followed file. Returns `false` if the client has disconnected.
async fn waits(sender: &Chunks) -> bool {
    tokio::select! {
        () = tokio::time::sleep(FOLLOW_INTERVAL) => true,
        () = sender.closed() => false,
    }
}

/// Sends what a file has from an offset on; returns the offset of its end. `None`: the client has disconnected.
async fn send_rest(
    file: &mut File,
    from: u64,
    lines: &mut LineFormatter,
    sender: &Chunks,
) -> std::io::Result<Option<u64>> {
    let mut at = file.seek(std::io::SeekFrom::Start(from)).await?;
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut bytes).await?;
        if read == 0 {
            return Ok(Some(at));
        }
        at += read as u64;
        let chunk = LogsChunk { data: lines.of(&bytes[..read]).into(), ..LogsChunk::default() };
        let is_read = if chunk.data.is_empty() {
            !sender.is_closed()
        } else {
            sender.send(Ok(chunk)).await.is_ok()
        };
        if !is_read {
            return Ok(None);
        }
    }
}

/// Whether a file was truncated since it was read up to `at`: a log of one file is truncated when
/// it is full.
async fn began_anew(file: &File, at: u64) -> std::io::Result<bool> {
    Ok(file.metadata().await?.len() < at)
}

async fn find(dependencies: &OperatorDependencies, request: &LogsRequest) -> Result<Value, Status> {
    if dependencies.nodes.is_empty() {
        return Err(Status::failed_precondition(
            "the logs of containers are on their nodes' machines: ask the data directory of the \
             pod's edge there",
        ));
    }
    let key = ResourceKey::new(Some(&request.namespace), "pod", &request.pod)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let filter = Filter { kind: "pod", namespace: &request.namespace, name: &request.pod };
    objects::now(dependencies, &filter)
        .await?
        .remove(&key)
        .ok_or_else(|| Status::not_found(format!("pods {:?} not found", request.pod)))
}

#[cfg(test)]
mod tests;
