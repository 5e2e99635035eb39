//! The log of one container's run, from the files that its runtime names.
//!
//! A log that is followed goes on through rotation, and ends with the run, as under a kubelet. Where rotation removed files
//! before they were read, because the client reads slowly or the container writes fast, a line says so.

pub mod lines;

use std::io::{self, SeekFrom};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use headwater_edged::log_file::{self, Later, LogFile};
use headwater_edged::pod::{self, PodUid};
use headwater_edged::runtime::{LogQuery, RunState};
use headwater_edged::{ContainerLogs, NodePods};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use self::lines::LineSelection;
use crate::query::LogOptions;
use crate::response::{Body, of_type};
use crate::route::ContainerPath;

/// The bytes of one read.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks that wait for a client that reads slowly.
const CHUNKS_MAX: usize = 4;

/// How often a followed file is read: a person follows it.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Looks without a new byte, after a run has ended, before its log counts as whole: the runtime may
/// know of the end before the last bytes are in the file.
const QUIET_LOOKS: u32 = 2;

/// A log that is being sent.
struct LogReader {
    logs: ContainerLogs,
    query: LogQuery,
    pods: NodePods,
    uid: PodUid,
    /// The run that is followed, if it ran when the log was asked for.
    attempt: Option<u32>,
    lines: LineSelection,
    chunks: mpsc::Sender<io::Result<Bytes>>,
}

