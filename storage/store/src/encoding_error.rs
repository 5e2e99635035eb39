//! The errors of encoding and decoding: a value without an encoding, and bytes that do not decode.

/// A value without an encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value cannot be encoded: {reason}")]
pub struct EncodeError {
    /// The reason.
    pub reason: String,
}

/// The bytes of a row do not decode to a key or value of its table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("the bytes end too early: {want} more are needed, {found} are left")]
    Short {
        /// The number of bytes that are needed.
        want: usize,
        /// The number of bytes that are left.
        found: usize,
    },
    /// A text has no terminator.
    #[error("a text has no terminator")]
    Unterminated,
    /// Bytes remain after the value.
    #[error("{bytes} bytes remain after the value")]
    Trailing {
        /// Their number.
        bytes: usize,
    },
    /// The bytes have an invalid form.
    #[error("malformed {what}: {reason}")]
    Malformed {
        /// The expected type.
        what: &'static str,
        /// The cause.
        reason: String,
    },
}

impl DecodeError {
    /// Creates [`DecodeError::Malformed`] for an expected `what`.
    pub fn malformed(what: &'static str, reason: &dyn std::fmt::Display) -> Self {
        Self::Malformed { what, reason: reason.to_string() }
    }
}
