//! Kubernetes objects: identity, references, payloads, equality of statuses.
//!
//! Everything here is a value or a pure function over JSON. [`Object::from_value`] checks an object
//! once; all later code relies on that check.
//!
//! | module | what it owns |
//! |---|---|
//! | [`object_type`] | the types and their spellings |
//! | [`fields`] | the fields of an object that the Kubernetes API does not have |
//! | [`nearest`] | the name that a mistyped one most likely means |
//! | [`host_ports`] | the ports of the machine that a pod takes |
//! | [`node_request`] | what a node may request of the cloud, by the body of its request |
//! | [`object`] | a checked object: key, UID, payload, references |
//! | [`error`] | the reasons to refuse an object |
//! | [`defaults`] | the defaults of a Kubernetes API server on which readers rely |
//! | [`patch`] | an object as its difference to a base |
//! | [`payload`] | the replicated part of an object, as canonical bytes |
//! | [`pod_rules`] | the rules of a pod that the types of the API leave open |
//! | [`references`] | the other objects that an object names |
//! | `shape` | the check that each field has the type of the Kubernetes API |
//! | [`status`] | the equality of pod statuses |

pub mod defaults;
pub mod error;
pub mod fields;
pub mod host_ports;
pub mod nearest;
pub mod node_request;
pub mod object;
pub mod object_type;
pub mod patch;
pub mod payload;
pub mod pod_rules;
pub mod references;
mod shape;
pub mod status;

pub use error::ObjectError;
pub use node_request::{SigningRequest, TokenClaim};
pub use object::{Object, ObjectHead, identify};
pub use object_type::{OBJECT_TYPES, ObjectType, WORKLOAD_TYPES};
pub use payload::OBJECT_BYTES_MAX;
pub use references::Reference;
