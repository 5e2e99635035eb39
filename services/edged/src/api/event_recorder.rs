//! Sends Events to the edge. They give way to everything else: what cannot wait is dropped.

use headwater_proto::local::operation::Verb;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::client::EdgeClient;
use crate::backoff::Backoff;
use crate::config::Settings;
use crate::event::Occurrence;
use crate::event::aggregator::{EventAggregator, Next};

/// Occurrences that may wait for the task. More of them are dropped: no pod waits for its Events.
const QUEUE_MAX: usize = 256;

/// A handle of the task. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EventRecorder(mpsc::Sender<Occurrence>);

impl EventRecorder {
    /// Starts the task; it ends when the last handle is dropped.
    pub(crate) fn start(edge: EdgeClient, settings: &Settings) -> Self {
        let (occurrences, inbox) = mpsc::channel(QUEUE_MAX);
        let backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
        tokio::spawn(run(edge, inbox, EventAggregator::new(settings.events), backoff));
        Self(occurrences)
    }

    /// Something happened.
    pub(crate) fn record(&self, occurrence: Occurrence) {
        let _ = self.0.try_send(occurrence);
    }
}

async fn run(
    edge: EdgeClient,
    mut inbox: mpsc::Receiver<Occurrence>,
    mut events: EventAggregator,
    mut backoff: Backoff,
) {
    // After a failure, until when nothing is sent.
    let mut retry_at: Option<Instant> = None;
    loop {
        let until = match retry_at.take_if(|at| *at <= Instant::now()) {
            None if retry_at.is_some() => retry_at,
            _ => match events.next(Instant::now()) {
                Next::Wait(until) => Some(until),
                Next::Nothing => None,
                Next::Send(event) => {
                    let (key, object) = (event.key.to_string(), event.object.clone());
                    match edge.operate(Verb::Update, key, object.into_bytes(), None).await {
                        Ok(()) => backoff.reset(),
                        Err(error) if error.is_transient() => {
                            events.again(&event);
                            retry_at = Some(Instant::now() + backoff.next_wait());
                        }
                        // An edge of an earlier version takes no Events.
                        Err(error) => {
                            tracing::debug!(key = %event.key, %error, "the edge takes no Event");
                        }
                    }
                    continue;
                }
            },
        };
        let wait = async {
            match until {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            occurrence = inbox.recv() => match occurrence {
                Some(occurrence) => events.add(occurrence, Timestamp::now()),
                None => return,
            },
            () = wait => {}
        }
    }
}
