//! The contents of an outbox database on which no edge runs: for a test after a crash, or for a
//! person after an accident.

use headwater_event::{Identity, NodeName, Report};
use headwater_store::{Engine, EngineError};
use headwater_view::PodStatusSnapshot;

use super::identity;
use super::outbox::{Outbox, OutboxSettings};
use super::pod_statuses::PodStatuses;

/// The contents of an outbox database.
#[derive(Clone, Debug)]
pub struct OutboxContents {
    /// The last start of the node; `None`: there was none.
    pub identity: Option<Identity>,
    /// The reports that the cloud has not acknowledged, in order.
    pub reports: Vec<Report>,
    /// The cloud's pod status snapshot once it has these reports. `None`: a full snapshot is due,
    /// and the cloud's is unknown until then.
    pub reported: Option<PodStatusSnapshot>,
}

/// Reads the outbox database of `node`. Writes nothing.
///
/// # Errors
/// As the engine. A malformed row is [`EngineError::Corrupt`].
pub fn read_outbox(engine: &dyn Engine, node: &NodeName) -> Result<OutboxContents, EngineError> {
    let outbox = Outbox::open(engine, OutboxSettings::default())?;
    let (identity, has_base) = match identity::last(engine, node)? {
        Some((identity, has_base)) => (Some(identity), has_base),
        None => (None, false),
    };
    let statuses = has_base.then(|| PodStatuses::open(engine, node)).transpose()?;
    Ok(OutboxContents {
        identity,
        reports: outbox.read_all(engine)?,
        reported: statuses.map(PodStatuses::into_reported),
    })
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;
    use headwater_store::MemoryEngine;

    use super::*;
    use crate::upstream::identity::Issuer;

    #[test]
    fn the_contents_name_the_last_start() {
        let node: NodeName = "gw-1".parse().expect("a name");
        let engine = MemoryEngine::new();
        let empty = read_outbox(&engine, &node).expect("readable");
        assert!(empty.identity.is_none() && empty.reported.is_none());
        let started = Issuer::start(&engine, node.clone(), Incarnation(1), 7).expect("writes");
        let identity = started.expect("not older").issuer.identity();
        let found = read_outbox(&engine, &node).expect("readable");
        assert_eq!(found.identity, Some(identity));
        assert!(found.reported.is_none(), "a full snapshot is due");
    }
}
