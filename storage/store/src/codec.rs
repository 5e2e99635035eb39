//! The encoding of stored values: the trait, and the codecs that tables share.

use bytes::Bytes;
use headwater_event::{
    Checkpoint, Cursor, LeaderEpoch, LogId, Offset, Seq, StateHash, TopicId, WriterEpoch,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::encoding_error::{DecodeError, EncodeError};
use crate::key::Key;

/// A value that a table can store.
pub trait Value: Sized {
    /// Encodes the value.
    ///
    /// # Errors
    /// When the value has no encoding; for most types this never happens.
    fn encode(&self) -> Result<Bytes, EncodeError>;

    /// Decodes a value. It may share the bytes instead of copying them.
    ///
    /// # Errors
    /// When the bytes do not encode such a value.
    fn decode(bytes: Bytes) -> Result<Self, DecodeError>;
}

/// A value stored as JSON: for small values outside hot paths that people may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned> Value for Json<T> {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        serde_json::to_vec(&self.0)
            .map(Bytes::from)
            .map_err(|error| EncodeError { reason: error.to_string() })
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| DecodeError::malformed("JSON value", &error))
    }
}

/// A value stored as a protobuf message: it is compact, and later builds may add fields. `Bytes`
/// fields (`bytes = "bytes"`) share the stored bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proto<M>(pub M);

impl<M: prost::Message + Default> Value for Proto<M> {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        Ok(self.0.encode_to_vec().into())
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        M::decode(bytes).map(Self).map_err(|error| DecodeError::malformed("protobuf value", &error))
    }
}

/// Stored unchanged.
impl Value for Bytes {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        Ok(self.clone())
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        Ok(bytes)
    }
}

/// The empty value, for tables that are sets.
impl Value for () {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        Ok(Bytes::new())
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        finish((), &bytes)
    }
}

impl Value for String {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        Ok(Bytes::copy_from_slice(self.as_bytes()))
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::from_utf8(bytes.into()).map_err(|error| DecodeError::malformed("text", &error))
    }
}

/// Values of fixed size, stored as the key encoding of their parts.
macro_rules! key_values {
    ($($value:ty),*) => {$(
        impl Value for $value {
            fn encode(&self) -> Result<Bytes, EncodeError> {
                let mut bytes = Vec::with_capacity(size_of::<Self>());
                Key::encode_key(self, &mut bytes);
                Ok(bytes.into())
            }

            fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
                let mut rest = bytes.as_ref();
                let value = Key::decode_key(&mut rest)?;
                finish(value, rest)
            }
        }
    )*};
}

key_values!(u32, u64, i64, Seq, Offset, headwater_event::ReportId);

impl Value for Checkpoint {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        encode_checkpoint(self, &mut bytes);
        Ok(bytes.into())
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut rest = bytes.as_ref();
        let checkpoint = decode_checkpoint(&mut rest)?;
        finish(checkpoint, rest)
    }
}

impl Value for Cursor {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        bytes.extend_from_slice(self.topic.0.as_bytes());
        (self.partition, self.next, self.leader_epoch.0).encode_key(&mut bytes);
        Ok(bytes.into())
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut rest = bytes.as_ref();
        let topic = TopicId(Uuid::from_bytes(*take(&mut rest)?));
        let (partition, next, leader_epoch) = Key::decode_key(&mut rest)?;
        let cursor = Self { topic, partition, next, leader_epoch: LeaderEpoch(leader_epoch) };
        finish(cursor, rest)
    }
}

/// A checkpoint with its state hash, stored as one value.
impl Value for (Checkpoint, StateHash) {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        encode_checkpoint(&self.0, &mut bytes);
        bytes.extend_from_slice(&self.1.to_bytes());
        Ok(bytes.into())
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut rest = bytes.as_ref();
        let checkpoint = decode_checkpoint(&mut rest)?;
        let hash = StateHash::from_bytes(take(&mut rest)?);
        finish((checkpoint, hash), rest)
    }
}

