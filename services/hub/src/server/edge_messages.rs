//! The messages of an edge, out of the body of its request.
//!
//! tonic's own stream keeps a buffer as large as its largest message until the call ends: an edge that was
//! offline sends a megabyte of reports once, and heartbeats for hours. This one has a buffer only while a
//! message is incomplete.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use futures::Stream;
use headwater_proto::codec::{HEADER_BYTES, NOT_COMPRESSED};
use headwater_proto::replication::EdgeMessage;
use headwater_proto::wire::STREAMS_MAX;
use http_body::Body;
use prost::Message;
use tonic::codegen::StdError;
use tonic::{Code, Status};

use super::service::IncomingMessage;

/// Bytes of a hello at most, which is read before its edge is known: those of a position in each stream that
/// an edge may have. A position has the name of its stream, a checkpoint and a hash.
const HELLO_BYTES_MAX: usize = STREAMS_MAX * 512;

/// A message of so many bytes leaves no buffer behind, whatever follows it.
const LARGE_BYTES: usize = 32 << 10;

/// The messages of one edge. It ends behind the first error.
pub(super) struct EdgeMessages<B> {
    body: Pin<Box<B>>,
    /// Bytes of the next message, at most.
    bytes_max: usize,
    /// The same of those behind the hello.
    later_bytes_max: usize,
    /// What has arrived of the next messages.
    buffer: BytesMut,
    is_ended: bool,
}

impl<B> EdgeMessages<B> {
    /// The messages in `body`: a hello, and others of `bytes_max` at most.
    pub(super) fn new(body: B, bytes_max: usize) -> Self {
        Self {
            body: Box::pin(body),
            bytes_max: bytes_max.min(HELLO_BYTES_MAX),
            later_bytes_max: bytes_max,
            buffer: BytesMut::new(),
            is_ended: false,
        }
    }

