//! A push that several sessions send.
//!
//! Nodes that have the same stream and keep up with it receive the same events. Their push is made
//! once, and so is its form on the wire.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::message::Push;

/// A push that several sessions send. It does not change.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedPush {
    push: Push,
    bytes: u64,
    encoded: OnceLock<Bytes>,
}

impl SharedPush {
    /// Shares `push`.
    pub fn new(push: Push) -> Self {
        let bytes = push.bytes();
        Self { push, bytes, encoded: OnceLock::new() }
    }

    /// The push.
    pub fn push(&self) -> &Push {
        &self.push
    }

    /// The bytes that the push takes of a window: [`Push::bytes`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The push on the wire, as the first call encodes it. All callers encode alike.
    pub fn encoded(&self, encode: impl FnOnce(&Push) -> Bytes) -> Bytes {
        self.encoded.get_or_init(|| encode(&self.push)).clone()
    }
}