fn encode_checkpoint(checkpoint: &Checkpoint, into: &mut Vec<u8>) {
    checkpoint.log_id.number.encode_key(into);
    into.extend_from_slice(checkpoint.log_id.uuid.as_bytes());
    (checkpoint.epoch.0, checkpoint.seq).encode_key(into);
}

fn decode_checkpoint(from: &mut &[u8]) -> Result<Checkpoint, DecodeError> {
    let number = u64::decode_key(from)?;
    let uuid = Uuid::from_bytes(*take(from)?);
    let (epoch, seq) = Key::decode_key(from)?;
    Ok(Checkpoint { log_id: LogId { number, uuid }, epoch: WriterEpoch(epoch), seq })
}

/// Removes `N` bytes from the front of `from` and returns them.
fn take<'a, const N: usize>(from: &mut &'a [u8]) -> Result<&'a [u8; N], DecodeError> {
    let (bytes, rest) =
        from.split_first_chunk().ok_or(DecodeError::Short { want: N, found: from.len() })?;
    *from = rest;
    Ok(bytes)
}

/// Returns the value if no bytes remain.
pub(crate) fn finish<T>(value: T, rest: &[u8]) -> Result<T, DecodeError> {
    match rest.len() {
        0 => Ok(value),
        bytes => Err(DecodeError::Trailing { bytes }),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use headwater_event::report::Incarnation;
    use headwater_event::{Partition, ReportId};
    use proptest::prelude::*;

    use super::*;

    fn check<V: Value + PartialEq + Debug>(value: &V) -> Result<(), TestCaseError> {
        let bytes = value.encode().expect("has an encoding");
        prop_assert_eq!(&V::decode(bytes.clone()).expect("just encoded"), value);
        Ok(())
    }

    /// A value of fixed size does not decode from one byte less or one byte more.
    fn check_fixed<V: Value + PartialEq + Debug>(value: &V) -> Result<(), TestCaseError> {
        check(value)?;
        let bytes = value.encode().expect("has an encoding");
        prop_assert!(V::decode(bytes.slice(1..)).is_err());
        prop_assert!(V::decode([bytes.as_ref(), b"x"].concat().into()).is_err());
        Ok(())
    }

    proptest! {
        #[test]
        fn values_survive_their_bytes(number: u64, small: u32, time: i64, uuid: u128, hash: [u8; 32], text: String, bytes: Vec<u8>) {
            check_fixed(&number)?;
            check_fixed(&small)?;
            check_fixed(&time)?;
            check_fixed(&Seq(number))?;
            check_fixed(&ReportId { incarnation: Incarnation(number), boot: 2, seq: number })?;
            let uuid = Uuid::from_u128(uuid);
            let log_id = LogId { number, uuid };
            let checkpoint = Checkpoint { log_id, epoch: WriterEpoch(number), seq: Seq(7) };
            check_fixed(&checkpoint)?;
            check_fixed(&(checkpoint, StateHash::from_bytes(&hash)))?;
            check_fixed(&Cursor {
                topic: TopicId(uuid),
                partition: Partition(small),
                next: Offset(number),
                leader_epoch: LeaderEpoch(small),
            })?;
            check(&Json(checkpoint))?;
            check(&Proto(text.clone()))?;
            check(&text)?;
            check(&Bytes::from(bytes))?;
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            let _ = <(Checkpoint, StateHash)>::decode(bytes.clone());
            let _ = Cursor::decode(bytes.clone());
            let _ = String::decode(bytes.clone());
            let _ = Json::<Checkpoint>::decode(bytes.clone());
            let _ = Proto::<String>::decode(bytes);
        }
    }

    #[test]
    fn a_value_without_an_encoding_is_named() {
        let keys_are_no_text = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert!(serde_json::to_vec(&keys_are_no_text).is_err(), "the premise");
        assert!(Json(keys_are_no_text).encode().is_err());
    }
}