    /// The next message, if it has arrived.
    fn next_complete(&mut self) -> Result<Option<EdgeMessage>, Status> {
        let Some((mut header, rest)) = self.buffer.split_at_checked(HEADER_BYTES) else {
            return Ok(None);
        };
        if header.get_u8() != NOT_COMPRESSED {
            return Err(Status::internal(
                "a message is compressed, and the call names no encoding",
            ));
        }
        let (bytes, max) =
            (usize::try_from(header.get_u32()).unwrap_or(usize::MAX), self.bytes_max);
        if bytes > max {
            let text = format!("a message has {bytes} bytes, at most {max} are allowed");
            return Err(Status::out_of_range(text));
        }
        let Some((message, behind)) = rest.split_at_checked(bytes) else { return Ok(None) };
        // Out of a slice: the fields are copies. A report that waits for the log would otherwise keep all
        // bytes of its message, of which it counts only its own.
        let message = EdgeMessage::decode(message);
        if behind.is_empty() || bytes >= LARGE_BYTES {
            self.buffer = BytesMut::from(behind);
        } else {
            self.buffer.advance(HEADER_BYTES + bytes);
        }
        self.bytes_max = self.later_bytes_max;
        message.map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn ends_with(&mut self, status: Status) -> Poll<Option<IncomingMessage>> {
        self.is_ended = true;
        Poll::Ready(Some(Err(status)))
    }
}

impl<B> Stream for EdgeMessages<B>
where
    B: Body,
    B::Error: Into<StdError>,
{
    type Item = IncomingMessage;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<IncomingMessage>> {
        while !self.is_ended {
            match self.next_complete() {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Ok(None) => {}
                Err(status) => return self.ends_with(status),
            }
            match ready!(self.body.as_mut().poll_frame(context)) {
                Some(Ok(frame)) => {
                    // Nothing follows the trailers.
                    if let Ok(data) = frame.into_data() {
                        self.buffer.put(data);
                    }
                }
                Some(Err(error)) => {
                    let status = Status::from_error(error.into());
                    if status.code() != Code::Cancelled {
                        return self.ends_with(status);
                    }
                    // The edge has left.
                    self.is_ended = true;
                }
                None if self.buffer.is_empty() => self.is_ended = true,
                None => return self.ends_with(Status::internal("the last message is incomplete")),
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;
    use futures::{FutureExt, StreamExt};
    use headwater_proto::replication::edge_message::Message as Kind;
    use headwater_proto::replication::{EdgeMessage as Wire, Request};
    use http_body::Frame;

    use super::*;

    const MESSAGE_BYTES_MAX: usize = 1 << 20;

    /// A body of these parts; then more may follow, or not.
    struct Parts {
        parts: VecDeque<Result<Bytes, Status>>,
        is_whole: bool,
    }

    impl Body for Parts {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.parts.pop_front() {
                Some(part) => Poll::Ready(Some(part.map(Frame::data))),
                None if self.is_whole => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    fn messages(parts: Vec<Result<Bytes, Status>>, is_whole: bool) -> EdgeMessages<Parts> {
        let body = Parts { parts: parts.into(), is_whole };
        EdgeMessages { bytes_max: MESSAGE_BYTES_MAX, ..EdgeMessages::new(body, MESSAGE_BYTES_MAX) }
    }

    fn request(bytes: usize) -> Wire {
        let body = Bytes::from(vec![7; bytes]);
        Wire { message: Some(Kind::Request(Request { body, ..Request::default() })) }
    }

    fn framed(message: &Wire) -> Vec<u8> {
        framed_bytes(&message.encode_to_vec())
    }

    fn framed_bytes(message: &[u8]) -> Vec<u8> {
        let mut framed = vec![NOT_COMPRESSED];
        framed.put_u32(u32::try_from(message.len()).expect("small"));
        framed.extend_from_slice(message);
        framed
    }

    fn code(next: Option<IncomingMessage>) -> Code {
        next.expect("an error").expect_err("an error").code()
    }

    #[test]
    fn messages_arrive_in_parts_and_several_at_once_and_leave_no_buffer_behind() {
        let sent = [request(500_000), request(1), request(2), request(100)];
        let bytes = Bytes::from(sent.iter().flat_map(framed).collect::<Vec<u8>>());
        for part in [1 << 10, 64 << 10, bytes.len()] {
            let parts = (0..bytes.len()).step_by(part);
            let parts = parts.map(|at| Ok(bytes.slice(at..bytes.len().min(at + part))));
            let mut messages = messages(parts.collect(), false);
            for sent in &sent {
                let received = messages.next().now_or_never().flatten().expect("it is there");
                assert_eq!(&received.expect("well-formed"), sent);
            }
            assert!(messages.next().now_or_never().is_none(), "more may follow");
            assert_eq!(messages.buffer.capacity(), 0);
        }
    }

    #[test]
    fn a_body_that_breaks_the_form_ends_with_an_error_and_then_for_good() {
        let mut compressed = framed(&request(1));
        compressed[0] = 1;
        let mut cut_off = framed(&request(1));
        cut_off.pop();
        for (part, expected) in [
            (Ok(Bytes::from(framed(&request(MESSAGE_BYTES_MAX)))), Code::OutOfRange),
            (Ok(Bytes::from(compressed)), Code::Internal),
            (Ok(Bytes::from(cut_off)), Code::Internal),
            (Ok(Bytes::from_static(&[0, 0, 0, 0, 1, 255])), Code::Internal),
            (Err(Status::unavailable("broken")), Code::Unavailable),
        ] {
            let mut messages = messages(vec![part], true);
            assert_eq!(code(messages.next().now_or_never().expect("it has arrived")), expected);
            assert!(messages.next().now_or_never().expect("it has ended").is_none());
        }
    }

    #[test]
    fn a_field_keeps_no_more_than_its_own_bytes() {
        let mut large = request(1).encode_to_vec();
        // An unknown field of a megabyte, less the room of the known ones.
        prost::encoding::encode_key(99, prost::encoding::WireType::LengthDelimited, &mut large);
        prost::encoding::encode_varint(1_000_000, &mut large);
        large.resize(large.len() + 1_000_000, 7);
        let mut messages = messages(vec![Ok(Bytes::from(framed_bytes(&large)))], false);
        let next = messages.next().now_or_never().flatten().expect("it is there");
        let Some(Kind::Request(request)) = next.expect("well-formed").message else {
            panic!("not what was sent")
        };
        assert_eq!(&request.body[..], [7]);
        assert!(request.body.try_into_mut().is_ok_and(|own| own.capacity() < 100));
    }

    #[test]
    fn a_first_message_has_a_bound_of_its_own() {
        let sent = Bytes::from(framed(&request(HELLO_BYTES_MAX)));
        let body = || Parts { parts: VecDeque::from([Ok(sent.clone())]), is_whole: true };
        let mut first = EdgeMessages::new(body(), MESSAGE_BYTES_MAX);
        assert_eq!(code(first.next().now_or_never().expect("it has arrived")), Code::OutOfRange);
        let hello = Bytes::from(framed(&request(1)));
        let mut second = EdgeMessages::new(body(), MESSAGE_BYTES_MAX);
        second.body.parts.push_front(Ok(hello));
        for _ in 0..2 {
            let next = second.next().now_or_never().flatten().expect("it is there");
            next.expect("within its bound");
        }
    }

    #[test]
    fn an_edge_that_leaves_ends_without_an_error() {
        for last in [None, Some(Err(Status::cancelled("it has left")))] {
            let parts = [Ok(Bytes::from(framed(&request(1))))].into_iter().chain(last);
            let mut messages = messages(parts.collect(), true);
            assert!(messages.next().now_or_never().flatten().is_some_and(|next| next.is_ok()));
            assert!(messages.next().now_or_never().expect("it has ended").is_none());
        }
    }
}
