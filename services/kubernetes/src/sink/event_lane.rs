//! The lane of the Events: it reads those that are due from the picture, sends them and takes the answers.
//!
//! The picture is the queue: an Event stays in it until the API has it, and is read when its turn comes.
//! The decisions are in `event_plan` and `event_queue`.

use std::collections::HashMap;

use headwater_controller::{NodeEvent, Picture};
use headwater_event::{NodeName, ReportId, ResourceKey};
use headwater_telemetry::error_chain;
use tokio::task::{JoinError, JoinSet};

use super::answer::{Answer, send, unsendable};
use super::event_plan::{EventStep, EventWrite, plan_event};
use super::event_queue::{EventEnd, EventQueue};
use super::memory::Purpose;
use super::troubles::Troubles;
use super::{SinkDependencies, SinkMetrics};
use crate::access::Connection;
use crate::act_as::ActAs;
use crate::cluster_view::ClusterView;
use crate::event_level::EventLevel;

/// Events that are read at once, of some 700 bytes: less than a millisecond.
const PAGE: usize = 128;

/// The pause before a picture that could not be read, or a Node that is not there yet, is looked at again.
const LOOK_AGAIN_MS: u64 = 10_000;

/// The pause of a node's Events after one that lacks a right. An API server that has just started refuses what it allows
/// some seconds later.
const FORBIDDEN_EVENT_PAUSE_MS: u64 = 10_000;

/// Events that are remembered as written until they leave the picture, which takes a second or two. With
/// more of them, all are forgotten: some patches that change nothing are sent.
const WRITTEN_MAX: usize = 4_096;

/// See the module.
pub(super) struct EventLane {
    connection: Connection,
    act_as: ActAs,
    level: EventLevel,
    metrics: SinkMetrics,
    view: ClusterView,
    picture: Picture,
    queue: EventQueue,
    scan: Scan,
    /// The Events that the API has, in the reports with these ids.
    written: HashMap<ResourceKey, ReportId>,
    calls: JoinSet<CallEnd>,
}

/// How far the reading of all Events of the picture is.
#[derive(Debug)]
enum Scan {
    /// To go on after this key; `None`: to begin.
    After(Option<ResourceKey>),
    Complete,
}

/// The end of the requests for an Event.
pub(super) struct CallEnd {
    event: NodeEvent,
    /// The purposes and answers, at most two.
    answers: Vec<(Purpose, Answer)>,
}

impl EventLane {
    pub(super) fn new(
        connection: Connection,
        dependencies: &SinkDependencies,
        view: ClusterView,
        picture: Picture,
    ) -> Self {
        Self {
            connection,
            act_as: dependencies.act_as,
            level: dependencies.events,
            metrics: dependencies.metrics.clone(),
            view,
            picture,
            queue: EventQueue::default(),
            scan: Scan::Complete,
            written: HashMap::new(),
            calls: JoinSet::new(),
        }
    }

    /// Forgets everything. Requests on their way may have been done or not.
    pub(super) fn clear(&mut self) {
        self.queue = EventQueue::default();
        self.scan = Scan::Complete;
        self.written = HashMap::new();
        self.calls = JoinSet::new();
    }

    /// Notes that any Event may have changed.
    pub(super) fn mark_everything(&mut self) {
        if self.level != EventLevel::None {
            self.scan = Scan::After(None);
        }
    }

