//! The body of a session's response: the messages to an edge, as gRPC carries them.
//!
//! tonic's own body keeps a buffer as large as its largest message until the call ends. An edge that
//! once took a snapshot of a megabyte would cost the hub that megabyte for hours. This body encodes what
//! waits into bytes of its own, and the transport drops them when they are sent: an idle session
//! has no buffer at all.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt;
use headwater_proto::codec::{YIELD_BYTES, append_message};
use http_body::{Body, Frame};
use tonic::Status;
use tonic::codegen::http::HeaderMap;

use super::service::OutgoingStream;

/// The messages to one edge, then the trailers.
pub(super) struct SessionBody {
    messages: OutgoingStream,
    message_bytes_max: usize,
    progress: Progress,
}

/// How far a body is.
enum Progress {
    /// Messages may follow.
    Open,
    /// The last bytes are handed on; the trailers with this status follow.
    Ending(Status),
    /// The trailers are handed on.
    Ended,
}

impl SessionBody {
    /// Sends `messages`. A message of more than `message_bytes_max` ends the call.
    pub(super) fn new(messages: OutgoingStream, message_bytes_max: usize) -> Self {
        Self { messages, message_bytes_max, progress: Progress::Open }
    }

    /// Encodes the messages that wait, up to [`YIELD_BYTES`] and one more message. Returns the status
    /// behind them if the call ends there.
    fn encode_waiting(
        &mut self,
        buffer: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Option<Status> {
        while buffer.len() < YIELD_BYTES {
            match self.messages.poll_next_unpin(context) {
                Poll::Pending => return None,
                Poll::Ready(None) => return Some(Status::ok("")),
                Poll::Ready(Some(Err(status))) => return Some(status),
                Poll::Ready(Some(Ok(message))) => {
                    if let Err(status) = append_message(buffer, &message, self.message_bytes_max) {
                        tracing::error!(%status, "a session ends: it cannot send a message");
                        return Some(status);
                    }
                }
            }
        }
        None
    }
}

impl Body for SessionBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match std::mem::replace(&mut self.progress, Progress::Ended) {
            Progress::Open => {}
            Progress::Ending(status) => return Poll::Ready(Some(trailers(&status))),
            Progress::Ended => return Poll::Ready(None),
        }
        let mut buffer = Vec::new();
        let end = self.encode_waiting(&mut buffer, context);
        match (end, buffer.is_empty()) {
            (Some(status), true) => return Poll::Ready(Some(trailers(&status))),
            (Some(status), false) => self.progress = Progress::Ending(status),
            (None, is_empty) => {
                self.progress = Progress::Open;
                if is_empty {
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Some(Ok(Frame::data(buffer.into()))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.progress, Progress::Ended)
    }
}

fn trailers(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers)?;
    Ok(Frame::trailers(headers))
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use headwater_proto::codec::HEADER_BYTES;
    use headwater_proto::wire::HubFrame;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::Code;

    use super::super::service::OutgoingMessage;
    use super::*;

    const MESSAGE_BYTES_MAX: usize = 1 << 20;

    type Sender = mpsc::Sender<Box<OutgoingMessage>>;

    fn body() -> (Sender, SessionBody) {
        let (sender, messages) = mpsc::channel::<Box<OutgoingMessage>>(64);
        let messages: OutgoingStream = ReceiverStream::new(messages).map(|message| *message);
        (sender, SessionBody::new(messages, MESSAGE_BYTES_MAX))
    }

    fn send(sender: &Sender, message: OutgoingMessage) {
        sender.try_send(Box::new(message)).expect("the channel has room");
    }

    fn of_bytes(bytes: usize) -> OutgoingMessage {
        Ok(HubFrame::Encoded(Bytes::from(vec![7; bytes])))
    }

    fn poll(body: &mut SessionBody) -> Poll<Option<Frame<Bytes>>> {
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        polled.map(|frame| frame.map(|frame| frame.expect("the status has a form as a header")))
    }

    fn data(body: &mut SessionBody) -> Bytes {
        let Poll::Ready(Some(frame)) = poll(body) else { panic!("nothing waits") };
        frame.into_data().expect("data")
    }

    /// The code in the trailers, which end the body.
    fn ended_with(body: &mut SessionBody) -> Code {
        let Poll::Ready(Some(frame)) = poll(body) else { panic!("no trailers") };
        let trailers = frame.into_trailers().expect("trailers");
        assert!(body.is_end_stream());
        assert!(matches!(poll(body), Poll::Ready(None)));
        Status::from_header_map(&trailers).expect("a status").code()
    }

    #[test]
    fn bytes_that_are_handed_on_belong_to_the_transport_alone() {
        let (sender, mut body) = body();
        for bytes in [MESSAGE_BYTES_MAX, 10] {
            send(&sender, of_bytes(bytes));
            let data = data(&mut body);
            assert_eq!(data.len(), HEADER_BYTES + bytes);
            assert!(data.is_unique(), "the body would keep its largest message");
            assert!(poll(&mut body).is_pending());
        }
    }

    #[test]
    fn messages_that_wait_are_handed_on_together_up_to_a_bound() {
        let (sender, mut body) = body();
        (0..3).for_each(|_| send(&sender, of_bytes(100)));
        assert_eq!(data(&mut body).len(), 3 * (HEADER_BYTES + 100));
        (0..3).for_each(|_| send(&sender, of_bytes(YIELD_BYTES)));
        (0..3).for_each(|_| assert_eq!(data(&mut body).len(), HEADER_BYTES + YIELD_BYTES));
        assert!(poll(&mut body).is_pending());
    }

    #[test]
    fn a_call_ends_with_its_status_behind_the_last_messages() {
        let (sender, mut ended) = body();
        send(&sender, of_bytes(10));
        drop(sender);
        assert_eq!(data(&mut ended).len(), HEADER_BYTES + 10);
        assert_eq!(ended_with(&mut ended), Code::Ok);

        let (sender, mut failed) = body();
        send(&sender, of_bytes(10));
        send(&sender, Err(Status::invalid_argument("unreadable")));
        assert_eq!(data(&mut failed).len(), HEADER_BYTES + 10);
        assert_eq!(ended_with(&mut failed), Code::InvalidArgument);

        let (sender, mut too_large) = body();
        send(&sender, of_bytes(MESSAGE_BYTES_MAX + 1));
        assert_eq!(ended_with(&mut too_large), Code::OutOfRange);
    }
}
