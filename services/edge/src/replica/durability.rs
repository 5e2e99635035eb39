//! Durability: commits what is folded, has it synced, and releases what is durable.

use headwater_event::EntryKey;
use headwater_view::{EffectKind, Release};

use super::fold::AppliedEffect;
use super::owner::EdgeReplica;
use super::reads::view_change;
use super::sync::CompletedSync;
use super::watch::{WatchItem, Watchers};
use super::{ReplicaError, ReplicaEvent};
use crate::meta::object::Object;

impl EdgeReplica {
    /// Commits what is folded, and begins a sync if an effect waits for one or it is time.
    pub(super) async fn settle(&mut self) -> Result<(), ReplicaError> {
        self.commit().await?;
        if self.relists { self.make_durable().await } else { self.sync_if_due().await }
    }

    /// Commits what is folded, and waits until all that is applied is durable and released.
    pub(super) async fn make_durable(&mut self) -> Result<(), ReplicaError> {
        self.commit().await?;
        while self.materializer.is_ahead_of_durable() {
            self.begin_sync().await?;
            self.await_sync().await?;
        }
        Ok(())
    }

    /// Commits what is folded, and sends the session its events.
    pub(super) async fn commit(&mut self) -> Result<(), ReplicaError> {
        if self.open > 0 {
            while self.sync.is_running() && self.is_crowded() {
                self.await_sync().await?;
            }
            let stopwatch = self.counts.start();
            let moved = self.materializer.commit()?;
            self.counts.committed(&stopwatch);
            self.open = 0;
            let completes =
                moved.get(&self.private).is_some_and(|at| at.is_some() != self.complete);
            let replaced = std::mem::take(&mut self.materializer.projection_mut().replaced);
            self.relists |= completes || replaced;
        }
        for event in std::mem::take(&mut self.events) {
            self.send_session(event).await;
        }
        Ok(())
    }

    /// Whether a commit must wait for the running sync: enough commits wait already, or the commit
    /// would be synced by itself.
    fn is_crowded(&self) -> bool {
        self.materializer.waiting_commits() >= self.settings.commits_waiting_max
            || self.materializer.commit_syncs()
    }

    async fn sync_if_due(&mut self) -> Result<(), ReplicaError> {
        let interval = u64::try_from(self.settings.sync_interval.as_millis()).unwrap_or(u64::MAX);
        let is_time = self.now_ms.saturating_sub(self.synced_ms) >= interval;
        let is_ahead = self.materializer.is_ahead_of_durable();
        if self.materializer.waiting_effects() > 0 || (is_ahead && is_time) {
            self.begin_sync().await?;
        }
        Ok(())
    }

    /// Requests a sync of all that is applied, unless one is running.
    async fn begin_sync(&mut self) -> Result<(), ReplicaError> {
        if self.sync.is_running() {
            return Ok(());
        }
        let ticket = self.materializer.ticket();
        if !self.materializer.is_ahead_of_durable() {
            // The last commit was synced by itself.
            let released = self.materializer.synced(ticket);
            return self.release(released).await;
        }
        self.synced_ms = self.now_ms;
        self.sync.begin(ticket, self.counts.start())
    }

    pub(super) async fn await_sync(&mut self) -> Result<(), ReplicaError> {
        let synced = self.sync.end().await?;
        self.synced(synced).await
    }

    /// Releases what a sync made durable, and begins the next sync if it is due.
    pub(super) async fn synced(&mut self, sync: CompletedSync) -> Result<(), ReplicaError> {
        self.counts.synced(&sync.stopwatch);
        let released = self.materializer.synced(sync.ticket);
        self.release(released).await?;
        self.sync_if_due().await
    }

    /// Sends what has become durable: first to the session, then to the outbox thread, which must
    /// know a pod before its status can come, then to the watches.
    async fn release(&mut self, released: Release<AppliedEffect>) -> Result<(), ReplicaError> {
        for (stream, position) in &released.moved {
            if let Some((checkpoint, _)) = *position {
                let stream = stream.clone();
                self.send_session(ReplicaEvent::Durable { stream, checkpoint }).await;
            }
        }
        // A listing reads all that is applied, so it must wait until that is durable.
        let relist = self.relists && !self.materializer.is_ahead_of_durable();
        if relist {
            self.relists = false;
            self.complete = self.materializer.durable_position(&self.private).is_some();
            let listed = self.list_pods()?;
            self.send_upstream(listed).await;
        } else {
            let private = released.effects.iter().filter(|done| done.effect.stream == self.private);
            let changes = private.filter_map(|done| view_change(&done.effect.kind)).collect();
            self.send_upstream(changes).await;
        }
        self.counts.visible(released.effects.iter().filter_map(|done| done.appended_ms));
        // Each span ends after its turn: its change is durable and released.
        for effect in released.effects {
            self.notify_watches(effect, relist);
        }
        if relist {
            let mut watchers =
                std::mem::replace(&mut self.watchers, Watchers::new(self.settings.watch));
            watchers.list(|filter| self.listing(filter))?;
            self.watchers = watchers;
        }
        self.counts.watches(self.watchers.len(), self.watchers.lagged());
        Ok(())
    }

    /// Sends one change to the watches that see it. A new listing that follows (`relists`) has the
    /// objects; it does not name what was removed.
    fn notify_watches(&mut self, done: AppliedEffect, relists: bool) {
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
}
