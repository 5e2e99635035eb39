//! Bytes between a call and a connection, both ways.
//!
//! ```text
//!   connection --read--> credit ------> bytes, end ==> call
//!   connection <-write-- buffer <------ bytes, end <== call
//!                          |                            |
//!                          +----------> taken ========> |     credit of the other end
//! ```
//!
//! An end sends only bytes for which it has credit. The buffer holds what the other end has credit for, so
//! that the call is always read: a connection that takes no bytes keeps no credit from the other direction.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use headwater_proto::replication as wire;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tonic::Status;
use tonic::codegen::Bytes;
use wire::tunnel_frame::Frame;

use crate::rate::RateLimiter;
use crate::{FRAME_BYTES_MAX, WINDOW_BYTES, frame};

/// Bytes after which the other end gets its credit back: so rarely that a copy costs no frames, and so
/// early that the other end never waits on a short link.
const TAKEN_BYTES: usize = WINDOW_BYTES / 4;

/// How long the other end may take to end the call, once both directions have ended.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Which end of a call relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The edge, which called. It ends its half of the call first.
    Edge,
    /// The hub.
    Hub,
}

/// Why a stream ended before both directions had.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Connection(#[from] std::io::Error),
    /// The call broke.
    #[error("the other end broke off: {}", .0.message())]
    Call(Box<Status>),
    /// The call ended in the middle.
    #[error("the other end ended the stream in the middle")]
    Ended,
    /// The other end violated the protocol.
    #[error("the other end violated the protocol: {0}")]
    Violation(&'static str),
}

