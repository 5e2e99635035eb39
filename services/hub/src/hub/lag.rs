//! How far replicas are behind the fold.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use headwater_event::{Checkpoint, Seq, StreamId};
use headwater_session::{SourceError, StreamSource};

use crate::fold::FoldSource;
use crate::metrics::{GaugeSource, GaugeValues};
use crate::session::SessionDependencies;

/// How far a replica is behind in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The end of the stream in the hub's fold.
    pub tail: Checkpoint,
    /// When the first event that the replica lacks was appended, as far as the hub knows, in
    /// milliseconds since the Unix epoch; `None` when it lacks none.
    pub since_ms: Option<i64>,
}

/// How far a replica that has applied `applied` is behind in `stream`.
pub(super) fn lag(
    source: &FoldSource<'_>,
    stream: &StreamId,
    applied: Seq,
) -> Result<Lag, SourceError> {
    let tail = source.status(stream)?.checkpoint;
    let since_ms = if tail.seq > applied { source.changed_ms(stream, applied)? } else { None };
    Ok(Lag { tail, since_ms })
}

impl GaugeSource for SessionDependencies {
    /// Reads the lag of every connected node from one moment of the fold; leaves out a stream that
    /// cannot be read.
    fn read(&self) -> GaugeValues {
        let source = self.fold.source();
        // Thousands of nodes are at the same position of a shared stream.
        let mut lags: HashMap<(StreamId, Seq), Option<Lag>> = HashMap::new();
        let mut since_ms = None;
        let mut values = GaugeValues {
            sessions: self.sessions.count(),
            transfers: self.transfers.held(),
            ..GaugeValues::default()
        };
        for position in self.sessions.positions().into_values() {
            if !position.connected {
                values.disconnected += 1;
                continue;
            }
            values.connected += 1;
            for stream in position.streams {
                let applied = stream.applied;
                let lag = match lags.entry((stream.stream, applied)) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(vacant) => {
                        let lag = lag(&source, &vacant.key().0, applied).ok();
                        vacant.insert(lag)
                    }
                };
                let Some(lag) = lag else { continue };
                let events = lag.tail.seq.0.saturating_sub(applied.0);
                values.lag_sum += events;
                values.lag_max = values.lag_max.max(events);
                since_ms = [since_ms, lag.since_ms].into_iter().flatten().min();
            }
        }
        values.lag_ms_max = since_ms.map_or(0, |since_ms| (self.wall_clock)() - since_ms);
        values
    }
}
