//! Why a value has no encoding, or bytes no meaning.

/// A value without an encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value cannot be encoded: {reason}")]
pub struct EncodeError {
    /// Why.
    pub reason: String,
}

/// Bytes that are no key or value of the table they lie in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("{want} more bytes are wanted, {found} are there")]
    Short {
        /// How many are wanted.
        want: usize,
        /// How many are there.
        found: usize,
    },
    /// A text does not end.
    #[error("a text has no end")]
    Unterminated,
    /// Bytes are left over.
    #[error("{bytes} bytes are left over")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// The bytes mean nothing.
    #[error("malformed {what}: {reason}")]
    Malformed {
        /// What they should be.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl DecodeError {
    /// The bytes should be `what`, but `reason`.
    pub fn malformed(what: &'static str, reason: &dyn std::fmt::Display) -> Self {
        Self::Malformed { what, reason: reason.to_string() }
    }
}
