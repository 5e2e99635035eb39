//! The position of a stream's state.

use std::collections::BTreeMap;

use headwater_event::{Checkpoint, StateHash, StreamId};

/// A position of a stream, and the state hash there.
pub type StatePosition = (Checkpoint, StateHash);

/// The streams whose position changed, each with its new position; `None`: the stream was dropped.
pub type PositionChanges = BTreeMap<StreamId, Option<StatePosition>>;
