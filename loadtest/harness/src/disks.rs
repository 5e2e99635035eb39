//! The databases that a node leaves behind.

use std::sync::Arc;

use headwater_event::NodeName;
use headwater_store::Engine;

/// The two databases of a node.
#[derive(Clone, Debug)]
pub struct NodeDisks {
    /// The node.
    pub node: NodeName,
    /// Its replica.
    pub state: Arc<dyn Engine>,
    /// Its outbox.
    pub outbox: Arc<dyn Engine>,
}
