//! The state of each source: whether it lists, follows or has failed.
//!
//! A source that watches several kinds of objects reports a state for each of them, as its *part*;
//! the part without a name is the source as a whole. Unlike a notice, a state is there until it
//! changes: `readyz`, `status` and metrics read it. So are the troubles of the source's documents.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use headwater_follow::WallClock;
use headwater_telemetry::error_chain;
use jiff::Timestamp;
use tokio::sync::watch;

use super::trouble::DocumentTroubles;
use super::{Notice, SourceError, SourceKind};
use crate::metrics::PublisherMetrics;

/// What a source, or a part of one, does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It lists its objects.
    Listing,
    /// It has listed, and sends changes.
    Following,
    /// It sends nothing just now.
    Failed {
        /// The reason, in words.
        cause: String,
        /// Since when, in milliseconds since the Unix epoch.
        since_ms: i64,
        /// When it tries again; `None` where it does not.
        retry_ms: Option<i64>,
    },
}

impl SourceState {
    /// Whether it failed and does not try again.
    fn has_stopped(&self) -> bool {
        matches!(self, Self::Failed { retry_ms: None, .. })
    }
}

/// A source, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePart {
    /// The kind of the source.
    pub source: SourceKind,
    /// The kind of objects, such as `pods`; empty for the source as a whole.
    pub part: String,
}

/// The states of all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStates {
    parts: BTreeMap<SourcePart, SourceState>,
    /// What is wrong with the documents of each source.
    documents: BTreeMap<SourceKind, DocumentTroubles>,
}

/// Reports the states of one source.
#[derive(Clone)]
pub struct SourceStateSender {
    source: SourceKind,
    states: watch::Sender<SourceStates>,
    clock: WallClock,
    metrics: PublisherMetrics,
}

impl SourceStates {
    /// Each part and its state, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&SourcePart, &SourceState)> {
        self.parts.iter()
    }

    /// Whether every part has listed and follows.
    pub fn all_follow(&self) -> bool {
        self.parts.values().all(|state| *state == SourceState::Following)
    }

    /// Whether every source as a whole follows. A part of one may have failed, such as a kind of
    /// objects that a source may not read: the rest goes on.
    pub fn sources_follow(&self) -> bool {
        let mut wholes = self.parts.iter().filter(|(part, _)| part.part.is_empty());
        wholes.all(|(_, state)| *state == SourceState::Following)
    }

    /// The parts that do not follow, in words; empty when all do.
    pub fn unready(&self) -> Vec<String> {
        let waiting = self.parts.iter().filter(|(_, state)| **state != SourceState::Following);
        waiting.map(|(part, state)| format!("{part}: {state}")).collect()
    }

    /// The parts that failed for good, in words; empty when each follows or tries again.
    pub fn stopped(&self) -> Vec<String> {
        let stopped = self.parts.iter().filter(|(_, state)| state.has_stopped());
        stopped.map(|(part, state)| format!("the source {part} {state}")).collect()
    }

    /// For each part that does not follow, a sentence for `status`: what is wrong, since when, and
    /// what happens next. Then what is wrong with documents. Empty when all is well.
    pub fn troubles(&self) -> Vec<String> {
        let trouble = |(part, state): (&SourcePart, &SourceState)| match state {
            SourceState::Following => None,
            SourceState::Listing => Some(format!(
                "the source {part} is still listing; its objects are not all published yet"
            )),
            SourceState::Failed { cause, since_ms, retry_ms: Some(_) } => {
                Some(format!("the source {part} failed{} and tries again: {cause}", at(*since_ms)))
            }
            SourceState::Failed { cause, since_ms, retry_ms: None } => Some(format!(
                "the source {part} stopped{}: {cause}; pods keep running; restart the controller to \
                 follow the source again",
                at(*since_ms)
            )),
        };
        let of_documents = self.documents.values().flat_map(DocumentTroubles::sentences);
        self.parts.iter().filter_map(trouble).chain(of_documents).collect()
    }
}

