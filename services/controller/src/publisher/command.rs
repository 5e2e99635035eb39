//! Commands of the controller's other tasks to the publisher.

use headwater_event::ResourceKey;

/// A change that another task of the controller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Remove an object, though its source still has it. A standby discards the command: the sink
    /// of the next writer repeats it.
    RemoveObject {
        /// The object.
        key: ResourceKey,
        /// Its UID. An object of the same name with another UID stays.
        uid: String,
    },
}