    /// Notes that the Event under `key` may have changed.
    pub(super) fn mark(&mut self, key: &ResourceKey, now_ms: u64) {
        if self.level == EventLevel::None {
            return;
        }
        match self.picture.reported_event(key) {
            Ok(Some(event)) => self.add(event, now_ms),
            Ok(None) => drop(self.written.remove(key)),
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "the picture cannot be read; trying again");
                self.mark_everything();
            }
        }
    }

    fn add(&mut self, event: NodeEvent, now_ms: u64) {
        let is_wanted = event.event["type"].as_str().is_some_and(|it| self.level.has(it));
        if is_wanted && !self.is_written(&event) && self.is_current(&event.node) {
            self.queue.add(&event.node, event.key, now_ms);
        }
    }

    /// Whether the picture has every report of a node: an Event may be older than the API has it otherwise. All Events
    /// are read again once the fold of reports has caught up.
    fn is_current(&self, node: &NodeName) -> bool {
        self.picture.has_caught_up(node).unwrap_or_else(|error| {
            let error = error_chain(&error);
            tracing::warn!(%node, error, "the picture cannot be read; Events wait");
            false
        })
    }

    /// Whether the API has an Event that has not left the picture yet.
    fn is_written(&self, event: &NodeEvent) -> bool {
        self.written.get(&event.key) == Some(&event.id)
    }

    /// The requests on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// When something is due.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        match self.scan {
            Scan::After(_) => Some(0),
            Scan::Complete => self.queue.next_due_ms(),
        }
    }

    /// No Event is written before the pause is over.
    pub(super) fn pause(&mut self, now_ms: u64, pause_ms: u64) {
        self.queue.pause(now_ms, pause_ms);
    }

    /// Some time has passed.
    pub(super) fn look(&mut self, now_ms: u64) {
        self.queue.forget_idle(now_ms);
    }

    /// Reads the next page of the picture, if not all was read.
    pub(super) fn read(&mut self, now_ms: u64) {
        let Scan::After(after) = &self.scan else { return };
        match self.picture.reported_events(after.as_ref(), PAGE) {
            Ok((events, next)) => {
                self.scan = next.map_or(Scan::Complete, |next| Scan::After(Some(next)));
                events.into_iter().for_each(|event| self.add(event, now_ms));
            }
            Err(error) => {
                let error = error_chain(&error);
                // The next change of an Event reads the picture again.
                tracing::warn!(error, "the picture cannot be read; Events wait");
                self.scan = Scan::Complete;
            }
        }
    }

    /// Sends the next Event that is due. False: none is.
    pub(super) fn write(&mut self, now_ms: u64, troubles: &mut Troubles) -> bool {
        let Some((node, key)) = self.queue.take(now_ms) else { return false };
        // In this order: the fold may go on in between.
        let is_current = self.is_current(&node);
        let event = match self.picture.reported_event(&key) {
            Ok(Some(event)) if is_current && event.node == node && !self.is_written(&event) => {
                event
            }
            // The API has it, it has left the picture, or it is read again later.
            Ok(_) => {
                self.queue.end(&node, key, EventEnd::Unsent, now_ms);
                return true;
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "the picture cannot be read; trying again");
                self.queue.end(&node, key, EventEnd::Paused(LOOK_AGAIN_MS), now_ms);
                return true;
            }
        };
        let step = plan_event(&event, &self.view.lock());
        match step {
            EventStep::Write(write) => self.send(event, *write),
            EventStep::Wait => {
                self.queue.end(&node, key, EventEnd::Paused(LOOK_AGAIN_MS), now_ms);
            }
            EventStep::Refuse(reason) => {
                self.refuse(&event, &reason, troubles);
                self.queue.end(&node, key, EventEnd::Settled, now_ms);
            }
        }
        true
    }

    fn send(&mut self, event: NodeEvent, write: EventWrite) {
        let (connection, act_as) = (self.connection.clone(), self.act_as);
        self.calls.spawn(async move {
            let EventWrite { create, patch, is_known } = write;
            let mut requests = [(Purpose::CreateEvent, create), (Purpose::PatchEvent, patch)];
            if is_known {
                requests.reverse();
            }
            let mut answers = Vec::new();
            for (purpose, request) in requests {
                let answer = match request.build() {
                    Ok(request) => {
                        let request = act_as.about(&event.node, request);
                        send(&connection, request, purpose.answer_part()).await
                    }
                    Err(error) => unsendable(&error),
                };
                let fits = !matches!(
                    (purpose, &answer),
                    (Purpose::CreateEvent, Answer::Conflict(_))
                        | (Purpose::PatchEvent, Answer::Absent)
                );
                answers.push((purpose, answer));
                if fits {
                    break;
                }
            }
            CallEnd { event, answers }
        });
    }

    /// The next end of a request. Cancel-safe; `None` while none is on its way.
    pub(super) async fn next_end(&mut self) -> Option<Result<CallEnd, JoinError>> {
        self.calls.join_next().await
    }

    /// Takes the end of a request. Returns the pause for which the API server asks.
    pub(super) fn end(
        &mut self,
        end: Result<CallEnd, JoinError>,
        now_ms: u64,
        troubles: &mut Troubles,
    ) -> Option<u64> {
        let CallEnd { event, answers } = match end {
            Ok(end) => end,
            Err(error) => {
                // The node of the Event stays in flight; a new epoch writes its Events again.
                tracing::error!(%error, "the request for an Event ended by itself");
                return None;
            }
        };
        for (purpose, answer) in &answers {
            self.metrics.answered(*purpose, answer);
        }
        let (purpose, answer) = answers.into_iter().next_back()?;
        let mut throttled_ms = None;
        let end = match answer {
            Answer::Done(_) => {
                troubles.allow(Purpose::CreateEvent);
                troubles.allow(Purpose::PatchEvent);
                troubles.accept_event(&event.node);
                self.settle(&event);
                EventEnd::Settled
            }
            // Its namespace is gone.
            Answer::Absent if purpose == Purpose::CreateEvent => {
                self.settle(&event);
                EventEnd::Settled
            }
            Answer::Refused(reason) => {
                self.refuse(&event, &reason, troubles);
                EventEnd::Settled
            }
            Answer::Forbidden(message) => {
                troubles.forbid(purpose, message);
                EventEnd::Paused(FORBIDDEN_EVENT_PAUSE_MS)
            }
            Answer::Throttled(after) => {
                let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                throttled_ms = Some(after_ms);
                EventEnd::Paused(after_ms)
            }
            Answer::Absent | Answer::Conflict(_) | Answer::Failed(_) => EventEnd::Failed,
        };
        self.queue.end(&event.node.clone(), event.key, end, now_ms);
        throttled_ms
    }

    fn refuse(&mut self, event: &NodeEvent, reason: &str, troubles: &mut Troubles) {
        let NodeEvent { key, node, .. } = event;
        tracing::warn!(%node, %key, reason, "an Event of a node is not written");
        troubles.refuse_event(node, key, reason);
        self.settle(event);
    }

    /// The API has the Event, or never will.
    fn settle(&mut self, event: &NodeEvent) {
        if self.written.len() >= WRITTEN_MAX {
            self.written.clear();
        }
        self.written.insert(event.key.clone(), event.id);
        self.picture.discard_event(event);
    }
}
