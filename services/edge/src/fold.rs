//! What the edge folds: pushes of its streams, and streams that it no longer has.

use std::collections::HashMap;

use headwater_event::{EntryKey, StreamId};
use headwater_session::message::{Push, PushMode};
use headwater_view::{
    Advance, Effect, Effected, FoldError, Mode, Projection, Refusal, StreamState,
};

/// A push, or one part of it, with its objects hashed and encoded: done where it is received, so
/// that the thread that folds has that much less to do.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    /// What it brings.
    pub(crate) advance: Advance,
    /// The trace contexts of its changes.
    causes: HashMap<EntryKey, String>,
}

/// One input of the fold.
#[derive(Debug)]
pub(crate) enum Input {
    /// A push, or one part of it.
    Push(Intake),
    /// A stream that the node no longer has.
    Drop(StreamId),
}

/// What was done, and what caused it.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) effect: Effect,
    pub(crate) traceparent: Option<String>,
}

/// Folds pushes.
#[derive(Debug, Default)]
pub(crate) struct EdgeFold {
    /// Whether a catch-up became visible whose entries are to be read again before more is
    /// folded.
    pub(crate) replaced: bool,
}

impl Projection for EdgeFold {
    type Input = Input;
    type Effect = Done;
    type Refusal = Refusal;

    fn fold(
        &mut self,
        input: Input,
        state: &mut StreamState,
        done: &mut Vec<Done>,
    ) -> Result<(), FoldError<Refusal>> {
        let mut effects = Vec::new();
        let mut causes = HashMap::new();
        match input {
            Input::Push(push) => {
                causes = push.causes;
                state.apply_advance(push.advance, &mut effects)?;
            }
            Input::Drop(stream) => state.drop_stream(&stream, &mut effects)?,
        }
        // What did not change wakes nobody, and is no reason for a sync.
        for effect in effects.into_iter().filter(Effect::wakes) {
            self.replaced |= effect.effected == Effected::Replaced;
            let traceparent = key_of(&effect.effected).and_then(|key| causes.get(key).cloned());
            done.push(Done { effect, traceparent });
        }
        Ok(())
    }
}

impl From<Push> for Intake {
    fn from(push: Push) -> Self {
        let Push { stream, mode, from, to, changes, hash, part, last_part } = push;
        let mode = match mode {
            PushMode::Tail => Mode::Tail,
            PushMode::Delta => Mode::Delta,
            PushMode::Snapshot => Mode::Snapshot,
        };
        let mut causes = HashMap::new();
        let changes = changes.into_iter().map(|pushed| {
            if let Some(cause) = pushed.traceparent {
                causes.insert(pushed.change.key().clone(), cause);
            }
            pushed.change
        });
        let advance =
            Advance::new(stream, mode, from, to, hash, changes).part(part, last_part);
        Self { advance, causes }
    }
}

fn key_of(effected: &Effected) -> Option<&EntryKey> {
    match effected {
        Effected::Added(applied) | Effected::Changed(applied) => Some(&applied.key),
        Effected::Removed(removed) => Some(&removed.key),
        Effected::Unchanged(key) => Some(key),
        Effected::Replaced => None,
    }
}
