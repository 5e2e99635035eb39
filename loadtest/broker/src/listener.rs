//! The listener of clients.

/// What clients must speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listener {
    /// Anyone may.
    #[default]
    Plaintext,
    /// TLS; the properties say whether clients need a certificate.
    Ssl,
    /// A user and a password, in the clear: for loopback.
    SaslPlaintext,
    /// Both.
    SaslSsl,
}

impl Listener {
    /// Kafka's name of it.
    pub fn security_protocol(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }
}
