//! Several sources that run as one: their lists are one list, and each object has one source.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;

use futures::future::select_all;
use headwater_event::ResourceKey;
use headwater_telemetry::error_chain;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::events::deliver;
use super::{
    Notice, NoticeKind, PublishedObjects, SOURCE_QUEUE_EVENTS, Source, SourceContext, SourceError,
    SourceEvent, SourceEventSender, SourceKind, SourceState, SourceStateSender, UidAssignment,
    Wanted, WorkloadContext,
};

/// All sources of a controller.
///
/// The list is complete when every source has listed. Until then the set reads no changes of the
/// sources that have. When two sources send the same object, the first one owns it, and a notice
/// names the object. When one source fails, all stop.
pub(crate) struct SourceSet {
    sources: Vec<Box<dyn Source>>,
}

/// What the set gets from the controller.
#[derive(Clone)]
pub(crate) struct SetContext {
    pub(crate) published: Arc<dyn PublishedObjects>,
    pub(crate) wanted: Wanted,
    pub(crate) workloads: WorkloadContext,
    pub(crate) events: mpsc::Sender<SourceEvent>,
    pub(crate) states: SourceStateSender,
    pub(crate) stop: CancellationToken,
}

impl SourceSet {
    /// The sources, which all start together.
    pub(crate) fn new(sources: Vec<Box<dyn Source>>) -> Self {
        Self { sources }
    }

    /// How those of the sources that assign UIDs do so.
    pub(crate) fn uid_assignments(&self) -> Vec<Arc<dyn UidAssignment>> {
        self.sources.iter().filter_map(|source| source.uid_assignment()).collect()
    }

    /// Whether some source wants ended pods to be removed.
    pub(crate) fn wants_removals(&self) -> bool {
        self.sources.iter().any(|source| source.wants_removals())
    }

    /// Whether an object may be forgotten with its last use, because its source sends it again.
    pub(crate) fn sends_only_used(&self) -> bool {
        !self.sources.is_empty() && self.sources.iter().all(|source| source.sends_only_used())
    }

    /// How many sources decide by what is published.
    pub(crate) fn deciding(&self) -> usize {
        self.sources.iter().filter(|source| source.decides_by_published()).count()
    }

    /// Runs all sources until `context.stop`, or until one fails. Without sources it waits.
    ///
    /// # Errors
    /// The error of the source that failed. The states of all sources then say so.
    pub(crate) async fn run(mut self, context: SetContext) -> Result<(), SourceError> {
        let kinds: Vec<SourceKind> = self.sources.iter().map(|source| source.kind()).collect();
        let states = context.states.clone();
        let ended = match self.sources.len() {
            0 => {
                context.stop.cancelled().await;
                Ok(())
            }
            1 => {
                let mut running = JoinSet::new();
                running.spawn(run_one(self.sources.remove(0), context));
                // The one task is there.
                running.join_next().await.map_or(Ok(()), flatten)
            }
            _ => run_all(self.sources, context).await,
        };
        if let Err(error) = &ended {
            let cause = format!("all sources stop when one fails: {}", error_chain(error));
            kinds.into_iter().for_each(|kind| states.of(kind).end(cause.clone()));
        }
        ended
    }
}

/// Runs a source; a failure becomes its state.
async fn run_one(source: Box<dyn Source>, context: SetContext) -> Result<(), SourceError> {
    let SetContext { published, wanted, workloads, events, states, stop } = context;
    let states = states.of(source.kind());
    states.set("", SourceState::Listing);
    let events = SourceEventSender::new(events, stop.clone(), states.clone());
    let context =
        SourceContext { published, wanted, workloads, events, states: states.clone(), stop };
    match source.run(context).await {
        Err(error) if error.is_stop() => Ok(()),
        Err(error) => {
            states.end(error_chain(&error));
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

async fn run_all(sources: Vec<Box<dyn Source>>, context: SetContext) -> Result<(), SourceError> {
    let stop = context.stop.child_token();
    let _stops_all = stop.clone().drop_guard();
    let mut running = JoinSet::new();
    let mut members = Vec::new();
    for source in sources {
        let (events, receiver) = mpsc::channel(SOURCE_QUEUE_EVENTS);
        let stop = stop.clone();
        running.spawn(run_one(source, SetContext { events, stop, ..context.clone() }));
        members.push(Member { events: receiver, has_listed: false });
    }
    let events = context.events;
    drop(context.published);
    let mut merge = Merge { members, owners: HashMap::new() };
    let mut is_listing = true;
    deliver(&events, &stop, SourceEvent::Init).await?;
    loop {
        if is_listing && merge.members.iter().all(|member| member.has_listed) {
            is_listing = false;
            deliver(&events, &stop, SourceEvent::InitDone).await?;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(ended) = running.join_next() => {
                // One that was stopped is one of all; after a failure the others must not report
                // states any longer.
                running.shutdown().await;
                return flatten(ended);
            }
            (from, event) = merge.next(is_listing) => {
                if let Some(event) = merge.admit(from, event) {
                    deliver(&events, &stop, event).await?;
                }
            }
        }
    }
}

/// The outcome of a source that ran as a task. One that panicked has failed.
fn flatten(ended: Result<Result<(), SourceError>, JoinError>) -> Result<(), SourceError> {
    ended.unwrap_or_else(|error| Err(SourceError::task_ended("task", error)))
}

/// Merges the events of several sources.
struct Merge {
    members: Vec<Member>,
    /// Which source an object belongs to, by its index.
    owners: HashMap<ResourceKey, usize>,
}

/// A source of the set.
struct Member {
    events: mpsc::Receiver<SourceEvent>,
    has_listed: bool,
}

impl Merge {
    /// The next event, and the index of its source; while listing, of sources that still list.
    async fn next(&mut self, is_listing: bool) -> (usize, SourceEvent) {
        let readable =
            self.members.iter_mut().enumerate().filter(|(_, one)| !is_listing || !one.has_listed);
        let waiting: Vec<_> = readable
            .map(|(index, member)| {
                Box::pin(async move {
                    match member.events.recv().await {
                        Some(event) => (index, event),
                        // The task that runs it returns the reason.
                        None => pending().await,
                    }
                })
            })
            .collect();
        if waiting.is_empty() {
            return pending().await;
        }
        select_all(waiting).await.0
    }

    /// What the set sends on of an event of the source `from`.
    fn admit(&mut self, from: usize, event: SourceEvent) -> Option<SourceEvent> {
        match &event {
            SourceEvent::Init => return None,
            SourceEvent::InitDone => {
                self.members[from].has_listed = true;
                return None;
            }
            SourceEvent::Notice(_) | SourceEvent::TakenOver { .. } => {}
            SourceEvent::InitApply(object) | SourceEvent::Apply(object, _) => {
                let key = object.key();
                if *self.owners.entry(key.clone()).or_insert(from) != from {
                    return Some(SourceEvent::Notice(Notice {
                        file: None,
                        line: None,
                        kind: NoticeKind::Duplicate,
                        text: format!(
                            "{key}: two sources have this object; the object of the first one \
                             stays. Remove it from one of them"
                        ),
                    }));
                }
            }
            SourceEvent::Delete { key, .. } => {
                if self.owners.get(key) != Some(&from) {
                    return None;
                }
                self.owners.remove(key);
            }
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests;
