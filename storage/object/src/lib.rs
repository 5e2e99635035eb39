//! Kubernetes objects as Headwater sees them: identity, references, payloads, status rules.
//!
//! Everything here is a value or a pure function over JSON. An object is checked once, where it
//! comes in ([`Object::from_value`]), and trusted from then on.
//!
//! | module | what it owns |
//! |---|---|
//! | [`object_type`] | the types and how people write them |
//! | [`object`] | an object that was checked: key, UID, payload, what it names |
//! | [`error`] | why something is no object |
//! | [`defaults`] | what a Kubernetes API server fills in on a write, where readers rely on it |
//! | [`patch`] | an object as its difference to another one |
//! | [`payload`] | which part of an object is replicated, and as which bytes |
//! | [`references`] | which other objects an object names |
//! | [`status`] | when two pod statuses say the same |

pub mod defaults;
pub mod error;
pub mod object;
pub mod object_type;
pub mod patch;
pub mod payload;
pub mod references;
mod shape;
pub mod status;

pub use error::ObjectError;
pub use object::{Object, identify};
pub use object_type::{OBJECT_TYPES, ObjectType};
pub use payload::OBJECT_BYTES_MAX;
pub use references::Reference;
