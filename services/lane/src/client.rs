//! The hub's end: holds a stream to the present writer of the log, and sends presence and asks on it.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, PollNext, select_with_strategy};
use headwater_event::{PresenceUpdate, RequestVerb, WriterAddress};
use headwater_identity::{Connector, Distrust, PeerTrust};
use headwater_proto::cloud::controller_lane_client::ControllerLaneClient;
use headwater_proto::cloud::controller_message::Message as ControllerEvent;
use headwater_proto::cloud::hub_message::Message as HubEvent;
use headwater_proto::cloud::{ControllerMessage, HubHello, HubMessage};
use headwater_proto::wire::{WireError, answer_from_wire, verbs_from_wire};
use headwater_telemetry::error_chain;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::asks::{AskIntake, PendingAsk, PendingAsks};
use crate::attempts;
use crate::dial::{DialError, dial};
use crate::metrics::LaneMetrics;
use crate::{MESSAGE_BYTES_MAX, PROTOCOL};

/// Messages of presence that wait for the transport: one more than what the controller has not read.
const OUTGOING_MAX: usize = 4;

/// Asks that wait for the transport. Presence passes them.
const OUTGOING_ASKS_MAX: usize = 1;

/// How long the controller may take to send its welcome, or to take a message. After it, the stream
/// fails and the hub connects again.
const RESPONSE_WITHIN: Duration = Duration::from_secs(10);

/// Begins the updates for one stream: first all connected nodes, then each change.
pub type PresenceSource = Box<dyn Fn() -> BoxStream<'static, PresenceUpdate> + Send + Sync>;

/// A hub's end of the lane, to be run.
pub struct LaneClient {
    /// The name of the hub.
    pub hub: String,
    /// The hub's certificate; `None`: without TLS, on loopback.
    pub tls: Option<Connector>,
    /// Where the writer of the log listens, with each claim; `None`: it does not, or there is none.
    pub controller: watch::Receiver<Option<WriterAddress>>,
    /// The presence of the hub's nodes.
    pub presence: PresenceSource,
    /// What its nodes ask.
    pub asks: AskIntake,
    /// What it counts.
    pub metrics: LaneMetrics,
}

