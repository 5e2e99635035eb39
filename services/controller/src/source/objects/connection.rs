//! One connection: reads lines, passes requests to the state, writes responses.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::line::{Response, read_line};
use super::{CONNECTIONS_MAX, LINE_BYTES_MAX, PendingRequest};

/// Serves a connection until it ends; refuses one without a place.
pub(super) async fn serve(
    stream: UnixStream,
    requests: mpsc::Sender<PendingRequest>,
    place: Option<OwnedSemaphorePermit>,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    // It is dropped before the writer, whose drop ends the response: a client that has read the whole response finds its
    // place free.
    let Some(_place) = place else {
        let error = format!("{CONNECTIONS_MAX} connections are open already: try later");
        return writer.write_all(&encode(&Response::Closed { error })).await;
    };
    let mut reader = BufReader::new(reader);
    let mut buffer = Vec::new();
    let (mut lines, mut accepted) = (0, 0);
    while let Some(line) = next_line(&mut reader, &mut buffer).await? {
        if matches!(line, Line::Whole) && buffer.trim_ascii().is_empty() {
            continue;
        }
        lines += 1;
        let outcome = match line {
            Line::TooLong => Err(format!("the line is longer than {LINE_BYTES_MAX} bytes")),
            Line::Whole => match read_line(&buffer) {
                Ok(request) => {
                    let (response, received) = oneshot::channel();
                    if requests.send(PendingRequest { request, response }).await.is_err() {
                        return Ok(());
                    }
                    match received.await {
                        Ok(outcome) => outcome,
                        // The source stops.
                        Err(_) => return Ok(()),
                    }
                }
                Err(reason) => Err(reason),
            },
        };
        match outcome {
            Ok(()) => accepted += 1,
            Err(error) => {
                writer.write_all(&encode(&Response::Refused { line: lines, error })).await?
            }
        }
    }
    writer.write_all(&encode(&Response::Done { lines, accepted, refused: lines - accepted })).await
}

enum Line {
    Whole,
    TooLong,
}

/// Reads a line into `buffer`, at most the bound; the rest of a longer line is skipped.
async fn next_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Line>> {
    buffer.clear();
    let mut length = 0;
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            let outcome = if length > LINE_BYTES_MAX { Line::TooLong } else { Line::Whole };
            return Ok((length > 0).then_some(outcome));
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        length += part.len();
        if length <= LINE_BYTES_MAX {
            buffer.extend_from_slice(part);
        }
        let read = part.len() + usize::from(end.is_some());
        reader.consume(read);
        if end.is_some() {
            return Ok(Some(if length > LINE_BYTES_MAX { Line::TooLong } else { Line::Whole }));
        }
    }
}

fn encode(response: &Response) -> Vec<u8> {
    // A response has no part that fails to serialize.
    let mut line = serde_json::to_vec(response).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::Shutdown;
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    /// Connections that begin as soon as the one before has ended. With a place that was free too late, one of the first ten
    /// had none.
    const CONNECTIONS: usize = 1_000;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_that_has_read_the_whole_response_finds_its_place_free() {
        let places = Arc::new(Semaphore::new(1));
        for number in 0..CONNECTIONS {
            let (client, server) = UnixStream::pair().expect("a connection");
            let place = places.clone().try_acquire_owned().ok();
            assert!(place.is_some(), "connection {number} has no place");
            let (requests, _pending) = mpsc::channel(1);
            tokio::spawn(serve(server, requests, place));
            let mut client = client.into_std().expect("a socket");
            client.set_nonblocking(false).expect("it can block");
            client.shutdown(Shutdown::Write).expect("it is open");
            let mut response = String::new();
            client.read_to_string(&mut response).expect("a response");
            assert_eq!(response, "{\"lines\":0,\"accepted\":0,\"refused\":0}\n");
        }
    }
}
