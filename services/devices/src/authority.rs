//! Connections of plugins whose requests name the path of the socket as their authority.
//!
//! gRPC for Go does so for a socket that it is given by its path (`%2Fvar%2Flib%2Fkubelet%2F...`), and every plugin is. It is
//! no authority of a URI (RFC 3986, 3.2), so the HTTP/2 server refuses the request as malformed. The header is set right
//! on its way: of the frames of a client (RFC 9113, 4.1) only those with headers change.

use std::io;

use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};

/// The first bytes of a client.
const PREFACE_BYTES: usize = 24;

/// The length, type, flags and stream of a frame.
const HEAD_BYTES: usize = 9;

/// The longest frame that the server takes, by default.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// The headers of a request: a plugin has some 200 bytes of them.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// Bytes between a connection and the server: a registration.
const BUFFER_BYTES: usize = 16 << 10;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The header, and what takes its place.
const AUTHORITY: &[u8] = b":authority";
const LOCALHOST: &[u8] = b"localhost";

/// The connections of a listener.
pub(crate) fn connections(
    listener: UnixListener,
) -> impl Stream<Item = io::Result<DuplexStream>> + Send {
    UnixListenerStream::new(listener).map(|stream| stream.map(connection))
}

/// The server's side of a connection.
fn connection(stream: UnixStream) -> DuplexStream {
    let (server, own) = tokio::io::duplex(BUFFER_BYTES);
    let (mut from, mut to) = stream.into_split();
    let (mut answers, mut requests) = tokio::io::split(own);
    tokio::spawn(async move {
        if let Err(error) = pass_on(&mut from, &mut requests).await {
            tracing::debug!(%error, "the connection of a device plugin ends");
        }
        // The server ends the connection.
        let _ = requests.shutdown().await;
    });
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut answers, &mut to).await;
        let _ = to.shutdown().await;
    });
    server
}

/// Passes on what a client sends, until it ends.
async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut preface = [0; PREFACE_BYTES];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    let mut rewriter = HeaderRewriter::default();
    loop {
        let mut head = [0; HEAD_BYTES];
        if let Err(error) = from.read_exact(&mut head).await {
            let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
            return if is_end { Ok(()) } else { Err(error) };
        }
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if length > FRAME_BYTES_MAX {
            return Err(invalid("a frame is too long"));
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await?;
        if let Some(frame) = rewriter.frame(head, payload)? {
            to.write_all(&frame).await?;
        }
    }
}

/// Sets the authority right in frames with headers. Pure.
#[derive(Default)]
struct HeaderRewriter {
    decoder: Decoder<'static>,
    /// The headers that are not whole yet: the head of their first frame, and the block.
    begun: Option<([u8; HEAD_BYTES], Vec<u8>)>,
}

impl HeaderRewriter {
    /// What takes the place of a frame; `None`: the frame is part of one to come.
    fn frame(&mut self, head: [u8; HEAD_BYTES], payload: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        let (kind, flags) = (head[3], head[4]);
        let (first, mut block) = match (kind, self.begun.take()) {
            (HEADERS, None) => (head, Vec::new()),
            (CONTINUATION, Some(begun)) => begun,
            (HEADERS | CONTINUATION, _) => return Err(invalid("headers out of their order")),
            (_, begun) => {
                self.begun = begun;
                return Ok(Some([&head[..], &payload].concat()));
            }
        };
        let part = if kind == HEADERS { unpadded(flags, &payload)? } else { &payload[..] };
        block.extend_from_slice(part);
        if block.len() > HEADER_BYTES_MAX {
            return Err(invalid("the headers are too long"));
        }
        if flags & END_HEADERS == 0 {
            self.begun = Some((first, block));
            return Ok(None);
        }
        let headers = self.decoder.decode(&block).map_err(|_| invalid("headers are malformed"))?;
        let mut block = Vec::new();
        for (name, value) in headers {
            let value = if name == AUTHORITY { LOCALHOST } else { &value[..] };
            // A literal without an index (RFC 7541, 6.2.2): the server's table stays empty.
            block.push(0);
            put_text(&name, &mut block);
            put_text(value, &mut block);
        }
        if block.len() > FRAME_BYTES_MAX {
            return Err(invalid("the headers are too long"));
        }
        let length = u32::try_from(block.len()).map_err(io::Error::other)?.to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], HEADERS];
        frame.push(first[4] & END_STREAM | END_HEADERS);
        frame.extend_from_slice(&first[5..]);
        frame.extend_from_slice(&block);
        Ok(Some(frame))
    }
}