/// Relays until both directions have ended. The end of one is handed on, and the other one continues. When
/// this returns an error, or is dropped, the connection closes and the call is reset.
///
/// # Errors
/// See [`RelayError`].
pub async fn relay<C, F>(
    end: End,
    connection: C,
    outgoing: mpsc::Sender<wire::TunnelFrame>,
    mut incoming: F,
    rate: Option<&RateLimiter>,
) -> Result<(), RelayError>
where
    C: AsyncRead + AsyncWrite,
    F: Stream<Item = Result<wire::TunnelFrame, Status>> + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(connection);
    let (mut buffer_reader, mut buffer_writer) = tokio::io::simplex(WINDOW_BYTES);
    let credit = Semaphore::new(WINDOW_BYTES);
    // Bytes sent and not taken, bytes received and not handed on, and whether no more come.
    let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let has_ended = AtomicBool::new(false);

    let up = {
        let (outgoing, credit, sent) = (outgoing.clone(), &credit, &sent);
        async move {
            let mut buffer = vec![0; FRAME_BYTES_MAX];
            loop {
                let Ok(mut permit) = credit.acquire().await else { return Err(RelayError::Ended) };
                let more = credit.available_permits().min(FRAME_BYTES_MAX - 1);
                if let Ok(rest) = credit.try_acquire_many(u32::try_from(more).unwrap_or(0)) {
                    permit.merge(rest);
                }
                let count = reader.read(&mut buffer[..permit.num_permits()]).await?;
                let bytes = match count {
                    0 => frame::end(),
                    count => frame::bytes(Bytes::copy_from_slice(&buffer[..count])),
                };
                if let Some(used) = permit.split(count) {
                    used.forget();
                }
                sent.fetch_add(count, Ordering::Relaxed);
                if let Some(rate) = rate {
                    rate.take(count).await;
                }
                outgoing.send(bytes).await.map_err(|_| RelayError::Ended)?;
                if count == 0 {
                    return Ok(());
                }
            }
        }
    };
    let down = {
        let (outgoing, received) = (outgoing.clone(), &received);
        async move {
            let mut buffer = vec![0; FRAME_BYTES_MAX];
            let mut taken = 0;
            loop {
                let count = buffer_reader.read(&mut buffer).await?;
                if count == 0 {
                    // A peer that has closed the connection has no use for its end.
                    let _ = writer.shutdown().await;
                    return Ok(());
                }
                if let Some(rate) = rate {
                    rate.take(count).await;
                }
                writer.write_all(&buffer[..count]).await?;
                writer.flush().await?;
                received.fetch_sub(count, Ordering::Relaxed);
                taken += count;
                if taken >= TAKEN_BYTES {
                    let frame = frame::taken(std::mem::take(&mut taken));
                    outgoing.send(frame).await.map_err(|_| RelayError::Ended)?;
                }
            }
        }
    };
    let receive = async {
        while let Some(frame) = incoming.next().await {
            match frame.map_err(|status| RelayError::Call(Box::new(status)))?.frame {
                Some(Frame::Bytes(bytes)) => {
                    if has_ended.load(Ordering::Relaxed) {
                        return Err(RelayError::Violation("bytes after the end"));
                    }
                    let waiting = received.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
                    if waiting > WINDOW_BYTES {
                        return Err(RelayError::Violation("more bytes than it has room for"));
                    }
                    // It has room, so this does not wait.
                    buffer_writer.write_all(&bytes).await?;
                }
                Some(Frame::Taken(count)) => {
                    let count = usize::try_from(count).unwrap_or(usize::MAX);
                    if count > sent.load(Ordering::Relaxed) {
                        return Err(RelayError::Violation("more bytes taken than sent"));
                    }
                    sent.fetch_sub(count, Ordering::Relaxed);
                    credit.add_permits(count);
                }
                Some(Frame::End(_)) => {
                    has_ended.store(true, Ordering::Relaxed);
                    buffer_writer.shutdown().await?;
                }
                Some(Frame::Open(_)) => return Err(RelayError::Violation("a second opening")),
                // A later version may have more frames.
                None => {}
            }
        }
        Ok(())
    };

    let mut both = pin!(async { tokio::try_join!(up, down) });
    let mut receive = pin!(receive);
    let has_call_ended = tokio::select! {
        biased;
        moved = &mut both => {
            moved?;
            false
        }
        ended = &mut receive => {
            ended?;
            if !has_ended.load(Ordering::Relaxed) {
                return Err(RelayError::Ended);
            }
            // What was received is still on its way to the connection.
            both.await?;
            true
        }
    };
    // The edge ends its half, then the hub the call: neither resets what is still on its way.
    let outgoing = (end == End::Hub).then_some(outgoing);
    if !has_call_ended {
        let _ = timeout(END_WITHIN, receive).await;
    }
    drop(outgoing);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    type Frames = mpsc::Receiver<wire::TunnelFrame>;

    /// A relay whose call is in the hands of the test.
    struct Bench {
        connection: DuplexStream,
        to_relay: mpsc::Sender<Result<wire::TunnelFrame, Status>>,
        from_relay: Frames,
        relaying: JoinHandle<Result<(), RelayError>>,
    }

    fn bench() -> Bench {
        let (connection, far) = duplex(1 << 10);
        let (to_relay, incoming) = mpsc::channel(1_024);
        let (outgoing, from_relay) = mpsc::channel(1_024);
        let incoming = ReceiverStream::new(incoming);
        let relaying = tokio::spawn(relay(End::Hub, far, outgoing, incoming, None));
        Bench { connection, to_relay, from_relay, relaying }
    }

    /// Two relays, end to end.
    fn pair() -> (DuplexStream, DuplexStream, [JoinHandle<Result<(), RelayError>>; 2]) {
        let ((near, at_hub), (far, at_edge)) = (duplex(4 << 10), duplex(4 << 10));
        let (to_edge, from_hub) = mpsc::channel(crate::FRAMES_MAX);
        let (to_hub, from_edge) = mpsc::channel(crate::FRAMES_MAX);
        let stream = |frames: Frames| ReceiverStream::new(frames).map(Ok);
        let hub = tokio::spawn(relay(End::Hub, at_hub, to_edge, stream(from_edge), None));
        let edge = tokio::spawn(relay(End::Edge, at_edge, to_hub, stream(from_hub), None));
        (near, far, [hub, edge])
    }

    async fn violation(frames: Vec<wire::TunnelFrame>) -> String {
        let bench = bench();
        for frame in frames {
            bench.to_relay.send(Ok(frame)).await.expect("room");
        }
        bench.relaying.await.expect("it ends").expect_err("a violation").to_string()
    }

    #[tokio::test]
    async fn bytes_and_each_end_arrive_whole_both_ways() {
        let (mut near, mut far, relays) = pair();
        let (request, answer) = (vec![7; 3 * WINDOW_BYTES + 5], vec![8; 2 * WINDOW_BYTES + 9]);
        let client = async {
            near.write_all(&request).await.expect("written");
            near.shutdown().await.expect("its end");
            let mut all = Vec::new();
            near.read_to_end(&mut all).await.expect("read");
            all
        };
        let server = async {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.expect("the other direction goes on");
            far.write_all(&answer).await.expect("written");
            far.shutdown().await.expect("its end");
            all
        };
        let (answered, asked) = tokio::join!(client, server);
        assert!(asked == request && answered == answer, "{} {}", asked.len(), answered.len());
        for relay in relays {
            relay.await.expect("it ends").expect("in order");
        }
    }

    #[tokio::test]
    async fn no_more_than_the_window_is_in_flight() {
        let mut bench = bench();
        let mut connection = bench.connection;
        let writing = tokio::spawn(async move {
            let _ = connection.write_all(&vec![1; 4 * WINDOW_BYTES]).await;
            connection
        });
        let mut flown = 0;
        while flown < WINDOW_BYTES {
            let frame = bench.from_relay.recv().await.expect("a frame").frame;
            let Some(Frame::Bytes(bytes)) = frame else { panic!("{frame:?}") };
            assert!(bytes.len() <= FRAME_BYTES_MAX);
            flown += bytes.len();
        }
        assert_eq!(flown, WINDOW_BYTES);
        tokio::task::yield_now().await;
        assert!(bench.from_relay.try_recv().is_err(), "it has no credit left");
        bench.to_relay.send(Ok(frame::taken(100))).await.expect("room");
        let mut more = 0;
        while more < 100 {
            let frame = bench.from_relay.recv().await.expect("a frame").frame;
            let Some(Frame::Bytes(bytes)) = frame else { panic!("{frame:?}") };
            more += bytes.len();
        }
        assert_eq!(more, 100);
        bench.relaying.abort();
        writing.await.expect("the writer ends with the connection");
    }

    #[tokio::test]
    async fn a_connection_that_takes_nothing_keeps_no_credit_from_the_other_direction() {
        let mut bench = bench();
        // More than the connection takes, and nothing reads it.
        for _ in 0..WINDOW_BYTES / FRAME_BYTES_MAX {
            let frame = frame::bytes(vec![2; FRAME_BYTES_MAX].into());
            bench.to_relay.send(Ok(frame)).await.expect("room");
        }
        bench.connection.write_all(&[3; 600]).await.expect("written");
        let first = bench.from_relay.recv().await.expect("a frame");
        assert!(matches!(first.frame, Some(Frame::Bytes(_))));
        let (mut reader, mut writer) = tokio::io::split(bench.connection);
        let writing = tokio::spawn(async move {
            let _ = writer.write_all(&vec![1; 2 * WINDOW_BYTES]).await;
        });
        let mut flown = 600;
        while flown < 2 * WINDOW_BYTES {
            let Some(Frame::Bytes(bytes)) = bench.from_relay.recv().await.expect("one").frame
            else {
                continue;
            };
            flown += bytes.len();
            bench.to_relay.send(Ok(frame::taken(bytes.len()))).await.expect("room");
        }
        let mut all = vec![0; WINDOW_BYTES];
        reader.read_exact(&mut all).await.expect("it was kept");
        bench.relaying.abort();
        let _ = writing.await;
    }

    #[tokio::test]
    async fn what_breaks_the_bounds_ends_the_stream() {
        let full = || frame::bytes(vec![0; FRAME_BYTES_MAX].into());
        let many = std::iter::repeat_with(full).take(WINDOW_BYTES / FRAME_BYTES_MAX + 1).collect();
        assert!(violation(many).await.contains("more bytes than it has room for"));
        assert!(violation(vec![frame::taken(1)]).await.contains("more bytes taken than sent"));
        let late = vec![frame::end(), frame::bytes(vec![0].into())];
        assert!(violation(late).await.contains("bytes after the end"));
        let open = frame::open([0; 16], "gw-1", None);
        assert!(violation(vec![open]).await.contains("a second opening"));
    }

    #[tokio::test]
    async fn a_call_that_ends_in_the_middle_closes_the_connection() {
        let Bench { mut connection, to_relay, relaying, .. } = bench();
        drop(to_relay);
        let error = relaying.await.expect("it ends").expect_err("it is in the middle");
        assert!(matches!(error, RelayError::Ended), "{error}");
        assert_eq!(connection.read(&mut [0; 8]).await.expect("an end"), 0);
    }
}
