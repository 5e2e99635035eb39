//! The messages of an edge, out of the body of its request.
//!
//! tonic's own stream keeps a buffer as large as its largest message until the call ends: an edge that was
//! offline sends a megabyte of reports once, and heartbeats for hours. This one has a buffer only while a
//! message is incomplete.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use futures::Stream;
use headwater_proto::replication::EdgeMessage;
use http_body::Body;
use prost::Message;
use tonic::codegen::StdError;
use tonic::{Code, Status};

use super::service::IncomingMessage;

/// The bytes of gRPC before each message: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// The messages of one edge. It ends behind the first error.
pub(super) struct EdgeMessages<B> {
    body: Pin<Box<B>>,
    message_bytes_max: usize,
    /// What has arrived of the next messages.
    buffer: BytesMut,
    is_ended: bool,
}

impl<B> EdgeMessages<B> {
    /// The messages in `body`, each of `message_bytes_max` at most.
    pub(super) fn new(body: B, message_bytes_max: usize) -> Self {
        let (body, buffer) = (Box::pin(body), BytesMut::new());
        Self { body, message_bytes_max, buffer, is_ended: false }
    }

    /// The next message, if it has arrived.
    fn next_complete(&mut self) -> Result<Option<EdgeMessage>, Status> {
        let Some(mut header) = self.buffer.get(..HEADER_BYTES) else { return Ok(None) };
        if header.get_u8() != 0 {
            return Err(Status::unimplemented("the hub takes no compressed messages"));
        }
        let (bytes, max) =
            (usize::try_from(header.get_u32()).unwrap_or(usize::MAX), self.message_bytes_max);
        if bytes > max {
            let text = format!("a message has {bytes} bytes, at most {max} are allowed");
            return Err(Status::out_of_range(text));
        }
        if self.buffer.len() - HEADER_BYTES < bytes {
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        let message = if self.buffer.len() == bytes {
            // An empty buffer would keep the room of the message.
            std::mem::take(&mut self.buffer)
        } else {
            self.buffer.split_to(bytes)
        };
        let decoded = EdgeMessage::decode(message.freeze());
        decoded.map(Some).map_err(|error| Status::internal(error.to_string()))
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
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.buffer.put(data),
                    // Trailers: nothing follows them.
                    Err(_) => self.is_ended = true,
                },
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
        EdgeMessages::new(Parts { parts: parts.into(), is_whole }, MESSAGE_BYTES_MAX)
    }

    fn request(bytes: usize) -> Wire {
        let body = Bytes::from(vec![7; bytes]);
        Wire { message: Some(Kind::Request(Request { body, ..Request::default() })) }
    }

    fn framed(message: &Wire) -> Vec<u8> {
        let mut framed = vec![0];
        framed.put_u32(u32::try_from(message.encoded_len()).expect("small"));
        message.encode(&mut framed).expect("a vector grows");
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
            (Ok(Bytes::from(compressed)), Code::Unimplemented),
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
    fn an_edge_that_leaves_ends_without_an_error() {
        for last in [None, Some(Err(Status::cancelled("it has left")))] {
            let parts = [Ok(Bytes::from(framed(&request(1))))].into_iter().chain(last);
            let mut messages = messages(parts.collect(), true);
            assert!(messages.next().now_or_never().flatten().is_some_and(|next| next.is_ok()));
            assert!(messages.next().now_or_never().expect("it has ended").is_none());
        }
    }
}
