//! Why there is no stream to a node.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headwater_event::{NodeName, NodeProgress};
use headwater_identity::rfc3339;

use super::StreamRefusal;

/// Why there is no stream to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The node is connected to no hub.
    #[error("node {node} is not connected to the cloud; {}", last(contact.as_ref()))]
    Absent {
        /// The node.
        node: NodeName,
        /// The hub that heard it last, and when; `None`: none has.
        contact: Option<(String, SystemTime)>,
    },
    /// The session of the node is there, and the edge does not respond.
    #[error("node {node} does not respond; {}", last(contact.as_ref()))]
    Silent {
        /// The node.
        node: NodeName,
        /// The hub that heard it last, and when; `None`: none has.
        contact: Option<(String, SystemTime)>,
    },
    /// The node is connected to another hub.
    #[error(
        "node {node} is connected to hub {}, which heard it last at {}, not to this hub; send the request there",
        contact.0, rfc3339(contact.1)
    )]
    Elsewhere {
        /// The node.
        node: NodeName,
        /// The hub, and when it heard the node last. If the hub has died since, nothing newer is known.
        contact: (String, SystemTime),
    },
    /// The edge takes no dials.
    #[error(
        "node {node} takes no streams: its edge is of an earlier version, or has them switched off"
    )]
    Earlier {
        /// The node.
        node: NodeName,
    },
    /// The edge did not open the stream in time.
    #[error(
        "node {node} is connected, but did not open a stream within {} s; {}",
        within.as_secs(), last(contact.as_ref())
    )]
    Late {
        /// The node.
        node: NodeName,
        /// How long the hub waited.
        within: Duration,
        /// The hub that heard it last, and when; `None`: none has.
        contact: Option<(String, SystemTime)>,
    },
    /// The edge does not serve the stream now.
    #[error("node {node}: {reason}")]
    Refused {
        /// The node.
        node: NodeName,
        /// Its reason.
        reason: String,
    },
    /// The node has as many streams as it may have.
    #[error("node {node}: {reason}")]
    Busy {
        /// The node.
        node: NodeName,
        /// Its reason.
        reason: String,
    },
    /// Too many clients of this hub wait for streams.
    #[error("too many clients wait for streams to nodes: try again")]
    HubBusy,
    /// The hub stops.
    #[error("the hub stops: try again")]
    Stopping,
}

impl DialError {
    /// Whether the client may come again soon: a bound is reached.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::HubBusy)
    }

    /// The node has no session with the hub `own`; `last` is its last contact with any hub.
    pub(super) fn absent(node: &NodeName, own: &str, last: Option<&NodeProgress>) -> Self {
        let node = node.clone();
        match last {
            Some(last) if last.connected && last.hub != own => {
                Self::Elsewhere { node, contact: hub_and_time(last) }
            }
            last => Self::Absent { node, contact: last.map(hub_and_time) },
        }
    }

    /// The edge has sent nothing since a dial; `last` is its last contact.
    pub(super) fn silent(node: &NodeName, last: Option<&NodeProgress>) -> Self {
        Self::Silent { node: node.clone(), contact: last.map(hub_and_time) }
    }

    /// The edge did not open a stream `within` this time; `last` is its last contact.
    pub(super) fn late(node: &NodeName, within: Duration, last: Option<&NodeProgress>) -> Self {
        Self::Late { node: node.clone(), within, contact: last.map(hub_and_time) }
    }

    pub(super) fn refused(node: &NodeName, refusal: StreamRefusal) -> Self {
        let (node, StreamRefusal { reason, is_busy }) = (node.clone(), refusal);
        if is_busy { Self::Busy { node, reason } } else { Self::Refused { node, reason } }
    }
}

/// The hub of a contact, and its time.
fn hub_and_time(last: &NodeProgress) -> (String, SystemTime) {
    let since = u64::try_from(last.contact_ms).unwrap_or(0);
    (last.hub.clone(), UNIX_EPOCH + Duration::from_millis(since))
}

/// The last contact in words.
fn last(contact: Option<&(String, SystemTime)>) -> String {
    match contact {
        Some((hub, at)) => format!("hub {hub} heard it last at {}", rfc3339(*at)),
        None => "no hub has heard it yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};

    use super::*;

    fn last_at(hub: &str, connected: bool) -> NodeProgress {
        NodeProgress {
            hub: hub.to_owned(),
            connected,
            incarnation: Incarnation(1),
            boot: Boot { number: 1, nonce: 1 },
            connection: 1,
            outbox_depth: 0,
            contact_ms: 1_767_225_600_000,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: Vec::new(),
        }
    }

    #[test]
    fn an_absent_node_is_named_with_its_last_contact_or_its_hub() {
        let node: NodeName = "gw-1".parse().expect("a name");
        let words = |last: Option<NodeProgress>| {
            DialError::absent(&node, "hub-1", last.as_ref()).to_string()
        };
        assert_eq!(
            words(Some(last_at("hub-1", false))),
            "node gw-1 is not connected to the cloud; hub hub-1 heard it last at 2026-01-01T00:00:00Z"
        );
        // The record of this hub is older than what it knows itself.
        assert!(words(Some(last_at("hub-1", true))).contains("hub hub-1 heard it last at"));
        assert!(words(Some(last_at("hub-2", false))).contains("hub hub-2 heard it last at"));
        assert_eq!(
            words(Some(last_at("hub-2", true))),
            "node gw-1 is connected to hub hub-2, which heard it last at 2026-01-01T00:00:00Z, not to \
             this hub; send the request there"
        );
        assert!(words(None).ends_with("no hub has heard it yet"));
    }

    #[test]
    fn a_node_that_opens_no_stream_is_named_with_its_last_contact() {
        let node: NodeName = "gw-1".parse().expect("a name");
        let late = |last: Option<NodeProgress>| {
            DialError::late(&node, Duration::from_secs(10), last.as_ref()).to_string()
        };
        assert_eq!(
            late(Some(last_at("hub-1", true))),
            "node gw-1 is connected, but did not open a stream within 10 s; hub hub-1 heard it last at \
             2026-01-01T00:00:00Z"
        );
        assert!(late(None).ends_with("no hub has heard it yet"));
    }
}
