//! A source that a test drives: it sends the events that the test gives it.
//!
//! It keeps to the contract of a source as a real one does: a second list becomes its differences
//! to the objects that were sent before.

use std::sync::Arc;

use async_trait::async_trait;
use headwater_object::Object;
use prometheus::Registry;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::manifest::ManifestUids;
use super::{
    KnownObjects, NoReports, PublishedReader, SharedWorkloads, Source, SourceContext, SourceError,
    SourceEvent, SourceEventSender, SourceKind, SourceStateSender, SourceStates, UidAssignment,
    Wanted, WorkloadContext, WriterRole,
};
use crate::interest::SharedInterest;
use crate::metrics::ControllerMetrics;

/// Events that a test may have sent and the source has not taken.
const SCRIPT_EVENTS_MAX: usize = 1024;

/// See the module.
pub(crate) struct ScriptedSource {
    kind: SourceKind,
    events: mpsc::Receiver<SourceEvent>,
    known: KnownObjects,
    list: Option<Vec<Object>>,
    has_listed: bool,
    fails: bool,
    answers: bool,
}

impl ScriptedSource {
    /// A source, and where a test sends its events.
    pub(crate) fn new(kind: SourceKind) -> (mpsc::Sender<SourceEvent>, Self) {
        let (sender, events) = mpsc::channel(SCRIPT_EVENTS_MAX);
        let known = KnownObjects::new(kind);
        let (list, has_listed, fails, answers) = (None, false, false, false);
        (sender, Self { kind, events, known, list, has_listed, fails, answers })
    }

    /// The source, failing once the test has dropped the sender.
    pub(crate) fn failing(self) -> Self {
        Self { fails: true, ..self }
    }

    /// The source, answering takeovers where the test says so.
    pub(crate) fn answering(self) -> Self {
        Self { answers: true, ..self }
    }

    /// What the source sends for an event of the script.
    fn play(&mut self, event: SourceEvent) -> Vec<SourceEvent> {
        match event {
            SourceEvent::Init if self.has_listed => {
                self.list = Some(Vec::new());
                Vec::new()
            }
            SourceEvent::InitApply(object) if self.list.is_some() => {
                self.list.get_or_insert_default().push(object);
                Vec::new()
            }
            SourceEvent::InitDone => match self.list.take() {
                Some(objects) => self.known.relist(objects),
                None => {
                    self.has_listed = true;
                    vec![event]
                }
            },
            SourceEvent::InitApply(object) => {
                let _ = self.known.apply(object.clone(), Default::default());
                vec![SourceEvent::InitApply(object)]
            }
            SourceEvent::Apply(object, cause) => {
                let _ = self.known.apply(object.clone(), Default::default());
                vec![SourceEvent::Apply(object, cause)]
            }
            SourceEvent::Delete { key, uid, cause } => {
                let _ = self.known.delete(key.clone(), Default::default());
                vec![SourceEvent::Delete { key, uid, cause }]
            }
            SourceEvent::Init | SourceEvent::Notice(_) | SourceEvent::TakenOver { .. } => {
                vec![event]
            }
        }
    }
}

#[async_trait]
impl Source for ScriptedSource {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn uid_assignment(&self) -> Option<Arc<dyn UidAssignment>> {
        Some(Arc::new(ManifestUids))
    }

    fn wants_removals(&self) -> bool {
        true
    }

    fn answers_takeover(&self) -> bool {
        self.answers
    }

    async fn run(mut self: Box<Self>, mut context: SourceContext) -> Result<(), SourceError> {
        loop {
            let event = tokio::select! {
                () = context.stop.cancelled() => return Ok(()),
                event = self.events.recv() => event,
            };
            match event {
                Some(event) => {
                    let events = self.play(event);
                    context.events.send_all(events).await?;
                }
                None if self.fails => return Err(SourceError::new("scripted", "as the test asks")),
                None => {
                    context.stop.cancelled().await;
                    return Ok(());
                }
            }
        }
    }
}

impl SourceContext {
    /// The context of a source that runs without a controller.
    pub(crate) fn detached(
        published: impl PublishedReader + 'static,
        events: mpsc::Sender<SourceEvent>,
        stop: &CancellationToken,
    ) -> Self {
        let metrics = ControllerMetrics::new(&Registry::new()).expect("a fresh registry");
        let states = SourceStateSender::new(
            SourceKind::OTHER,
            watch::Sender::new(SourceStates::default()),
            Arc::new(|| 0),
            metrics.publisher,
        );
        Self {
            published: Arc::new(published),
            wanted: Wanted::new(SharedInterest::default(), watch::channel(0).1),
            workloads: WorkloadContext::detached(),
            events: SourceEventSender::new(events, stop.clone(), states.clone()),
            states,
            stop: stop.clone(),
        }
    }
}

impl WorkloadContext {
    /// The context where no node reports and another controller writes.
    pub(crate) fn detached() -> Self {
        Self {
            reports: Arc::new(NoReports),
            workloads: SharedWorkloads::default(),
            role: watch::channel(WriterRole::default()).1,
        }
    }
}
