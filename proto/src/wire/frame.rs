//! A message of a hub, as its transport takes it: to be encoded, or encoded already.

use bytes::{BufMut, Bytes};
use headwater_session::message::{HubMessage, Push};
use prost::{DecodeError, EncodeError, Message as _};

use crate::replication as wire;

/// A message of a hub, as its transport takes it.
#[derive(Clone, Debug, PartialEq)]
pub enum HubFrame {
    /// To be encoded.
    Message(wire::HubMessage),
    /// Encoded; other connections have the same bytes.
    Encoded(Bytes),
}

impl HubFrame {
    /// Encodes a push for every connection that takes it.
    pub fn encode_push(push: &Push) -> Bytes {
        let message = wire::HubMessage::from(HubMessage::Push(push.clone()));
        message.encode_to_vec().into()
    }

    /// The message.
    ///
    /// # Errors
    /// When bytes that some other code has encoded are no message.
    pub fn into_message(self) -> Result<wire::HubMessage, DecodeError> {
        match self {
            Self::Message(message) => Ok(message),
            Self::Encoded(bytes) => wire::HubMessage::decode(bytes),
        }
    }

    /// The bytes of the encoded message.
    pub(crate) fn encoded_len(&self) -> usize {
        match self {
            Self::Message(message) => message.encoded_len(),
            Self::Encoded(bytes) => bytes.len(),
        }
    }

    /// Appends the encoded message to `buffer`, which has room for it.
    pub(crate) fn encode(&self, buffer: &mut impl BufMut) -> Result<(), EncodeError> {
        match self {
            Self::Message(message) => message.encode(buffer),
            Self::Encoded(bytes) => {
                buffer.put_slice(bytes);
                Ok(())
            }
        }
    }
}

impl From<HubMessage> for HubFrame {
    fn from(message: HubMessage) -> Self {
        Self::Message(message.into())
    }
}
