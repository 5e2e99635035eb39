//! What an outbox database holds, for whoever looks into one that nobody runs on: a test after a
//! crash, a person after an accident.

use headwater_event::{Identity, NodeName, Report};
use headwater_store::{Engine, EngineError};
use headwater_view::PodStatusSnapshot;

use crate::upstream::identity;
use crate::upstream::outbox::{Outbox, OutboxSettings};
use crate::upstream::pod_statuses::PodStatuses;

/// What an outbox database holds.
#[derive(Clone, Debug)]
pub struct OutboxContents {
    /// The last start of the node on it; `None`: there was none.
    pub identity: Option<Identity>,
    /// The reports that the cloud has not acknowledged, in order.
    pub reports: Vec<Report>,
    /// What the cloud knows of the pods once it has these reports; `None`: a full snapshot is
    /// due, until then nothing is known of what it knows.
    pub reported: Option<PodStatusSnapshot>,
}

/// Reads the outbox database of `node`. Changes nothing.
///
/// # Errors
/// As the engine; a row that cannot be read is [`EngineError::Corrupt`].
pub fn read_outbox(engine: &dyn Engine, node: &NodeName) -> Result<OutboxContents, EngineError> {
    let outbox = Outbox::open(engine, OutboxSettings::default())?;
    let (identity, has_base) = match identity::last(engine, node)? {
        Some((identity, has_base)) => (Some(identity), has_base),
        None => (None, false),
    };
    let told = has_base.then(|| PodStatuses::open(engine, node)).transpose()?;
    Ok(OutboxContents {
        identity,
        reports: outbox.read(engine, None, usize::MAX)?,
        reported: told.map(PodStatuses::into_told),
    })
}

#[cfg(test)]
mod tests {
    use headwater_event::Incarnation;
    use headwater_store::MemoryEngine;

    use super::*;
    use crate::upstream::identity::Issuer;

    #[test]
    fn an_outbox_says_who_wrote_it() {
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
