//! The subscribers of the replica: the session, the outbox thread, and the watches.

use headwater_event::EntryKey;
use headwater_store::EngineError;
use headwater_view::{EffectKind, PositionChanges};
use tokio::sync::mpsc;

use super::ReplicaEvent;
use super::counts::DeliveryCounts;
use super::fold::AppliedEffect;
use super::watch::{Filter, TooManyWatches, Watch, WatchItem, WatchSettings, Watchers};
use crate::meta::object::Object;
use crate::meta::operation::Operation;
use crate::meta::routing::Group;
use crate::upstream::{UpstreamCommand, ViewChange};

/// The tasks and watches that receive what the replica has.
#[derive(Debug)]
pub(super) struct Subscribers {
    session: mpsc::Sender<ReplicaEvent>,
    upstream: mpsc::Sender<UpstreamCommand>,
    watchers: Watchers,
    pub(super) counts: DeliveryCounts,
}

impl Subscribers {
    pub(super) fn new(
        session: mpsc::Sender<ReplicaEvent>,
        upstream: mpsc::Sender<UpstreamCommand>,
        settings: WatchSettings,
    ) -> Self {
        let (watchers, counts) = (Watchers::new(settings), DeliveryCounts::default());
        Self { session, upstream, watchers, counts }
    }

    /// Sends an event to the session, which takes every event without waiting for an owner. Without
    /// a session the edge is stopping.
    pub(super) async fn send_session(&self, event: ReplicaEvent) {
        let _ = self.session.send(event).await;
    }

    /// Sends the session the positions that became durable.
    pub(super) async fn send_durable(&self, moved: &PositionChanges) {
        for (stream, position) in moved {
            if let Some((checkpoint, _)) = *position {
                let stream = stream.clone();
                self.send_session(ReplicaEvent::Durable { stream, checkpoint }).await;
            }
        }
    }

    /// Sends changes of the view to the outbox thread, which never waits for the replica.
    pub(super) async fn send_upstream(&self, changes: Vec<ViewChange>) {
        if !changes.is_empty() {
            let _ = self.upstream.send(UpstreamCommand::View(changes)).await;
        }
    }

    /// Opens a watch whose first item is `listing`.
    pub(super) fn open_watch(
        &mut self,
        filter: Filter,
        listing: WatchItem,
    ) -> Result<Watch, TooManyWatches> {
        let watch = self.watchers.open(filter, listing);
        self.count_watches();
        watch
    }

    /// Delivers an operation to the watches of a group. Returns how many took it.
    pub(super) fn deliver(&mut self, group: Group, operation: &Operation) -> usize {
        self.watchers.deliver(group, operation)
    }

    /// Sends the watches what has become durable. A new listing that follows (`relists`) has the
    /// objects; it does not name what was removed.
    pub(super) fn notify_watches(&mut self, effects: Vec<AppliedEffect>, relists: bool) {
        self.counts.visible(effects.iter().filter_map(|done| done.appended_ms));
        // Each span ends after its turn: its change is durable and released.
        for effect in effects {
            self.notify_of(effect, relists);
        }
        self.count_watches();
    }

    fn notify_of(&mut self, done: AppliedEffect, relists: bool) {
        let traceparent = done.cause.traceparent();
        match done.effect.kind {
            EffectKind::Added(applied) | EffectKind::Changed(applied) => {
                if let Some(object) = Object::of_applied(applied)
                    && !relists
                {
                    let key = object.key.clone();
                    self.watchers.send(&key, &WatchItem::Applied { object, traceparent });
                }
            }
            EffectKind::Removed(removed) => {
                if let EntryKey::Resource(key) = removed.key {
                    let uid = removed.uid;
                    let item = WatchItem::Removed { key: key.clone(), uid, traceparent };
                    self.watchers.send(&key, &item);
                }
            }
            EffectKind::Unchanged(_) | EffectKind::Replaced => {}
        }
    }

    /// Sends every watch the listing of its filter.
    pub(super) fn relist(
        &mut self,
        listing: impl FnMut(&Filter) -> Result<WatchItem, EngineError>,
    ) -> Result<(), EngineError> {
        self.watchers.list(listing)?;
        self.count_watches();
        Ok(())
    }

    fn count_watches(&mut self) {
        self.counts.watches(self.watchers.len(), self.watchers.lagged());
    }
}