/// Why the sending of a log ends before its end.
enum Stop {
    /// The client has gone, or has all the bytes that it wants.
    Client,
    File(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

/// The log that `options` select. `slot` is held as long as it is sent.
///
/// # Errors
/// Why there is none, in a kubelet's words.
pub(crate) async fn answer(
    pods: &NodePods,
    path: &ContainerPath,
    pod: &Pod,
    uid: &PodUid,
    options: LogOptions,
    slot: OwnedSemaphorePermit,
) -> Result<Response<Body>, String> {
    let query = LogQuery {
        namespace: path.namespace.clone(),
        pod: path.pod.clone(),
        container: path.container.clone(),
        previous: options.previous,
    };
    let logs = pods.logs();
    if logs.files(&query).map_err(|error| error.to_string())?.is_empty() {
        return Err(not_written(pod, path, options.previous));
    }
    let running = pods.runtime().pod(uid).containers.get(&path.container).and_then(|history| {
        matches!(history.state, RunState::Running { .. }).then_some(history.attempt)
    });
    let attempt = running.filter(|_| options.follow && !options.previous);
    let (chunks, sent) = mpsc::channel(CHUNKS_MAX);
    let tail = options.tail;
    let lines = LineSelection::new(options);
    let mut reader =
        LogReader { logs, query, pods: pods.clone(), uid: uid.clone(), attempt, lines, chunks };
    tokio::spawn(async move {
        if let Err(Stop::File(error)) = reader.send_all(tail).await {
            tracing::debug!(%error, "a log was not sent to its end");
            // The connection breaks off, so that the client does not take it for the end.
            let _ = reader.chunks.send(Err(error)).await;
        }
        drop(slot);
    });
    let frames = ReceiverStream::new(sent).map(|chunk| chunk.map(Frame::data));
    let body = StreamBody::new(frames).boxed_unsync();
    Ok(of_type(StatusCode::OK, "text/plain", body))
}

impl LogReader {
    async fn send_all(&mut self, tail: Option<u64>) -> Result<(), Stop> {
        let chunks = self.chunks.clone();
        let opened = log_file::open_all(|| self.logs.files(&self.query)).await?;
        let beginning = log_file::beginning(opened, tail, chunks.closed()).await?;
        let mut files = beginning.ok_or(Stop::Client)?;
        while let Some((mut newest, from)) = files.pop() {
            for (mut older, from) in files {
                older.file.seek(SeekFrom::Start(from)).await?;
                self.send_rest(&mut older.file).await?;
            }
            newest.file.seek(SeekFrom::Start(from)).await?;
            let later = self.follow(&mut newest).await?;
            if later.may_miss {
                let line = self.lines.gap();
                self.chunks.send(Ok(line.into())).await.map_err(|_| Stop::Client)?;
            }
            files = log_file::from_their_starts(later.files);
        }
        Ok(())
    }

    /// Sends a file until its run has ended, or others come after it: returns those.
    async fn follow(&mut self, log: &mut LogFile) -> Result<Later, Stop> {
        let mut quiet = 0;
        loop {
            // Before the read: what was written before an end that is seen here is read now.
            let is_writing = self.is_writing();
            let later = self.after(log).await?;
            let sent = self.send_rest(&mut log.file).await?;
            if !later.files.is_empty() {
                // A runtime writes to the old file for a moment after the new one is there.
                tokio::time::sleep(FOLLOW_INTERVAL).await;
                self.send_rest(&mut log.file).await?;
                return Ok(later);
            }
            quiet = if sent == 0 && !is_writing { quiet + 1 } else { 0 };
            if self.attempt.is_none() || quiet >= QUIET_LOOKS {
                return Ok(Later::default());
            }
            tokio::select! {
                () = tokio::time::sleep(FOLLOW_INTERVAL) => {}
                () = self.chunks.closed() => return Err(Stop::Client),
            }
            // A log of one file is truncated when it is full.
            let at = log.file.stream_position().await?;
            if log.file.metadata().await?.len() < at {
                log.file.seek(SeekFrom::Start(0)).await?;
                self.lines.begin_anew();
            }
        }
    }

    /// Whether the run that is followed may still write.
    fn is_writing(&self) -> bool {
        let state = self.pods.runtime().pod(&self.uid);
        state.containers.get(&self.query.container).is_some_and(|history| {
            Some(history.attempt) == self.attempt
                && matches!(history.state, RunState::Running { .. })
        })
    }

    /// The files of the followed run that come after `log`. The next run is not followed.
    async fn after(&self, log: &LogFile) -> io::Result<Later> {
        match self.attempt {
            Some(_) => log_file::after_in_run(log).await,
            None => Ok(Later::default()),
        }
    }

    /// Sends what a file has from here on; returns how many bytes it had.
    async fn send_rest(&mut self, file: &mut File) -> Result<u64, Stop> {
        let (mut bytes, mut sent) = (vec![0; CHUNK_BYTES], 0);
        loop {
            let read = file.read(&mut bytes).await?;
            if read == 0 {
                return Ok(sent);
            }
            sent += read as u64;
            let chunk = self.lines.of(&bytes[..read]);
            if !chunk.is_empty() && self.chunks.send(Ok(chunk.into())).await.is_err() {
                return Err(Stop::Client);
            }
            if self.lines.is_full() || self.chunks.is_closed() {
                return Err(Stop::Client);
            }
        }
    }
}

/// Why a container has no log, in a kubelet's words.
fn not_written(pod: &Pod, path: &ContainerPath, previous: bool) -> String {
    let (name, pod_name) = (&path.container, &path.pod);
    let mut statuses = pod.status.iter().flat_map(pod::container_statuses);
    let status = statuses.find(|status| status.name == *name);
    if previous {
        return format!("previous terminated container {name:?} in pod {pod_name:?} not found");
    }
    let Some(status) = status else {
        return format!("container {name:?} in pod {pod_name:?} is not available");
    };
    let waiting = status.state.as_ref().and_then(|ContainerState { waiting, .. }| waiting.as_ref());
    let waits = format!("container {name:?} in pod {pod_name:?} is waiting to start");
    match waiting.and_then(|waiting| waiting.reason.as_deref()) {
        Some("ErrImagePull") => format!("{waits}: image can't be pulled"),
        Some("ImagePullBackOff") => format!("{waits}: trying and failing to pull image"),
        Some(reason) => format!("{waits}: {reason}"),
        None => format!("{waits} - no logs yet"),
    }
}
