//! Whether a node is present: its edge and its worker were heard a short time ago.

use std::time::Duration;

use headwater_event::NodeName;

use super::Contact;
use crate::picture::Picture;

/// How long after the last word of its edge or of its worker a node is present. A Lease of 40 s that
/// was renewed until then ends before the cluster's own grace does.
const PRESENT_FOR: Duration = Duration::from_secs(25);

/// The presence of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePresence {
    /// Its edge and its worker were heard a short time ago.
    pub is_present: bool,
    /// Its outbox was empty once since it connected: the picture has what it reported while it was away.
    pub has_drained: bool,
}

impl Picture {
    /// The presence of `node` now. A node that no hub has sent is not present: the log alone does not
    /// show when it was heard.
    pub fn node_presence(&self, node: &NodeName) -> NodePresence {
        let is_present = match self.presence.contact(node, None) {
            Contact::Connected(age) | Contact::Lost(age) => age <= PRESENT_FOR,
            Contact::Disconnected(_) | Contact::Unknown => false,
        };
        NodePresence { is_present, has_drained: true }
    }
}
