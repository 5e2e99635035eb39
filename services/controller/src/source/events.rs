//! The events of a source, and the sender that holds a source to its contract.

use headwater_event::ResourceKey;
use headwater_object::Object;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Notice, SourceError, SourceKind, SourceState, SourceStateSender};

/// An event of a source.
#[derive(Clone, Debug)]
pub enum SourceEvent {
    /// The list begins. A source sends it once.
    Init,
    /// An object of the list.
    InitApply(Object),
    /// The list is complete.
    InitDone,
    /// An object came or changed.
    Apply(Object, Cause),
    /// An object was deleted.
    Delete {
        /// Its key.
        key: ResourceKey,
        /// Its UID. An object of the same name with another UID stays.
        uid: String,
        /// Where the change came from.
        cause: Cause,
    },
    /// The source has decided anew after a takeover, or caught up, and sent what follows from it.
    TakenOver {
        /// The epoch of the claim.
        epoch: u64,
    },
    /// A message to a person, sent once.
    Notice(Notice),
}

/// Where a change came from, as far as the source knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// When the change was meant to happen. A load generator measures from here, so that its own
    /// delay counts too.
    pub intended_time: Option<Timestamp>,
    /// W3C trace context of the change.
    pub traceparent: Option<String>,
    /// The kind of the source.
    pub source: SourceKind,
}

/// How far a source's one list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPhase {
    Unlisted,
    Listing,
    Listed,
}

/// Sends the events of one source to the controller.
///
/// `Init` and `InitDone` set the state of the whole source to listing and following.
#[derive(Debug)]
pub struct SourceEventSender {
    events: mpsc::Sender<SourceEvent>,
    stop: CancellationToken,
    states: SourceStateSender,
    phase: ListPhase,
}

impl SourceEvent {
    /// Its name in an error.
    fn name(&self) -> &'static str {
        match self {
            Self::Init => "Init",
            Self::InitApply(_) => "InitApply",
            Self::InitDone => "InitDone",
            Self::Apply(..) => "Apply",
            Self::Delete { .. } => "Delete",
            Self::TakenOver { .. } => "TakenOver",
            Self::Notice(_) => "Notice",
        }
    }
}

impl SourceEventSender {
    pub(crate) fn new(
        events: mpsc::Sender<SourceEvent>,
        stop: CancellationToken,
        states: SourceStateSender,
    ) -> Self {
        Self { events, stop, states, phase: ListPhase::Unlisted }
    }

    /// Sends an event, and waits while the controller's queue is full.
    ///
    /// # Errors
    /// When the source was stopped, and when it begins a second list: the event was not sent.
    pub async fn send(&mut self, event: SourceEvent) -> Result<(), SourceError> {
        let next = match (&event, self.phase) {
            (SourceEvent::Notice(_) | SourceEvent::TakenOver { .. }, phase) => phase,
            (SourceEvent::Init, ListPhase::Unlisted) => ListPhase::Listing,
            (SourceEvent::InitApply(_), ListPhase::Listing) => ListPhase::Listing,
            (SourceEvent::InitDone, ListPhase::Listing) => ListPhase::Listed,
            (
                SourceEvent::Apply(..) | SourceEvent::Delete { .. },
                ListPhase::Listing | ListPhase::Listed,
            ) => self.phase,
            _ => return Err(SourceError::out_of_order(event.name())),
        };
        deliver(&self.events, &self.stop, event).await?;
        match (self.phase, next) {
            (ListPhase::Unlisted, ListPhase::Listing) => self.states.set("", SourceState::Listing),
            (ListPhase::Listing, ListPhase::Listed) => self.states.set("", SourceState::Following),
            _ => {}
        }
        self.phase = next;
        Ok(())
    }

    /// Sends several events in order, as [`SourceEventSender::send`] does.
    ///
    /// # Errors
    /// As for one event: what comes before it was sent, what comes after it was not.
    pub async fn send_all(&mut self, events: Vec<SourceEvent>) -> Result<(), SourceError> {
        for event in events {
            self.send(event).await?;
        }
        Ok(())
    }
}

/// Sends an event, and waits while the queue is full; an error once `stop` is cancelled or the
/// receiver is gone.
pub(super) async fn deliver(
    events: &mpsc::Sender<SourceEvent>,
    stop: &CancellationToken,
    event: SourceEvent,
) -> Result<(), SourceError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(SourceError::stopped()),
        sent = events.send(event) => sent.map_err(|_| SourceError::stopped()),
    }
}
