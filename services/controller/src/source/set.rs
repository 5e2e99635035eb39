//! Several sources that run as one: their lists are one list, and each object has one source.

use std::collections::{BTreeMap, HashMap};
use std::future::{pending, ready};
use std::sync::Arc;

use futures::future::select_all;
use headwater_event::ResourceKey;
use headwater_object::Object;
use headwater_telemetry::error_chain;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::events::deliver;
use super::{
    Cause, Notice, NoticeKind, PublishedReader, SOURCE_QUEUE_EVENTS, Source, SourceContext,
    SourceError, SourceEvent, SourceEventSender, SourceKind, SourceState, SourceStateSender,
    UidAssignment, Wanted, WorkloadContext,
};

/// The name under which the set itself has troubles.
const SOURCES: SourceKind = SourceKind::new("sources");

/// All sources of a controller.
///
/// The list is complete when every source has listed. Until then the set reads no changes of the
/// sources that have. When two sources send the same object, the first one owns it. The object is a
/// trouble until one of them has it no longer; when the first one loses it, that of the other takes its
/// place. When one source fails, all stop.
pub(crate) struct SourceSet {
    sources: Vec<Box<dyn Source>>,
}

/// What the set gets from the controller.
#[derive(Clone)]
pub(crate) struct SetContext {
    pub(crate) published: Arc<dyn PublishedReader>,
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

    /// How many sources answer a takeover.
    pub(crate) fn answering(&self) -> usize {
        self.sources.iter().filter(|source| source.answers_takeover()).count()
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
        let kind = source.kind();
        let (events, receiver) = mpsc::channel(SOURCE_QUEUE_EVENTS);
        let stop = stop.clone();
        running.spawn(run_one(source, SetContext { events, stop, ..context.clone() }));
        members.push(Member { kind, events: receiver, has_listed: false });
    }
    let (events, states) = (context.events, context.states.of(SOURCES));
    drop(context.published);
    let mut merge =
        Merge { members, owners: HashMap::new(), others: BTreeMap::new(), others_changed: false };
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
                for event in merge.admit(from, event) {
                    deliver(&events, &stop, event).await?;
                }
            }
            // Once no source has an event: one that lists sends many.
            () = ready(()), if merge.others_changed => {
                merge.others_changed = false;
                let duplicates: Vec<Notice> = merge.duplicates().collect();
                states.set_documents(duplicates.iter());
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
    /// The objects of sources that do not own them. They are as many as the sources give twice.
    others: BTreeMap<(ResourceKey, usize), Object>,
    /// Whether the keys of `others` have changed since their troubles were reported.
    others_changed: bool,
}

/// A source of the set.
struct Member {
    kind: SourceKind,
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
    fn admit(&mut self, from: usize, event: SourceEvent) -> Vec<SourceEvent> {
        match event {
            SourceEvent::Init => Vec::new(),
            SourceEvent::InitDone => {
                self.members[from].has_listed = true;
                Vec::new()
            }
            SourceEvent::Notice(_) | SourceEvent::TakenOver { .. } => vec![event],
            SourceEvent::InitApply(object) if !self.owns(from, object.key()) => {
                self.keep(from, object)
            }
            SourceEvent::Apply(object, _) if !self.owns(from, object.key()) => {
                self.keep(from, object)
            }
            SourceEvent::InitApply(_) | SourceEvent::Apply(..) => vec![event],
            SourceEvent::Delete { key, uid, cause } => match self.owners.get(&key).copied() {
                Some(owner) if owner == from => self.delete(key, uid, cause),
                Some(owner) => self.forget(key, owner, from),
                None => Vec::new(),
            },
        }
    }

    /// Whether the source owns the object; the first one that sends it does from then on.
    fn owns(&mut self, from: usize, key: &ResourceKey) -> bool {
        match self.owners.get(key) {
            Some(owner) => *owner == from,
            None => {
                self.owners.insert(key.clone(), from);
                true
            }
        }
    }

    /// Keeps the object of a source that does not own it.
    fn keep(&mut self, from: usize, object: Object) -> Vec<SourceEvent> {
        let key = object.key().clone();
        if self.others.insert((key.clone(), from), object).is_some() {
            return Vec::new();
        }
        self.others_changed = true;
        let duplicate = self.duplicate(&key, from);
        duplicate.into_iter().map(SourceEvent::Notice).collect()
    }

    /// A source that does not own the object has it no longer.
    fn forget(&mut self, key: ResourceKey, owner: usize, from: usize) -> Vec<SourceEvent> {
        let id = (key, from);
        if self.others.remove(&id).is_none() {
            return Vec::new();
        }
        self.others_changed = true;
        vec![SourceEvent::Notice(self.notice(&id.0, owner, from).repaired())]
    }

    /// The owner has the object no longer: that of the next source takes its place, else it is gone.
    fn delete(&mut self, key: ResourceKey, uid: String, cause: Cause) -> Vec<SourceEvent> {
        let Some(owner) = self.owners.remove(&key) else { return Vec::new() };
        let all = (key.clone(), 0)..=(key.clone(), usize::MAX);
        let next = self.others.range(all).next().map(|((_, from), _)| *from);
        let id = next.map(|from| (key.clone(), from));
        let Some((id, object)) = id.and_then(|id| self.others.remove_entry(&id)) else {
            return vec![SourceEvent::Delete { key, uid, cause }];
        };
        self.others_changed = true;
        self.owners.insert(key.clone(), id.1);
        let repaired = self.notice(&key, owner, id.1).repaired();
        // Without a moment in which there is none.
        vec![SourceEvent::Apply(object, cause), SourceEvent::Notice(repaired)]
    }

    /// The objects that several sources have.
    fn duplicates(&self) -> impl Iterator<Item = Notice> {
        self.others.keys().filter_map(|(key, from)| self.duplicate(key, *from))
    }

    fn duplicate(&self, key: &ResourceKey, other: usize) -> Option<Notice> {
        Some(self.notice(key, *self.owners.get(key)?, other))
    }

    fn notice(&self, key: &ResourceKey, owner: usize, other: usize) -> Notice {
        let (owner, other) = (self.members[owner].kind, self.members[other].kind);
        Notice {
            file: None,
            line: None,
            kind: NoticeKind::Duplicate,
            text: format!(
                "{key}: two sources have this object, {owner} and {other}; the object of {owner} \
                 counts, because it came first. Remove it from one of them"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
