//! Applies the events of the sources to the interest, and names the entries that may have changed.

use std::collections::{BTreeMap, HashMap};

use headwater_event::{Applied, EntryKey, NodeName, ResourceKey, StreamId, WriterEpoch};
use headwater_store::{Engine, EngineError};
use headwater_view::EntrySummary;
use tokio::sync::{mpsc, watch};
use tracing::Span;
use uuid::Uuid;

use super::identity::IdentityMap;
use crate::interest::{EntryId, SharedInterest};
use crate::metrics::{ChangeKind, PublisherMetrics};
use crate::picture::DepartedPods;
use crate::picture::changes::ChangeFeed;
use crate::source::{Cause, Notice, SourceEvent};
use crate::spans;

/// The one writer of the interest.
pub(super) struct Intake {
    interest: SharedInterest,
    /// Gets the keys of the objects that changed.
    changes: ChangeFeed,
    /// The version of the set of missing objects, for the sources.
    missing: watch::Sender<u64>,
    notices: mpsc::Sender<Notice>,
    identities: IdentityMap,
    departed: DepartedPods,
    has_listed: bool,
    metrics: PublisherMetrics,
}

/// What a group of source events may have changed.
pub(super) struct IntakeChanges {
    pub(super) entries: Vec<EntryChange>,
    /// The spans of the changes.
    pub(super) spans: Vec<Span>,
}

/// An entry that may have changed, and the trace context of the change.
pub(super) struct EntryChange {
    pub(super) entry: EntryId,
    pub(super) traceparent: Option<String>,
}

impl Intake {
    pub(super) fn new(
        interest: SharedInterest,
        changes: ChangeFeed,
        missing: watch::Sender<u64>,
        notices: mpsc::Sender<Notice>,
        identities: IdentityMap,
        departed: DepartedPods,
        metrics: PublisherMetrics,
    ) -> Self {
        let has_listed = false;
        Self { interest, changes, missing, notices, identities, departed, has_listed, metrics }
    }

    /// Whether the sources have listed. Before that the absence of an object means nothing.
    pub(super) fn has_listed(&self) -> bool {
        self.has_listed
    }

    /// Declares nodes that exist before they have a pod.
    pub(super) fn declare(&self, nodes: &[NodeName]) {
        let mut interest = self.interest.write();
        for node in nodes {
            interest.declare(node);
        }
        drop(interest);
        self.changes.publish_everything();
        self.publish_missing();
    }

    /// Applies events in order.
    pub(super) fn apply(&mut self, events: impl Iterator<Item = SourceEvent>) -> IntakeChanges {
        let mut entries = Vec::new();
        let mut spans = Vec::new();
        let mut group = self.changes.begin();
        for event in events {
            let (affected, cause) = match event {
                SourceEvent::Init | SourceEvent::TakenOver { .. } => continue,
                SourceEvent::InitApply(object) => {
                    self.identities.note_change(object.key());
                    let object = self.identities.identify(object);
                    self.metrics.listed();
                    group.object(object.key());
                    (self.interest.write().apply(object), Cause::default())
                }
                SourceEvent::InitDone => {
                    self.has_listed = true;
                    continue;
                }
                SourceEvent::Apply(object, mut cause) => {
                    self.identities.note_change(object.key());
                    let object = self.identities.identify(object);
                    spans.extend(self.begin(&mut cause, object.key(), ChangeKind::Applied));
                    group.object(object.key());
                    (self.interest.write().apply(object), cause)
                }
                SourceEvent::Delete { key, uid, mut cause } => {
                    let uid = self.identities.remove(&key, uid);
                    spans.extend(self.begin(&mut cause, &key, ChangeKind::Removed));
                    group.object(&key);
                    (self.take_out(&key, &uid), cause)
                }
                SourceEvent::Notice(notice) => {
                    self.metrics.noticed(notice.kind);
                    // The reader of notices may be gone or slow; the objects matter more.
                    if let Err(error) = self.notices.try_send(notice) {
                        tracing::warn!(notice = %error.into_inner(), "a notice was not shown");
                    }
                    continue;
                }
            };
            group.nodes_of(&affected);
            entries.extend(affected.into_iter().map(|entry| {
                let traceparent = cause.traceparent.clone();
                EntryChange { entry, traceparent }
            }));
        }
        self.changes.publish(group);
        self.publish_missing();
        IntakeChanges { entries, spans }
    }

