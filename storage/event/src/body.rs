//! Bodies: objects that several events of one partition refer to, so that the log has them once.
//!
//! The writer numbers the bodies of its epoch. An event refers only to a body of its own epoch, which
//! the log has before it in the same partition. So neither a late nor a fenced record of another
//! writer can change what a reference means.

use std::fmt;

use prost::Message;

use crate::hash::ObjectHash;
use crate::header::{HEADER_VERSION, HeaderError};
use crate::position::{Partition, WriterEpoch};

/// The identity of a body within its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyId {
    /// The epoch of the writer that appended it.
    pub epoch: WriterEpoch,
    /// Its number among the bodies of that epoch. No number is used twice.
    pub number: u64,
}

/// A body in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyAddress {
    /// The partition.
    pub partition: Partition,
    /// The body.
    pub id: BodyId,
}

/// The body that an event refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedObject {
    /// The body.
    pub body: BodyAddress,
    /// BLAKE3 of its object, checked when the body was read.
    pub object_hash: ObjectHash,
}

/// The binary header of a body: what its references leave out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyHeader {
    /// The UID of the object.
    pub uid: String,
    /// The resource version of the object.
    pub resource_version: String,
    /// BLAKE3 of the object.
    pub object_hash: ObjectHash,
}

/// The protobuf message of the header. Field numbers are never reused.
#[derive(Clone, PartialEq, Message)]
struct BodyHeaderMessage {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(bytes = "vec", tag = "3")]
    object_hash: Vec<u8>,
}

impl fmt::Display for BodyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.number)
    }
}

impl BodyHeader {
    /// Encodes the header.
    pub fn encode(&self) -> Vec<u8> {
        let message = BodyHeaderMessage {
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            object_hash: self.object_hash.0.to_vec(),
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
        let (version, rest) = bytes.split_first().ok_or(HeaderError::Missing)?;
        if *version != HEADER_VERSION {
            return Err(HeaderError::Version { found: *version });
        }
        let malformed = |reason: String| HeaderError::Malformed { reason };
        let BodyHeaderMessage { uid, resource_version, object_hash } =
            BodyHeaderMessage::decode(rest).map_err(|error| malformed(error.to_string()))?;
        let object_hash: [u8; 32] = object_hash
            .as_slice()
            .try_into()
            .map_err(|_| malformed("the object's hash is not 32 bytes long".to_owned()))?;
        Ok(Self { uid, resource_version, object_hash: ObjectHash(object_hash) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_survive_bytes(uid in ".{0,40}", rv in ".{0,10}", hash: [u8; 32]) {
            let header =
                BodyHeader { uid, resource_version: rv, object_hash: ObjectHash(hash) };
            prop_assert_eq!(BodyHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = BodyHeader::decode(&bytes);
        }
    }
}
