//! Durability: commits what is folded, has it synced, and releases what is durable.

use headwater_view::{Release, SyncTicket};

use super::ReplicaError;
use super::fold::AppliedEffect;
use super::owner::EdgeReplica;

impl EdgeReplica {
    /// Commits what is folded, and begins a sync if an effect waits for one or it is time.
    pub(super) async fn settle(&mut self) -> Result<(), ReplicaError> {
        self.commit().await?;
        if self.relists { self.make_durable().await } else { self.sync_if_due().await }
    }

    /// Commits what is folded, and waits until all that is applied is durable and released.
    pub(super) async fn make_durable(&mut self) -> Result<(), ReplicaError> {
        self.commit().await?;
        while self.fold.is_ahead_of_durable() {
            self.begin_sync().await?;
            self.await_sync().await?;
        }
        Ok(())
    }

    /// Commits what is folded, and sends the session its events.
    pub(super) async fn commit(&mut self) -> Result<(), ReplicaError> {
        if self.fold.has_open_batch() {
            while self.sync.is_running() && self.fold.is_crowded() {
                self.await_sync().await?;
            }
            let visible = self.fold.commit()?;
            self.relists |= visible.replaced || self.reader.changes_completeness(&visible.moved);
        }
        for event in self.fold.take_events() {
            self.subscribers.send_session(event).await;
        }
        Ok(())
    }

    async fn sync_if_due(&mut self) -> Result<(), ReplicaError> {
        let is_time = self.fold.is_ahead_of_durable() && self.sync.is_due();
        if self.fold.has_waiting_effects() || is_time {
            self.begin_sync().await?;
        }
        Ok(())
    }

    /// Requests a sync of all that is applied, unless one is running.
    async fn begin_sync(&mut self) -> Result<(), ReplicaError> {
        if self.sync.is_running() {
            return Ok(());
        }
        let ticket = self.fold.ticket();
        if !self.fold.is_ahead_of_durable() {
            // The last commit was synced by itself.
            let released = self.fold.synced(ticket);
            return self.release(released).await;
        }
        self.sync.begin(ticket)
    }

    pub(super) async fn await_sync(&mut self) -> Result<(), ReplicaError> {
        let synced = self.sync.end().await?;
        self.synced(synced).await
    }

    /// Releases what a sync made durable, and begins the next sync if it is due.
    pub(super) async fn synced(&mut self, ticket: SyncTicket) -> Result<(), ReplicaError> {
        let released = self.fold.synced(ticket);
        self.release(released).await?;
        self.sync_if_due().await
    }

    /// Sends what has become durable: first to the session, then to the outbox thread, which must
    /// know a pod before its status can come, then to the watches.
    async fn release(&mut self, released: Release<AppliedEffect>) -> Result<(), ReplicaError> {
        self.subscribers.send_durable(&released.moved).await;
        // A listing reads all that is applied, so it must wait until that is durable.
        let relist = self.relists && !self.fold.is_ahead_of_durable();
        let changes = if relist {
            self.relists = false;
            self.reader.update(self.fold.positions());
            self.reader.list_pods()?
        } else {
            self.reader.view_changes(&released.effects)
        };
        self.subscribers.send_upstream(changes).await;
        self.subscribers.notify_watches(released.effects, relist);
        if relist {
            let (reader, positions) = (&self.reader, self.fold.positions());
            self.subscribers.relist(|filter| reader.listing(filter, positions.keys()))?;
        }
        Ok(())
    }
}
