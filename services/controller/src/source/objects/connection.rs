//! One connection: reads lines, passes requests to the state, writes responses.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::line::{Response, read_line};
use super::{CONNECTIONS_MAX, LINE_BYTES_MAX, PendingRequest};

/// Serves a connection until it ends.
pub(super) async fn serve(
    stream: UnixStream,
    requests: mpsc::Sender<PendingRequest>,
    is_full: bool,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    if is_full {
        let error = format!("{CONNECTIONS_MAX} connections are open already: try later");
        return writer.write_all(&encode(&Response::Closed { error })).await;
    }
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
