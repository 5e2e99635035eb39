//! The state of each source: whether it lists, follows or has failed.
//!
//! A source that watches several kinds of objects reports a state for each of them, as its *part*;
//! the part without a name is the source as a whole. Unlike a notice, a state is there until it
//! changes: `readyz`, `status` and metrics read it.

use std::collections::BTreeMap;
use std::fmt;

use headwater_follow::WallClock;
use jiff::Timestamp;
use tokio::sync::watch;

use super::SourceKind;
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
pub struct SourceStates(BTreeMap<SourcePart, SourceState>);

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
        self.0.iter()
    }

    /// Whether every part has listed and follows.
    pub fn all_follow(&self) -> bool {
        self.0.values().all(|state| *state == SourceState::Following)
    }

    /// The parts that do not follow, in words; empty when all do.
    pub fn unready(&self) -> Vec<String> {
        let waiting = self.0.iter().filter(|(_, state)| **state != SourceState::Following);
        waiting.map(|(part, state)| format!("{part}: {state}")).collect()
    }

    /// For each part that does not follow, a sentence for `status`: what is wrong, since when, and
    /// what happens next. Empty when all follow.
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
        self.0.iter().filter_map(trouble).collect()
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

    /// Sets the state of `part`; an empty name is the source as a whole.
    pub fn set(&self, part: &str, state: SourceState) {
        let is_following = state == SourceState::Following;
        self.metrics.source_follows(self.source, part, is_following);
        let part = SourcePart { source: self.source, part: part.to_owned() };
        self.states.send_if_modified(|states| {
            let before = states.0.insert(part, state.clone());
            before.is_none_or(|before| before != state)
        });
    }

    /// Sets the state of `part` to failed, since now. A part that failed before keeps its time.
    pub fn fail(&self, part: &str, cause: String, retry_ms: Option<i64>) {
        let key = SourcePart { source: self.source, part: part.to_owned() };
        let since_ms = match self.states.borrow().0.get(&key) {
            Some(SourceState::Failed { since_ms, .. }) => *since_ms,
            _ => (self.clock)(),
        };
        self.set(part, SourceState::Failed { cause, since_ms, retry_ms });
    }

    /// Ends the states of this source, which stopped for `cause`: its parts are gone, and the source
    /// as a whole has failed for good. A source that ended before keeps its first cause.
    pub(super) fn end(&self, cause: String) {
        let mut has_ended = false;
        self.states.send_modify(|states| {
            states.0.retain(|part, state| {
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
