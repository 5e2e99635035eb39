//! The messages between hub and edge, as the bytes of the wire, counted and kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use headwater_edge::{HubDialer, HubStreams};
use headwater_hub::HubHandle;
use headwater_proto::replication::{EdgeMessage, HubMessage};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Messages on their way at most, as little as a socket may hold.
const ON_THE_WAY_MAX: usize = 4;

/// What went over a wire. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape(Arc<Mutex<Messages>>);

/// Every message, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    /// By the hub.
    pub(crate) down: Vec<Bytes>,
    /// By the edge.
    pub(crate) up: Vec<Bytes>,
}

impl Tape {
    /// The messages so far.
    pub(crate) fn messages(&self) -> Messages {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Messages {
    /// The messages after `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.down.drain(..before.down.len());
        self.up.drain(..before.up.len());
        self
    }

    /// The bytes of `messages`.
    pub(crate) fn bytes(messages: &[Bytes]) -> u64 {
        messages.iter().map(|message| message.len() as u64).sum()
    }
}

/// The way to `hub`; what goes over it is kept on `tape`.
pub(crate) fn to_hub(hub: Arc<HubHandle>, tape: Tape) -> HubDialer {
    Arc::new(move |_| {
        let (hub, tape) = (hub.clone(), tape.clone());
        async move {
            let (to_hub, mut from_edge) = mpsc::channel::<EdgeMessage>(ON_THE_WAY_MAX);
            let (up, at_hub) = mpsc::channel(ON_THE_WAY_MAX);
            let (down, at_edge) = mpsc::channel(ON_THE_WAY_MAX);
            let mut from_hub = hub.open_session(ReceiverStream::new(at_hub).boxed());
            let kept = tape.clone();
            tokio::spawn(async move {
                while let Some(message) = from_edge.recv().await {
                    kept.lock().up.push(Bytes::from(message.encode_to_vec()));
                    if up.send(Ok(message)).await.is_err() {
                        return;
                    }
                }
            });
            tokio::spawn(async move {
                while let Some(Ok(message)) = from_hub.next().await {
                    let bytes = Bytes::from(message.encode_to_vec());
                    tape.lock().down.push(bytes.clone());
                    if down.send(bytes).await.is_err() {
                        return;
                    }
                }
            });
            Ok(HubStreams { to_hub, from_hub: decoded(at_edge) })
        }
        .boxed()
    })
}

/// A connection to a hub that sends prepared messages, whatever it receives. It is used once.
pub(crate) fn to_player(messages: mpsc::Receiver<Bytes>) -> HubDialer {
    let messages = Arc::new(Mutex::new(Some(messages)));
    Arc::new(move |_| {
        let messages = messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            let messages = messages.ok_or_else(|| Status::unavailable("it was asked before"))?;
            let (to_hub, mut from_edge) = mpsc::channel(ON_THE_WAY_MAX);
            tokio::spawn(async move { while from_edge.recv().await.is_some() {} });
            Ok(HubStreams { to_hub, from_hub: decoded(messages) })
        }
        .boxed()
    })
}

fn decoded(at_edge: mpsc::Receiver<Bytes>) -> BoxStream<'static, Result<HubMessage, Status>> {
    let messages = ReceiverStream::new(at_edge).map(|bytes: Bytes| HubMessage::decode(bytes));
    messages.map(|message| message.map_err(|error| Status::internal(error.to_string()))).boxed()
}
