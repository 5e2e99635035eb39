//! The binary header of a downstream record: what Headwater knows of the event.
//!
//! One version byte, then a protobuf message, so that ordinary tools can read it
//! (`proto/headwater/log/v1/record.proto` describes the same bytes).

use prost::Message;

use crate::hash::StateHash;
use crate::position::{Seq, WriterEpoch};

/// The version of the header written here. A reader refuses one it does not know.
pub const HEADER_VERSION: u8 = 1;

/// What a record says about its event besides key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// Position in the stream.
    pub seq: Seq,
    /// Epoch of the writer.
    pub epoch: WriterEpoch,
    /// First seq of that epoch in the stream.
    pub epoch_first_seq: Seq,
    /// UID of the object.
    pub uid: String,
    /// Resource version of the object.
    pub resource_version: String,
    /// The stream's state hash after the event.
    pub hash: StateHash,
}

/// Why a header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// There are no bytes.
    #[error("the record has no Headwater header")]
    Missing,
    /// The first byte names a version that this build does not know.
    #[error(
        "the record's header has version {found}, this build knows {HEADER_VERSION}: upgrade before reading this log"
    )]
    Version {
        /// The version found.
        found: u8,
    },
    /// The protobuf message is malformed or lacks a field.
    #[error("the record's header is malformed: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
}

/// The wire form; field numbers are never reused.
#[derive(Clone, PartialEq, Message)]
struct Wire {
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
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let wire = Wire {
            seq: self.seq.0,
            writer_epoch: self.epoch.0,
            epoch_first_seq: self.epoch_first_seq.0,
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            state_hash: self.hash.to_bytes().to_vec(),
        };
        let mut bytes = Vec::with_capacity(1 + wire.encoded_len());
        bytes.push(HEADER_VERSION);
        wire.encode_raw(&mut bytes);
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Says why the bytes are no header of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let malformed = |reason: &str| HeaderError::Malformed { reason: reason.to_owned() };
        let (version, rest) = bytes.split_first().ok_or(HeaderError::Missing)?;
        if *version != HEADER_VERSION {
            return Err(HeaderError::Version { found: *version });
        }
        let wire = Wire::decode(rest)
            .map_err(|error| HeaderError::Malformed { reason: error.to_string() })?;
        let hash: [u8; 32] = wire
            .state_hash
            .as_slice()
            .try_into()
            .map_err(|_| malformed("the state hash has not 32 bytes"))?;
        if wire.seq == 0 || wire.writer_epoch == 0 || wire.epoch_first_seq > wire.seq {
            return Err(malformed("seq, writer epoch or first seq is out of range"));
        }
        Ok(Self {
            seq: Seq(wire.seq),
            epoch: WriterEpoch(wire.writer_epoch),
            epoch_first_seq: Seq(wire.epoch_first_seq),
            uid: wire.uid,
            resource_version: wire.resource_version,
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
    fn an_unknown_version_is_named() {
        assert_eq!(EventHeader::decode(&[9, 0]), Err(HeaderError::Version { found: 9 }));
        assert_eq!(EventHeader::decode(&[]), Err(HeaderError::Missing));
    }
}
