//! The past of a stream, from the log: its state at a position, and its events.

use std::collections::VecDeque;

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{Envelope, Event, Seq, StreamId};
use headwater_log::history::{
    HistoryError, HistoryItem, PastState, StateWindow, StreamHistory, Until, fold_stream,
    stream_events, stream_window,
};
use headwater_log::read_metadata;
use headwater_object::nearest::did_you_mean;
use headwater_proto::operator::{Entry, HistoryEvent, HistoryRequest, StateRequest, StateResponse};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::mask::mask_bytes;
use super::past_position::{PastPosition, time_text};
use super::{OperatorDependencies, internal, some_of, stream_of};

/// The most events of one response: a week of a busy node.
const EVENTS_MAX: usize = 1_000_000;

/// The most events that wait for a slow reader of the response.
const WAITING_MAX: usize = 256;

/// Returns the state of a stream after one of its events.
pub(super) async fn state(
    dependencies: &OperatorDependencies,
    request: &StateRequest,
) -> Result<StateResponse, Status> {
    let stream = known_stream(dependencies, &request.stream)?;
    let at = PastPosition::parse(&request.at, (dependencies.wall_clock)())?;
    let past = match (at, request.seq) {
        (Some(PastPosition::Time(ms)), _) => {
            let past = fold_at_time(dependencies, &stream, ms).await?;
            if past.seq == Seq::ZERO {
                return Err(outside(dependencies, &[stream], ms).await?);
            }
            past
        }
        (Some(at), _) => fold(dependencies, &stream, at.until()).await?,
        (None, 0) => fold(dependencies, &stream, Until::Tail).await?,
        (None, seq) => fold(dependencies, &stream, Until::Seq(Seq(seq))).await?,
    };
    let entries = past.entries.into_iter().map(|(key, entry)| {
        let kind = key.resource().map_or("", |key| key.kind()).to_owned();
        let object = entry.applied.object;
        let object = if request.show_secrets { object } else { mask_bytes(&kind, object) };
        Entry { key: key.as_str().to_owned(), object }
    });
    Ok(StateResponse { seq: past.seq.0, hash: past.hash.to_string(), entries: entries.collect() })
}

/// Folds `stream` from the log.
pub(super) async fn fold(
    dependencies: &OperatorDependencies,
    stream: &StreamId,
    until: Until,
) -> Result<PastState, Status> {
    try_fold(dependencies, stream, until).await?.map_err(refused)
}

async fn try_fold(
    dependencies: &OperatorDependencies,
    stream: &StreamId,
    until: Until,
) -> Result<Result<PastState, HistoryError>, Status> {
    let metadata = log_metadata(dependencies).await?;
    let now_ms = (dependencies.wall_clock)();
    Ok(fold_stream(&*dependencies.logs()?.downstream, metadata, stream, until, now_ms).await)
}

/// Folds `stream` up to a time. Before its first event it is empty. A time in the future and a time
/// that compaction dropped are refused.
pub(super) async fn fold_at_time(
    dependencies: &OperatorDependencies,
    stream: &StreamId,
    ms: i64,
) -> Result<PastState, Status> {
    let streams = std::slice::from_ref(stream);
    if ms > (dependencies.wall_clock)() {
        return Err(outside(dependencies, streams, ms).await?);
    }
    match try_fold(dependencies, stream, Until::Time(ms)).await? {
        Err(HistoryError::Compacted { .. }) => Err(outside(dependencies, streams, ms).await?),
        past => past.map_err(refused),
    }
}

/// Returns the refusal of a time at which the log has no state of `streams`. It names the states of
/// the first stream that has any.
pub(super) async fn outside(
    dependencies: &OperatorDependencies,
    streams: &[StreamId],
    ms: i64,
) -> Result<Status, Status> {
    let metadata = log_metadata(dependencies).await?;
    let now_ms = (dependencies.wall_clock)();
    let log = &*dependencies.logs()?.downstream;
    for stream in streams {
        let window = stream_window(log, metadata, stream, now_ms);
        if let Some(window) = window.await.map_err(|error| internal(&error))? {
            return Ok(Status::out_of_range(outside_text(stream, &window, ms, now_ms)));
        }
    }
    let streams: Vec<String> = streams.iter().map(ToString::to_string).collect();
    let streams = some_of(streams.iter().map(String::as_str));
    Ok(Status::out_of_range(format!("the log has no events of {streams} yet")))
}

fn outside_text(stream: &StreamId, window: &StateWindow, ms: i64, now_ms: i64) -> String {
    let StateWindow { earliest, newest } = window;
    let at = |(seq, ms): &(Seq, i64)| format!("{} (seq {seq})", time_text(*ms));
    let place = if ms > now_ms { "is in the future" } else { "is before the states in the log" };
    format!(
        "{} {place}: {stream} has states from {} to {}",
        time_text(ms),
        at(earliest),
        at(newest)
    )
}

