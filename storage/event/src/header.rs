//! The binary header of a downstream record: the event's position, identity and state hash.
//!
//! The header is one version byte and a protobuf message, so that ordinary tools can read it.
//! `proto/headwater/log/v1/record.proto` describes the same bytes.

use prost::Message;

use crate::hash::StateHash;
use crate::position::{Seq, WriterEpoch};

/// The header version that this build writes. A reader refuses an unknown version.
pub const HEADER_VERSION: u8 = 1;

/// The parts of an event that are neither in the record's key nor in its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// The event's position in the stream.
    pub seq: Seq,
    /// The epoch of the writer.
    pub epoch: WriterEpoch,
    /// The first seq of that epoch in the stream.
    pub epoch_first_seq: Seq,
    /// The UID of the object.
    pub uid: String,
    /// The resource version of the object.
    pub resource_version: String,
    /// The stream's state hash after the event.
    pub hash: StateHash,
}

/// Why a header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The header is empty.
    #[error("the record has no Headwater header")]
    Missing,
    /// The first byte is a version that this build does not know.
    #[error(
        "the record's header has version {found}, this build reads version {HEADER_VERSION}; upgrade before you read this log"
    )]
    Version {
        /// The version in the header.
        found: u8,
    },
    /// The protobuf message is malformed or lacks a field.
    #[error("the record's header is malformed: {reason}")]
    Malformed {
        /// The defect.
        reason: String,
    },
}

/// The protobuf message of the header. Field numbers are never reused.
#[derive(Clone, PartialEq, Message)]
struct HeaderMessage {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(uint64, tag = "2")]
    writer_epoch: u64,
    #[prost(uint64, tag = "3")]
    epoch_first_seq: u64,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    resource_version: String,
    #[prost(bytes = "vec", tag = "6")]
    state_hash: Vec<u8>,
}

impl EventHeader {
    /// Encodes the header.
    pub fn encode(&self) -> Vec<u8> {
        let message = HeaderMessage {
            seq: self.seq.0,
            writer_epoch: self.epoch.0,
            epoch_first_seq: self.epoch_first_seq.0,
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            state_hash: self.hash.to_bytes().to_vec(),
        };
        let mut bytes = Vec::with_capacity(1 + message.encoded_len());
        bytes.push(HEADER_VERSION);
        message.encode_raw(&mut bytes);
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// The bytes are not a header of this version; see [`HeaderError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let malformed = |reason: &str| HeaderError::Malformed { reason: reason.to_owned() };
        let (version, rest) = bytes.split_first().ok_or(HeaderError::Missing)?;
        if *version != HEADER_VERSION {
            return Err(HeaderError::Version { found: *version });
        }
        let message = HeaderMessage::decode(rest)
            .map_err(|error| HeaderError::Malformed { reason: error.to_string() })?;
        let HeaderMessage { seq, writer_epoch, epoch_first_seq, uid, resource_version, state_hash } =
            message;
        let hash: [u8; 32] = state_hash
            .as_slice()
            .try_into()
            .map_err(|_| malformed("the state hash is not 32 bytes long"))?;
        if seq == 0 || writer_epoch == 0 || epoch_first_seq > seq {
            return Err(malformed("seq, writer epoch or first seq is out of range"));
        }
        Ok(Self {
            seq: Seq(seq),
            epoch: WriterEpoch(writer_epoch),
            epoch_first_seq: Seq(epoch_first_seq),
            uid,
            resource_version,
            hash: StateHash::from_bytes(&hash),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_survive_bytes(seq in 1u64.., epoch in 1u64.., uid in ".{0,40}", hash: [u8; 32]) {
            let header = EventHeader {
                seq: Seq(seq), epoch: WriterEpoch(epoch), epoch_first_seq: Seq(seq / 2),
                uid: uid.clone(), resource_version: uid, hash: StateHash::from_bytes(&hash),
            };
            prop_assert_eq!(EventHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = EventHeader::decode(&bytes);
        }
    }

    #[test]
    fn an_unknown_version_is_refused_by_number() {
        assert_eq!(EventHeader::decode(&[9, 0]), Err(HeaderError::Version { found: 9 }));
        assert_eq!(EventHeader::decode(&[]), Err(HeaderError::Missing));
    }
}