/// Why a stream ended, or was not established.
#[derive(Debug, thiserror::Error)]
enum LaneError {
    #[error("the hub cannot connect to it")]
    Dial(#[from] DialError),
    #[error("it ended the stream: {}", .0.message())]
    Status(Box<Status>),
    #[error("it closed the stream")]
    Closed,
    #[error("it does not respond within {} s", RESPONSE_WITHIN.as_secs())]
    Silent,
    #[error("it speaks protocol {found}, this hub {PROTOCOL}")]
    Protocol { found: u32 },
    #[error("its first message is no welcome")]
    NoWelcome,
    #[error(transparent)]
    Distrusted(#[from] Distrust),
    #[error("the hub stops")]
    Stopped,
    #[error("its answer is malformed")]
    Answer(#[from] WireError),
}

impl From<Status> for LaneError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl LaneClient {
    /// Holds a stream to the present writer until the sender of its address is dropped.
    pub async fn run(self) {
        attempts::follow(self.controller.clone(), |writer| self.attempt(writer)).await;
        self.metrics.up(false);
    }

    /// Holds a stream to a writer until it fails; without one, for ever. Returns whether it was established.
    async fn attempt(&self, writer: Option<WriterAddress>) -> bool {
        self.metrics.up(false);
        let Some(WriterAddress { address, .. }) = &writer else {
            self.asks.close("the active controller does not listen for hubs".to_owned());
            return std::future::pending().await;
        };
        self.asks.close(format!("the hub connects to the controller at {address}"));
        let mut was_up = false;
        let Err(error) = self.hold(address, &mut was_up).await;
        self.metrics.up(false);
        self.metrics.failed();
        let error = error_chain(&error);
        self.asks.close(format!("no lane to the controller at {address}: {error}"));
        tracing::warn!(controller = %address, %error, "no lane to the controller; trying again");
        was_up
    }

    /// Holds a stream to the controller at `address`; `is_up` is set once it is established.
    async fn hold(&self, address: &str, is_up: &mut bool) -> Result<Infallible, LaneError> {
        let (channel, mut trust) = dial(address, self.tls.as_ref()).await?;
        let mut client = ControllerLaneClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (outgoing, messages) = mpsc::channel(OUTGOING_MAX);
        let (outgoing_asks, asks) = mpsc::channel(OUTGOING_ASKS_MAX);
        let hello = HubHello { protocol: PROTOCOL, hub: self.hub.clone() };
        send(&outgoing, HubMessage { message: Some(HubEvent::Hello(hello)) }).await?;
        let presence_first = |_: &mut ()| PollNext::Left;
        let (messages, asks) = (ReceiverStream::new(messages), ReceiverStream::new(asks));
        let messages = select_with_strategy(messages, asks, presence_first);
        let opened = timeout(RESPONSE_WITHIN, client.attach(messages));
        let mut incoming = opened.await.map_err(|_| LaneError::Silent)??.into_inner();
        let verbs = welcomed(&mut incoming).await?;
        *is_up = true;
        self.metrics.up(true);
        tracing::info!(controller = %address, "the lane to the controller is up");
        let pending = PendingAsks::default();
        // The four run side by side: an ask that the transport does not take holds up no presence.
        tokio::select! {
            Err(error) = send_presence((self.presence)(), &outgoing) => Err(error),
            Err(error) = send_asks(self.asks.open(verbs), &pending, &outgoing_asks) => Err(error),
            Err(error) = receive_answers(&mut incoming, &pending) => Err(error),
            distrust = lost(trust.as_mut()) => Err(distrust.into()),
        }
    }
}

async fn send_presence(
    mut updates: BoxStream<'static, PresenceUpdate>,
    outgoing: &mpsc::Sender<HubMessage>,
) -> Result<Infallible, LaneError> {
    loop {
        let update = updates.next().await.ok_or(LaneError::Stopped)?;
        send(outgoing, update.into()).await?;
    }
}

async fn send_asks(
    mut asks: mpsc::Receiver<PendingAsk>,
    pending: &PendingAsks,
    outgoing: &mpsc::Sender<HubMessage>,
) -> Result<Infallible, LaneError> {
    loop {
        let ask = asks.recv().await.ok_or(LaneError::Stopped)?;
        if let Some(ask) = pending.begin(ask) {
            send(outgoing, ask.into()).await?;
        }
    }
}

async fn receive_answers(
    incoming: &mut Streaming<ControllerMessage>,
    pending: &PendingAsks,
) -> Result<Infallible, LaneError> {
    loop {
        let message = incoming.message().await?.ok_or(LaneError::Closed)?;
        // A later version may send more; this one has not asked for it.
        if let Some(ControllerEvent::Answer(answer)) = message.message {
            pending.complete(answer_from_wire(answer)?);
        }
    }
}

/// Waits until the controller is not trusted any more: without TLS for ever.
async fn lost(trust: Option<&mut PeerTrust>) -> Distrust {
    match trust {
        Some(trust) => trust.lost().await,
        None => std::future::pending().await,
    }
}

/// The verbs in the controller's welcome.
async fn welcomed(
    incoming: &mut Streaming<ControllerMessage>,
) -> Result<Vec<RequestVerb>, LaneError> {
    let first = timeout(RESPONSE_WITHIN, incoming.message()).await;
    let first = first.map_err(|_| LaneError::Silent)??.ok_or(LaneError::Closed)?;
    match first.message {
        Some(ControllerEvent::Welcome(welcome)) if welcome.protocol == PROTOCOL => {
            Ok(verbs_from_wire(&welcome.verbs))
        }
        Some(ControllerEvent::Welcome(welcome)) => {
            Err(LaneError::Protocol { found: welcome.protocol })
        }
        Some(ControllerEvent::Answer(_)) | None => Err(LaneError::NoWelcome),
    }
}

async fn send(outgoing: &mpsc::Sender<HubMessage>, message: HubMessage) -> Result<(), LaneError> {
    match timeout(RESPONSE_WITHIN, outgoing.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(LaneError::Closed),
        Err(_) => Err(LaneError::Silent),
    }
}