/// Streams the events of a stream from the log.
pub(super) async fn history(
    dependencies: OperatorDependencies,
    request: HistoryRequest,
) -> Result<impl Stream<Item = Result<HistoryEvent, Status>> + Send, Status> {
    let stream = known_stream(&dependencies, &request.stream)?;
    let metadata = log_metadata(&dependencies).await?;
    let now_ms = (dependencies.wall_clock)();
    let bound = |seq| (seq != 0).then_some(Seq(seq));
    let range = (bound(request.from), bound(request.to));
    let (from, to) = range;
    if let (Some(from), Some(to)) = range
        && from > to
    {
        return Err(Status::invalid_argument(format!("--from {from} is above --to {to}")));
    }
    let log = dependencies.logs()?.downstream.clone();
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let show = request.show_secrets;
    if !request.follow && request.tail == 0 {
        let events = stream_events(&*log, metadata, &stream, range, EVENTS_MAX, now_ms)
            .await
            .map_err(refused)?;
        tokio::spawn(async move {
            for envelope in events {
                if sender.send(Ok(event(envelope, show))).await.is_err() {
                    return;
                }
            }
        });
        return Ok(ReceiverStream::new(receiver));
    }
    let mut reading = StreamHistory::open(&*log, metadata, &stream, now_ms)
        .await
        .map_err(|error| internal(&error))?;
    // With a tail, the events wait until the end of the log is known.
    let tail = usize::try_from(request.tail).unwrap_or(EVENTS_MAX).min(EVENTS_MAX);
    let mut waiting = (tail != 0).then(VecDeque::new);
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                next = reading.next() => next,
                () = sender.closed() => return,
            };
            let response = match next {
                Ok(HistoryItem::Event(envelope)) => {
                    let wanted = from.is_none_or(|from| from <= envelope.seq)
                        && to.is_none_or(|to| envelope.seq <= to);
                    if !wanted {
                        continue;
                    }
                    if let Some(waiting) = &mut waiting {
                        if waiting.len() == tail {
                            waiting.pop_front();
                        }
                        waiting.push_back(envelope);
                        continue;
                    }
                    Ok(event(envelope, show))
                }
                Ok(HistoryItem::End) => {
                    for envelope in waiting.take().into_iter().flatten() {
                        if sender.send(Ok(event(envelope, show))).await.is_err() {
                            return;
                        }
                    }
                    if !request.follow {
                        return;
                    }
                    continue;
                }
                Ok(HistoryItem::Hole(_)) => continue,
                Ok(HistoryItem::Malformed(malformed)) => Err(internal(&malformed)),
                Err(error) => Err(internal(&error)),
            };
            let failed = response.is_err();
            if sender.send(response).await.is_err() || failed {
                return;
            }
        }
    });
    Ok(ReceiverStream::new(receiver))
}

/// Returns the stream of a request if it exists: an empty response would hide a typing error.
fn known_stream(dependencies: &OperatorDependencies, text: &str) -> Result<StreamId, Status> {
    let stream = stream_of(text)?;
    dependencies.logs()?;
    let known = dependencies.known_streams()?;
    if known.contains(&stream) {
        return Ok(stream);
    }
    let names: Vec<String> = known.iter().map(ToString::to_string).collect();
    let meant = did_you_mean(&stream.to_string(), names.iter().map(String::as_str));
    let names = some_of(names.iter().map(String::as_str));
    Err(Status::not_found(format!("there is no stream {stream}; there are {names}{meant}")))
}

pub(super) async fn log_metadata(
    dependencies: &OperatorDependencies,
) -> Result<LogMetadata, Status> {
    read_metadata(&*dependencies.logs()?.downstream)
        .await
        .map_err(|error| internal(&error))?
        .ok_or_else(|| {
            Status::unavailable("the log is empty: the controller has not published anything yet")
        })
}

fn event(envelope: Envelope, show_secrets: bool) -> HistoryEvent {
    let key = envelope.event.key().map(|key| key.as_str().to_owned()).unwrap_or_default();
    let kind = envelope.event.key().and_then(|key| key.resource()).map(|key| key.kind().to_owned());
    let (uid, resource_version) =
        (envelope.event.uid().to_owned(), envelope.event.resource_version().to_owned());
    let name = envelope.event.kind();
    let object: Option<Bytes> = match envelope.event {
        Event::Applied(applied) => Some(match kind.as_deref() {
            Some(kind) if !show_secrets => mask_bytes(kind, applied.object),
            _ => applied.object,
        }),
        Event::Removed(_) | Event::Head => None,
    };
    HistoryEvent {
        stream: envelope.stream.to_string(),
        seq: envelope.seq.0,
        kind: name,
        key,
        uid,
        resource_version,
        time_ms: envelope.time_ms,
        writer_epoch: envelope.epoch.0,
        object,
        hash: envelope.hash.to_string(),
    }
}

fn refused(error: HistoryError) -> Status {
    let text = headwater_telemetry::error_chain(&error);
    match error {
        HistoryError::Compacted { .. } | HistoryError::NotReached { .. } => {
            Status::out_of_range(text)
        }
        HistoryError::TooMany { .. } => Status::invalid_argument(text),
        _ => Status::internal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_state_is_refused_with_the_times_that_have_one() {
        let window = StateWindow { earliest: (Seq(3), 2_000), newest: (Seq(9), 5_000) };
        let text = |ms| outside_text(&StreamId::Cluster, &window, ms, 6_000);
        assert_eq!(
            text(1_000),
            "1970-01-01T00:00:01.000Z is before the states in the log: cluster has states from \
             1970-01-01T00:00:02.000Z (seq 3) to 1970-01-01T00:00:05.000Z (seq 9)"
        );
        assert!(text(7_000).starts_with("1970-01-01T00:00:07.000Z is in the future: cluster has"));
    }
}
