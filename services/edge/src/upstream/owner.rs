//! The owner of the outbox database: runs the commands in groups. A group shares one synced write;
//! then the callers receive their replies and the session its events.

use std::fmt;
use std::sync::Arc;

use headwater_event::{Identity, Incarnation, NodeName, ReportBody};
use headwater_session::message::RefusedReport;
use headwater_store::EngineError;
use tokio::sync::{mpsc, oneshot, watch};

use super::identity::{Issuer, NodeStart};
use super::meta_sync::MetaSync;
use super::outbox::{Outbox, PageRequest};
use super::pod_statuses::PodStatuses;
use super::report_cause::ReportCause;
use super::report_writer::ReportWriter;
use super::tokens::{TokenStanding, Tokens};
use super::{
    OpenError, UpstreamCommand, UpstreamDependencies, UpstreamEvent, UpstreamSettings,
    UpstreamStatus,
};
use crate::dependencies::{Chance, Clock};
use crate::meta::object::Object;
use crate::meta::operation::OperationError;
use crate::metrics::EdgeCounts;

/// The most commands that share one synced write.
const GROUP_MAX: usize = 256;

/// The owner of the outbox database.
pub(crate) struct EdgeUpstream {
    writer: ReportWriter,
    meta_sync: MetaSync,
    tokens: Tokens,
    group: Group,
    stopping: bool,
    /// The number of reports that the cloud refused since the start, and the last one.
    refused: Option<(u64, String)>,
    session: mpsc::Sender<UpstreamEvent>,
    status: watch::Sender<UpstreamStatus>,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    metrics: EdgeCounts,
}

/// What follows the write of the open group.
#[derive(Default)]
struct Group {
    replies: Vec<Reply>,
    reads: Vec<PageRequest>,
    events: Vec<UpstreamEvent>,
}

/// A reply, and its receiver.
enum Reply {
    Changed(oneshot::Sender<Result<bool, OperationError>>, Result<bool, OperationError>),
    Statuses(oneshot::Sender<Vec<Object>>, Vec<Object>),
    Token(oneshot::Sender<TokenStanding>, TokenStanding),
}