/// ` at 2026-01-31T12:00:00Z`; empty where no calendar has the time.
fn at(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms);
    time.map_or_else(|_| String::new(), |time| format!(" at {time:.0}"))
}

impl SourceStateSender {
    pub(crate) fn new(
        source: SourceKind,
        states: watch::Sender<SourceStates>,
        clock: WallClock,
        metrics: PublisherMetrics,
    ) -> Self {
        Self { source, states, clock, metrics }
    }

    /// The states of all sources.
    #[cfg(test)]
    pub(crate) fn subscribe(&self) -> watch::Receiver<SourceStates> {
        self.states.subscribe()
    }

    /// Sets the state of `part`; an empty name is the source as a whole.
    pub fn set(&self, part: &str, state: SourceState) {
        let is_following = state == SourceState::Following;
        self.metrics.source_follows(self.source, part, is_following);
        let part = SourcePart { source: self.source, part: part.to_owned() };
        self.states.send_if_modified(|states| {
            let before = states.parts.insert(part, state.clone());
            before.is_none_or(|before| before != state)
        });
    }

    /// Sets the state of `part` to failed, since now. A part that failed before keeps its time.
    pub fn fail(&self, part: &str, cause: String, retry_ms: Option<i64>) {
        let key = SourcePart { source: self.source, part: part.to_owned() };
        let since_ms = match self.states.borrow().parts.get(&key) {
            Some(SourceState::Failed { since_ms, .. }) => *since_ms,
            _ => (self.clock)(),
        };
        self.set(part, SourceState::Failed { cause, since_ms, retry_ms });
    }

    /// Sets the state of the whole source to failed by `error`, to be tried again after `wait`. A
    /// source that failed before keeps its time.
    pub(crate) fn fail_for_now(&self, error: &SourceError, wait: Duration) {
        self.fail_for("", error_chain(error), wait);
    }

    /// Sets the state of `part` to failed, to be tried again after `wait`. A part that failed before
    /// keeps its time.
    pub fn fail_for(&self, part: &str, cause: String, wait: Duration) {
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.fail(part, cause, Some((self.clock)().saturating_add(wait_ms)));
    }

    /// Counts a failure of the source, which stopped or tries again.
    pub fn count_failure(&self, error: &SourceError) {
        self.metrics.source_failed(error);
    }

    /// Sets the troubles of the documents, or objects, of this source to those among `notices`.
    pub fn set_documents<'n>(&self, notices: impl Iterator<Item = &'n Notice>) {
        let troubles = DocumentTroubles::of(notices);
        self.states.send_if_modified(|states| {
            if states.documents.get(&self.source) == Some(&troubles) {
                return false;
            }
            states.documents.insert(self.source, troubles);
            for (kind, count) in DocumentTroubles::totals(states.documents.values()) {
                self.metrics.manifest_troubles(kind, count);
            }
            true
        });
    }

    /// Ends the states of this source, which stopped for `cause`: its parts are gone, and the source
    /// as a whole has failed for good. A source that ended before keeps its first cause.
    pub(super) fn end(&self, cause: String) {
        let mut has_ended = false;
        self.states.send_modify(|states| {
            states.parts.retain(|part, state| {
                let is_whole = part.part.is_empty();
                if part.source != self.source {
                    return true;
                }
                has_ended |= is_whole && state.has_stopped();
                self.metrics.source_follows(self.source, &part.part, false);
                is_whole
            });
        });
        if !has_ended {
            self.fail("", cause, None);
        }
    }

    /// The sender of another source, into the same states.
    pub(super) fn of(&self, source: SourceKind) -> Self {
        Self { source, ..self.clone() }
    }
}

impl fmt::Display for SourcePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.part {
            "" => write!(f, "{}", self.source),
            part => write!(f, "{} {part}", self.source),
        }
    }
}

impl fmt::Display for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listing => f.write_str("listing"),
            Self::Following => f.write_str("following"),
            Self::Failed { cause, .. } => write!(f, "failed: {cause}"),
        }
    }
}

impl fmt::Debug for SourceStateSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceStateSender").field("source", &self.source).finish_non_exhaustive()
    }
}