/// The block of a frame with headers, without what is about the frame itself.
fn unpadded(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    let short = || invalid("a frame is too short");
    let (mut rest, mut padding) = (payload, 0);
    if flags & PADDED != 0 {
        let (length, after) = rest.split_first().ok_or_else(short)?;
        (padding, rest) = (usize::from(*length), after);
    }
    if flags & PRIORITY != 0 {
        rest = rest.get(5..).ok_or_else(short)?;
    }
    let end = rest.len().checked_sub(padding).ok_or_else(short)?;
    Ok(&rest[..end])
}

/// A text with its length, in seven bits and more (RFC 7541, 5.1 and 5.2).
fn put_text(text: &[u8], block: &mut Vec<u8>) {
    const PREFIX_MAX: usize = 0x7f;
    let mut length = text.len();
    if length < PREFIX_MAX {
        block.push(u8::try_from(length).unwrap_or_default());
    } else {
        block.push(0x7f);
        length -= PREFIX_MAX;
        while length >= 0x80 {
            block.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
            length >>= 7;
        }
        block.push(u8::try_from(length).unwrap_or_default());
    }
    block.extend_from_slice(text);
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use loona_hpack::Encoder;

    use super::*;

    type Headers = Vec<(Vec<u8>, Vec<u8>)>;

    fn headers(authority: &str, agent: &str) -> Headers {
        let all = [(":method", "POST"), (":authority", authority), ("user-agent", agent)];
        all.map(|(name, value)| (name.into(), value.into())).into()
    }

    fn head(length: usize, kind: u8, flags: u8) -> [u8; HEAD_BYTES] {
        let length = u8::try_from(length).expect("short");
        [0, 0, length, kind, flags, 0, 0, 0, 5]
    }

    fn decoded(frame: &[u8]) -> Headers {
        assert_eq!(usize::from(frame[1]) << 8 | usize::from(frame[2]), frame.len() - HEAD_BYTES);
        assert_eq!(frame[3..HEAD_BYTES], [HEADERS, END_STREAM | END_HEADERS, 0, 0, 0, 5]);
        Decoder::new().decode(&frame[HEAD_BYTES..]).expect("headers")
    }

    #[test]
    fn the_path_of_a_socket_is_no_authority_and_localhost_takes_its_place() {
        let (mut rewriter, mut encoder) = (HeaderRewriter::default(), Encoder::new());
        let long = "a".repeat(300);
        for agent in ["grpc-go", "grpc-go", &long] {
            let sent = headers("%2Fvar%2Flib%2Fkubelet%2Fkubelet.sock", agent);
            let sent = sent.iter().map(|(name, value)| (&name[..], &value[..]));
            // The second one names what the table has of the first.
            let block = encoder.encode(sent);
            let (some, more) = block.split_at(block.len() / 2);
            let padded = [&[2, 0, 0, 0, 0, 7][..], some, &[0, 0]].concat();
            let flags = PADDED | PRIORITY | END_STREAM;
            let first = rewriter.frame(head(padded.len(), HEADERS, flags), padded);
            assert_eq!(first.expect("well-formed"), None);
            let more = more.to_vec();
            let last = rewriter.frame(head(more.len(), CONTINUATION, END_HEADERS), more);
            let frame = last.expect("well-formed").expect("a frame");
            assert_eq!(decoded(&frame), headers("localhost", agent));
        }
    }

    #[test]
    fn every_other_frame_passes_and_a_malformed_one_ends_the_connection() {
        let mut rewriter = HeaderRewriter::default();
        let frame = rewriter.frame(head(3, 0, 1), vec![1, 2, 3]).expect("well-formed");
        assert_eq!(frame.expect("a frame")[HEAD_BYTES..], [1, 2, 3]);
        for (kind, flags, payload) in [
            (CONTINUATION, END_HEADERS, vec![]),
            (HEADERS, PADDED | END_HEADERS, vec![]),
            (HEADERS, PADDED | END_HEADERS, vec![9, 0]),
            (HEADERS, PRIORITY | END_HEADERS, vec![0; 4]),
            (HEADERS, 0, vec![0; HEADER_BYTES_MAX + 1]),
            (HEADERS, END_HEADERS, vec![0xff; 9]),
        ] {
            let mut rewriter = HeaderRewriter::default();
            let frame = [0, 0, 0, kind, flags, 0, 0, 0, 5];
            rewriter.frame(frame, payload).expect_err("malformed");
        }
    }
}