impl EdgeUpstream {
    /// Begins a start of `node` over the outbox: raises and syncs its boot number.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(crate) fn open(
        node: NodeName,
        incarnation: Incarnation,
        settings: UpstreamSettings,
        dependencies: UpstreamDependencies,
    ) -> Result<(Self, watch::Receiver<UpstreamStatus>), OpenError> {
        let UpstreamDependencies { engine, clock, chance, session, metrics } = dependencies;
        let NodeStart { issuer, enrolled_anew } =
            Issuer::start(&*engine, node, incarnation, chance.draw())??;
        let outbox = Outbox::open(&*engine, settings.outbox)?;
        let statuses = PodStatuses::open(&*engine, issuer.node())?;
        let tokens = Tokens::open(&*engine)?;
        let (status, receiver) = watch::channel(UpstreamStatus {
            identity: issuer.identity(),
            depth: outbox.depth(),
            last_meta_sync_ms: 0,
            trouble: None,
        });
        let mut upstream = Self {
            writer: ReportWriter::new(engine, metrics.clone(), issuer, outbox),
            meta_sync: MetaSync::new(settings, statuses),
            tokens,
            group: Group::default(),
            stopping: false,
            refused: None,
            session,
            status,
            clock,
            chance,
            metrics,
        };
        if enrolled_anew {
            upstream.writer.reissue()?;
            upstream.meta_sync.reissued();
            upstream.writer.write()?;
            upstream.publish();
        }
        Ok((upstream, receiver))
    }

    /// The identity of this start.
    pub(crate) fn identity(&self) -> Identity {
        self.writer.issuer.identity()
    }

    /// Runs commands until one stops it, or all senders are gone.
    ///
    /// # Errors
    /// When the engine fails. The effect of a command without a reply is then unknown.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<UpstreamCommand>,
    ) -> Result<(), EngineError> {
        while !self.stopping
            && let Some(command) = commands.recv().await
        {
            self.run_group(command, || commands.try_recv().ok()).await?;
        }
        Ok(())
    }

    /// Runs `first`, and with it the commands that are queued.
    pub(super) async fn run_group(
        &mut self,
        first: UpstreamCommand,
        mut queued: impl FnMut() -> Option<UpstreamCommand>,
    ) -> Result<(), EngineError> {
        let mut next = Some(first);
        for _ in 0..GROUP_MAX {
            let Some(command) = next.take() else { break };
            self.run_command(command).await?;
            next = if self.writer.is_full() || self.stopping { None } else { queued() };
        }
        if let Some(command) = next {
            self.run_command(command).await?;
        }
        if self.meta_sync.is_due() {
            // The status has the reason of a refusal.
            let _ = self.run_meta_sync()?;
        }
        self.finish_group().await
    }

    async fn run_command(&mut self, command: UpstreamCommand) -> Result<(), EngineError> {
        match command {
            UpstreamCommand::View(changes) => {
                for change in changes {
                    self.tokens.apply(&mut self.writer.batch, &change);
                    self.meta_sync.apply(change);
                }
            }
            UpstreamCommand::SetStatus { pod, status, cause, reply } => {
                let set = self.meta_sync.set_status(&mut self.writer, pod, status, cause);
                self.group.replies.push(Reply::Changed(reply, set));
            }
            UpstreamCommand::RemoveStatus { pod, uid, reply } => {
                let removed = self.meta_sync.remove_status(&mut self.writer, &pod, uid.as_deref());
                self.group.replies.push(Reply::Changed(reply, Ok(removed)));
            }
            UpstreamCommand::Report { body, reply } => {
                let reported = self.report(body, None)?;
                self.group.replies.push(Reply::Changed(reply, reported));
            }
            UpstreamCommand::Terminate { pod, uid, cause, reply } => {
                let terminated = if self.meta_sync.view.has(&pod, &uid) {
                    let cause = ReportCause::of(&pod, cause);
                    self.report(ReportBody::PodTerminated { pod, uid }, cause)?
                } else {
                    Ok(false)
                };
                self.group.replies.push(Reply::Changed(reply, terminated));
            }
            UpstreamCommand::Statuses { of, reply } => {
                let found = self.meta_sync.find(&of);
                self.group.replies.push(Reply::Statuses(reply, found));
            }
            UpstreamCommand::MetaSync { reply } => {
                let reported = self.run_meta_sync()?;
                self.group.replies.push(Reply::Changed(reply, reported));
            }
            UpstreamCommand::FindToken { claim, reply } => {
                let standing = self.tokens.find(&claim, self.clock.wall_ms());
                self.group.replies.push(Reply::Token(reply, standing));
            }
            UpstreamCommand::KeepToken { claim, answer, reply } => {
                let (batch, now_ms) = (&mut self.writer.batch, self.clock.wall_ms());
                let is_kept = self.tokens.keep(batch, &claim, answer, now_ms);
                self.group.replies.push(Reply::Changed(reply, Ok(is_kept)));
            }
            UpstreamCommand::RevokeToken(claim) => {
                self.tokens.revoke(&mut self.writer.batch, &claim);
            }
            UpstreamCommand::Tick(now_ms) => self.meta_sync.tick(&self.writer, now_ms),
            UpstreamCommand::Stop => self.stopping = true,
            UpstreamCommand::Read(request) => self.group.reads.push(request),
            UpstreamCommand::Refused(refused) => self.refused(refused),
            UpstreamCommand::Forget(through) => {
                if self.writer.forget(through) {
                    self.meta_sync.has_room();
                }
            }
            UpstreamCommand::Raise { known } => {
                // The reissued outbox needs the whole batch.
                self.finish_group().await?;
                self.writer.raise(&known, self.chance.draw())?;
                self.meta_sync.reissued();
                self.group.events.push(UpstreamEvent::Raised(self.identity()));
                self.finish_group().await?;
            }
        }
        Ok(())
    }

    fn report(
        &mut self,
        body: ReportBody,
        cause: Option<ReportCause>,
    ) -> Result<Result<bool, OperationError>, EngineError> {
        match self.writer.report(body, cause) {
            Ok(_) => Ok(Ok(true)),
            Err(error) => error.refusal().map(Err),
        }
    }

    /// The cloud never takes a report. It leaves the outbox with those that the cloud has.
    fn refused(&mut self, refused: RefusedReport) {
        let RefusedReport { id, reason } = refused;
        // Another report of its key may have taken its place.
        let key = self.writer.outbox.key(id).cloned();
        if let Some(key) = &key {
            self.meta_sync.refused(key);
        }
        let key = key.as_ref().map_or("a report".to_owned(), ToString::to_string);
        tracing::error!(key, %id, reason, "the cloud never takes a report; the edge discards it");
        self.metrics.refused();
        let count = self.refused.take().map_or(0, |(count, _)| count) + 1;
        self.refused = Some((count, format!("{key}: {reason}")));
    }

    fn run_meta_sync(&mut self) -> Result<Result<bool, OperationError>, EngineError> {
        self.meta_sync.run(&mut self.writer, || self.clock.wall_ms())
    }

    /// Writes what the group did, then sends replies and events.
    async fn finish_group(&mut self) -> Result<(), EngineError> {
        self.writer.write()?;
        let has_new = self.writer.end_group();
        let Group { replies, reads, mut events } = std::mem::take(&mut self.group);
        self.publish();
        replies.into_iter().for_each(Reply::send);
        for request in reads {
            events.push(UpstreamEvent::Read(self.writer.read(request)?));
        }
        if has_new {
            events.push(UpstreamEvent::Reported);
        }
        for event in events {
            // The session takes every event without waiting for an owner. Without a session the
            // edge is stopping.
            let _ = self.session.send(event).await;
        }
        Ok(())
    }

    /// Publishes the status and the metrics.
    fn publish(&self) {
        let outbox = &self.writer.outbox;
        let dropped = match outbox.dropped() {
            0 => None,
            dropped => Some(format!(
                "the full outbox discarded {dropped} messages of functions and Events"
            )),
        };
        let refused = self.refused.as_ref().map(|(count, last)| {
            format!("the cloud refused {count} reports for good; the last: {last}")
        });
        self.metrics.outbox(outbox.depth(), outbox.bytes());
        self.metrics.meta_synced(self.meta_sync.last_ms);
        let status = UpstreamStatus {
            identity: self.identity(),
            depth: outbox.depth(),
            last_meta_sync_ms: self.meta_sync.last_ms,
            trouble: self.meta_sync.trouble.clone().or(refused).or(dropped),
        };
        self.status.send_if_modified(|current| {
            let is_modified = *current != status;
            *current = status;
            is_modified
        });
    }
}

impl Reply {
    /// Sends the reply; a caller that is gone needs none.
    fn send(self) {
        match self {
            Self::Changed(reply, changed) => drop(reply.send(changed)),
            Self::Statuses(reply, statuses) => drop(reply.send(statuses)),
            Self::Token(reply, standing) => drop(reply.send(standing)),
        }
    }
}

impl fmt::Debug for EdgeUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeUpstream").field("identity", &self.identity()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