    /// Removes an object that its source still has.
    pub(super) fn remove(&self, key: &ResourceKey, uid: &str) -> Vec<EntryChange> {
        let mut group = self.changes.begin();
        let affected = self.take_out(key, uid);
        group.object(key);
        group.nodes_of(&affected);
        self.changes.publish(group);
        self.publish_missing();
        affected.into_iter().map(EntryChange::from).collect()
    }

    /// Takes an object out of the interest. A pod has departed before it is gone, so that it never is neither.
    fn take_out(&self, key: &ResourceKey, uid: &str) -> Vec<EntryId> {
        if key.kind() == "pod" {
            let pod = self.interest.read().object(key).filter(|pod| pod.uid() == uid);
            if let Some(pod) = pod {
                self.departed.note_removal(&pod);
            }
        }
        self.interest.write().remove(key, uid)
    }

    /// Notes which nodes have programs that read the shared stream.
    pub(super) fn note_consumption(&self, nodes: BTreeMap<NodeName, bool>) -> Vec<EntryChange> {
        let mut interest = self.interest.write();
        let affected = nodes.iter().flat_map(|(node, consumes_cluster)| {
            interest.note_consumption(node, *consumes_cluster)
        });
        affected.map(EntryChange::from).collect()
    }

    /// The content that an entry should have now; `None` where it should be absent.
    pub(super) fn desired(&self, stream: &StreamId, key: &EntryKey) -> Option<Applied> {
        self.interest.read().desired(stream, key)
    }

    /// Whether a stream should have an entry.
    pub(super) fn is_desired(&self, stream: &StreamId, key: &EntryKey) -> bool {
        self.interest.read().is_desired(stream, key)
    }

    /// How many nodes use an object; 0 for an entry that is no object.
    pub(super) fn users_count(&self, key: &EntryKey) -> usize {
        key.resource().map_or(0, |key| self.interest.read().users_count(key))
    }

    /// Every stream that should have entries.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.interest.read().streams().collect()
    }

    /// The entries of a stream that have to change; see [`crate::interest::Interest::take_differing`].
    pub(super) fn take_differing(
        &self,
        stream: &StreamId,
        published: &mut HashMap<EntryKey, EntrySummary>,
    ) -> Vec<EntryId> {
        self.interest.read().take_differing(stream, published)
    }

    /// Notes the claim of the writer whose objects the sources found at their start.
    pub(super) fn started_from(&mut self, writer: Option<Uuid>) {
        self.identities.started_from(writer);
    }

    /// Notes that another controller may have written since.
    pub(super) fn another_wrote(&mut self) {
        self.identities.another_wrote();
    }

    /// Notes that this controller writes no more.
    pub(super) fn ended(&mut self) {
        self.identities.ended();
    }

    /// Notes that this controller won the claim of the epoch `own`, after the claim of `another`
    /// controller if that is the one before; `has_gap` when yet another claim may have come between the two.
    pub(super) fn claimed(&mut self, another: Option<Uuid>, own: WriterEpoch, has_gap: bool) {
        self.identities.claimed(another, own, has_gap);
    }

    /// Whether another controller may have written since this one did, or since its sources started.
    pub(super) fn follows_another(&self) -> bool {
        self.identities.follows_another()
    }

    /// Adopts the UIDs that another controller wrote, where it has to.
    pub(super) fn adopt(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        if self.identities.must_adopt() {
            self.identities.adopt(&self.interest, engine)?;
            self.changes.publish_everything();
        } else {
            self.identities.adopt_nothing();
        }
        Ok(())
    }

    /// Adopts the UIDs of another writer as its standby, so that a take-over adopts only what has
    /// changed since.
    pub(super) fn prepare(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        if self.has_listed && self.identities.must_prepare() {
            self.identities.adopt(&self.interest, engine)?;
            self.changes.publish_everything();
        }
        Ok(())
    }

    /// Counts a change of a source and begins its span.
    fn begin(&self, cause: &mut Cause, key: &ResourceKey, kind: ChangeKind) -> Option<Span> {
        self.metrics.changed(cause.source, kind);
        spans::source_change(cause, key, kind.name())
    }

    /// Notifies the sources when the set of missing objects has changed. A pod whose objects are all there wakes none.
    fn publish_missing(&self) {
        let version = self.interest.read().missing_version();
        self.missing.send_if_modified(|seen| std::mem::replace(seen, version) != version);
    }
}

impl From<EntryId> for EntryChange {
    fn from(entry: EntryId) -> Self {
        Self { entry, traceparent: None }
    }
}
