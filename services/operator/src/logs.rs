//! The logs of containers, from the log files that their node's runtime names.

mod container;
pub mod line;

use std::path::PathBuf;
use std::time::Duration;

use headwater_controller::Filter;
use headwater_edged::log_file::{self, LogFile};
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
    let pod = find(dependencies, &request).await?;
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).ok_or_else(|| {
        Status::failed_precondition(format!("pod {} is not on a node yet", request.pod))
    })?;
    let (node, view) = dependencies.node(node)?;
    let logs = view.logs().ok_or_else(|| {
        Status::failed_precondition(format!(
            "the pods of node {node} are run by a process of its own, `headwater edged`: what they \
             write lies in the data directory of that one, under nodes/{node}/edged/logs"
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
    let mut read: Option<LogFile> = None;
    loop {
        let count = files.len();
        for (index, (mut log, from)) in files.into_iter().enumerate() {
            let is_followed = follow && index + 1 == count;
            log.file.seek(std::io::SeekFrom::Start(from)).await?;
            if !send_file(&mut log, is_followed, paths, lines, sender).await? {
                return Ok(());
            }
            read = Some(log);
        }
        if !follow {
            return Ok(());
        }
        // The container restarted, or its file was rotated.
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_INTERVAL) => {}
            () = sender.closed() => return Ok(()),
        }
        let opened = log_file::open_all(paths).await?;
        files = log_file::from_their_starts(match &read {
            Some(read) => log_file::after(opened, read),
            None => opened,
        });
    }
}

/// Sends one file; a followed one until it is no longer the newest, and what came into it until then.
/// Returns `false` if the client has disconnected.
async fn send_file(
    log: &mut LogFile,
    follow: bool,
    paths: &Paths,
    lines: &mut LineFormatter,
    sender: &Chunks,
) -> std::io::Result<bool> {
    let mut at = log.file.stream_position().await?;
    let mut bytes = vec![0; CHUNK_BYTES];
    let (mut is_newest, mut is_followed) = (true, true);
    loop {
        let read = log.file.read(&mut bytes).await?;
        at += read as u64;
        if read > 0 {
            let data = lines.of(&bytes[..read]);
            let chunk = LogsChunk { data: data.into(), ..LogsChunk::default() };
            let is_read = if chunk.data.is_empty() {
                !sender.is_closed()
            } else {
                sender.send(Ok(chunk)).await.is_ok()
            };
            if !is_read {
                return Ok(false);
            }
            continue;
        }
        if !follow || !is_newest {
            return Ok(true);
        }
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_INTERVAL) => {}
            () = sender.closed() => return Ok(false),
        }
        if began_anew(&log.file, at).await? {
            at = log.file.seek(std::io::SeekFrom::Start(0)).await?;
            lines.begin_anew();
        }
        // The lines from before the rotation remain to be read. A writer that does not rotate its file
        // itself writes to the old one for a moment after the new one is there: the next look comes after it.
        is_newest = is_followed;
        is_followed = log_file::is_newest(paths, log)?;
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
