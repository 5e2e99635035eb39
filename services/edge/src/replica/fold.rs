//! The fold of the edge: pushes of its streams, and the removal of streams that it no longer has.

use std::collections::HashMap;

use headwater_event::{EntryKey, Seq, StreamId};
use headwater_session::message::{Push, PushMode};
use headwater_view::{
    Advance, AdvanceMode, Effect, EffectKind, FoldError, IncomingChange, Projection, Refusal,
    StreamState,
};
use tracing::Span;

/// A push, or one part of it, with its objects hashed and encoded. The session prepares it, which
/// relieves the thread that folds.
#[derive(Clone, Debug)]
pub(crate) struct PreparedPush {
    /// The changes, and the positions that they lead from and to.
    pub(crate) advance: Advance,
    causes: HashMap<EntryKey, ChangeCause>,
    /// When the log appended the first event.
    appended_ms: Option<i64>,
}

/// One input of the fold.
#[derive(Debug)]
pub(crate) enum FoldInput {
    /// A push, or one part of it.
    Push(PreparedPush),
    /// A stream that the node no longer has.
    Drop(StreamId),
}

/// An effect of the fold, and its cause.
#[derive(Clone, Debug)]
pub(crate) struct AppliedEffect {
    pub(crate) effect: Effect,
    pub(crate) cause: ChangeCause,
    /// When the log appended the event, or the first event of its push.
    pub(crate) appended_ms: Option<i64>,
}

/// The trace of a change, as far as the hub sent one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeCause {
    traceparent: Option<String>,
    /// From the fold of the change to its release.
    span: Option<Span>,
}

impl ChangeCause {
    fn of(traceparent: String, key: &EntryKey, stream: &StreamId, seq: Seq) -> Self {
        let span = tracing::info_span!("apply", %stream, seq = seq.0, %key);
        headwater_telemetry::continue_from(&span, Some(&traceparent));
        Self { traceparent: Some(traceparent), span: Some(span) }
    }

    /// The trace context of the change: this span's, else the hub's.
    pub(crate) fn traceparent(&self) -> Option<String> {
        let here = self.span.as_ref().and_then(headwater_telemetry::traceparent);
        here.or_else(|| self.traceparent.clone())
    }
}

impl FoldInput {
    /// How many changes the input has.
    pub(crate) fn changes(&self) -> usize {
        match self {
            Self::Push(push) => push.advance.changes(),
            Self::Drop(_) => 1,
        }
    }
}

/// The projection of pushes into the view.
#[derive(Debug, Default)]
pub(crate) struct EdgeFold {
    /// Whether an advance in parts became visible. The owner must list the view again before it
    /// folds more.
    pub(crate) replaced: bool,
}

impl Projection for EdgeFold {
    type Input = FoldInput;
    type Effect = AppliedEffect;
    type Refusal = Refusal;

    fn fold(
        &mut self,
        input: FoldInput,
        state: &mut StreamState,
        done: &mut Vec<AppliedEffect>,
    ) -> Result<(), FoldError<Refusal>> {
        let mut effects = Vec::new();
        let (mut causes, mut appended_ms) = (HashMap::new(), None);
        match input {
            FoldInput::Push(push) => {
                (causes, appended_ms) = (push.causes, push.appended_ms);
                state.apply_advance(push.advance, &mut effects)?;
            }
            FoldInput::Drop(stream) => state.drop_stream(&stream, &mut effects)?,
        }
        // An effect without a change notifies no watch and requires no sync.
        for effect in effects.into_iter().filter(Effect::wakes) {
            self.replaced |= effect.kind == EffectKind::Replaced;
            let cause = key_of(&effect.kind).and_then(|key| causes.get(key).cloned());
            done.push(AppliedEffect { effect, cause: cause.unwrap_or_default(), appended_ms });
        }
        Ok(())
    }
}

fn key_of(effected: &EffectKind) -> Option<&EntryKey> {
    match effected {
        EffectKind::Added(applied) | EffectKind::Changed(applied) => Some(&applied.key),
        EffectKind::Removed(removed) => Some(&removed.key),
        EffectKind::Unchanged(key) => Some(key),
        EffectKind::Replaced => None,
    }
}

impl From<Push> for PreparedPush {
    fn from(push: Push) -> Self {
        let Push { stream, mode, from, to, gone, changes, hash, part, last_part } = push;
        let mode = match mode {
            PushMode::Tail => AdvanceMode::Tail,
            PushMode::Delta => AdvanceMode::Delta,
            PushMode::Snapshot => AdvanceMode::Snapshot,
            PushMode::Correction => AdvanceMode::Correction,
        };
        // A head changes no key. Without a head, each change has a seq of its own.
        let is_each =
            mode == AdvanceMode::Tail && changes.len() as u64 == to.seq.0.saturating_sub(from.0);
        let appended_ms = changes.first().and_then(|pushed| pushed.appended_ms);
        let mut causes = HashMap::new();
        let changes: Vec<_> = changes
            .into_iter()
            .zip(from.0.saturating_add(1)..)
            .map(|(pushed, seq)| {
                if let Some(cause) = pushed.traceparent {
                    let key = pushed.change.key();
                    let seq = if is_each { Seq(seq) } else { to.seq };
                    causes.insert(key.clone(), ChangeCause::of(cause, key, &stream, seq));
                }
                IncomingChange { change: pushed.change, base: pushed.base }
            })
            .collect();
        let advance = Advance::new(stream, mode, from, to, hash, changes).with_gone(gone);
        let advance = advance.part(part, last_part);
        Self { advance, causes, appended_ms }
    }
}
