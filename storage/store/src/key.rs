//! Order-preserving keys: the order of the bytes is the order of the values.
//!
//! A key is a tuple of self-delimiting parts. So every prefix of the tuple is a prefix of the
//! bytes, and an iteration by prefix needs no index. Numbers are big-endian.
//! Text ends with `00 00`, and a zero byte within it becomes `00 01`.

use bytes::Bytes;
use headwater_event::report::Incarnation;
use headwater_event::{
    BodyAddress, BodyId, EntryKey, NodeName, Offset, Partition, ReportId, ResourceKey, Seq,
    StreamId, WriterEpoch,
};

use crate::encoding_error::DecodeError;

/// A value that may be a key, or a part of one.
///
/// For any two values, their encodings compare as the values do, and neither encoding is the
/// beginning of the other unless they are equal.
pub trait Key: Sized {
    /// Appends the encoding.
    fn encode_key(&self, into: &mut Vec<u8>);

    /// Returns the length of the encoding if it is known beforehand, else an estimate for the
    /// allocation.
    fn encoded_bytes(&self) -> usize {
        KEY_ROOM
    }

    /// Removes the value from the front of `from` and returns it.
    ///
    /// # Errors
    /// When the bytes do not encode such a value.
    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError>;
}

/// A prefix of the keys `K` for an iteration: the first part, or the first two.
pub trait PrefixOf<K> {
    /// Appends the encoding.
    fn encode_prefix(&self, into: &mut Vec<u8>);
}

/// The beginning of a text, as a prefix of every text that starts with it.
///
/// `TextStart("shop/pod/")` covers the pods of one namespace, in a table keyed by resource.
#[derive(Clone, Copy, Debug)]
pub struct TextStart<'a>(pub &'a str);

/// A key whose encoding is that of its text, so that [`TextStart`] is a prefix of it.
pub trait TextKey: Key {}

/// The allocation for a key whose length is not known beforehand, in bytes.
const KEY_ROOM: usize = 64;

const TEXT_END: [u8; 2] = [0, 0];
const ESCAPED_ZERO: [u8; 2] = [0, 1];

impl Key for () {
    fn encode_key(&self, _: &mut Vec<u8>) {}

    fn decode_key(_: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(())
    }
}

macro_rules! number_keys {
    ($($number:ty),*) => {$(
        impl Key for $number {
            fn encode_key(&self, into: &mut Vec<u8>) {
                into.extend_from_slice(&self.to_be_bytes());
            }

            fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
                let (number, rest) = from
                    .split_first_chunk()
                    .ok_or(DecodeError::Short { want: size_of::<$number>(), found: from.len() })?;
                *from = rest;
                Ok(Self::from_be_bytes(*number))
            }
        }
    )*};
}

number_keys!(u8, u32, u64);

impl Key for i64 {
    fn encode_key(&self, into: &mut Vec<u8>) {
        // With the sign bit flipped, negative numbers come first.
        (self.cast_unsigned() ^ (1 << 63)).encode_key(into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok((u64::decode_key(from)? ^ (1 << 63)).cast_signed())
    }
}

macro_rules! number_wrapper_keys {
    ($($wrapper:ident),*) => {$(
        impl Key for $wrapper {
            fn encode_key(&self, into: &mut Vec<u8>) {
                self.0.encode_key(into);
            }

            fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
                Key::decode_key(from).map(Self)
            }
        }
    )*};
}

number_wrapper_keys!(Seq, Offset, Partition, Incarnation);

impl Key for ReportId {
    fn encode_key(&self, into: &mut Vec<u8>) {
        (self.incarnation, self.boot, self.seq).encode_key(into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let (incarnation, boot, seq) = Key::decode_key(from)?;
        Ok(Self { incarnation, boot, seq })
    }
}

impl Key for BodyAddress {
    fn encode_key(&self, into: &mut Vec<u8>) {
        (self.partition, self.id.epoch.0, self.id.number).encode_key(into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        let (partition, epoch, number) = Key::decode_key(from)?;
        Ok(Self { partition, id: BodyId { epoch: WriterEpoch(epoch), number } })
    }
}

impl Key for Bytes {
    fn encode_key(&self, into: &mut Vec<u8>) {
        encode_bytes(self, into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        decode_bytes(from).map(Self::from)
    }
}

impl Key for String {
    fn encode_key(&self, into: &mut Vec<u8>) {
        encode_bytes(self.as_bytes(), into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Self::from_utf8(decode_bytes(from)?)
            .map_err(|error| DecodeError::malformed("a text key", &error))
    }
}

impl TextKey for String {}

/// Implements [`Key`] for types of the vocabulary that have the order of their texts.
macro_rules! text_keys {
    ($($key:ident: $what:literal),*) => {$(
        impl Key for $key {
            fn encode_key(&self, into: &mut Vec<u8>) {
                encode_bytes(self.as_str().as_bytes(), into);
            }

            fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
                String::decode_key(from)?
                    .parse()
                    .map_err(|error| DecodeError::malformed($what, &error))
            }
        }

        impl TextKey for $key {}
    )*};
}

text_keys!(EntryKey: "an entry key", ResourceKey: "a resource key", NodeName: "a node name");

impl Key for StreamId {
    fn encode_key(&self, into: &mut Vec<u8>) {
        encode_bytes(self.to_string().as_bytes(), into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        String::decode_key(from)?
            .parse()
            .map_err(|error| DecodeError::malformed("a stream id", &error))
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn encode_key(&self, into: &mut Vec<u8>) {
        self.0.encode_key(into);
        self.1.encode_key(into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok((A::decode_key(from)?, B::decode_key(from)?))
    }
}

impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    fn encode_key(&self, into: &mut Vec<u8>) {
        self.0.encode_key(into);
        self.1.encode_key(into);
        self.2.encode_key(into);
    }

    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok((A::decode_key(from)?, B::decode_key(from)?, C::decode_key(from)?))
    }
}

impl<A: Key, B: Key> PrefixOf<(A, B)> for A {
    fn encode_prefix(&self, into: &mut Vec<u8>) {
        self.encode_key(into);
    }
}

impl<A: Key, B: Key, C: Key> PrefixOf<(A, B, C)> for A {
    fn encode_prefix(&self, into: &mut Vec<u8>) {
        self.encode_key(into);
    }
}

impl<A: Key, B: Key, C: Key> PrefixOf<(A, B, C)> for (A, B) {
    fn encode_prefix(&self, into: &mut Vec<u8>) {
        self.encode_key(into);
    }
}

impl<K: TextKey> PrefixOf<K> for TextStart<'_> {
    fn encode_prefix(&self, into: &mut Vec<u8>) {
        escape(self.0.as_bytes(), into);
    }
}

impl<A: Key, B: TextKey> PrefixOf<(A, B)> for (A, TextStart<'_>) {
    fn encode_prefix(&self, into: &mut Vec<u8>) {
        self.0.encode_key(into);
        escape(self.1.0.as_bytes(), into);
    }
}

fn encode_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    escape(bytes, into);
    into.extend_from_slice(&TEXT_END);
}

fn escape(bytes: &[u8], into: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            0 => into.extend_from_slice(&ESCAPED_ZERO),
            byte => into.push(*byte),
        }
    }
}

fn decode_bytes(from: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::with_capacity(from.len());
    loop {
        match from {
            [0, 0, rest @ ..] => {
                *from = rest;
                return Ok(bytes);
            }
            [0, 1, rest @ ..] => {
                bytes.push(0);
                *from = rest;
            }
            [byte, rest @ ..] if *byte != 0 => {
                bytes.push(*byte);
                *from = rest;
            }
            _ => return Err(DecodeError::Unterminated),
        }
    }
}

#[cfg(test)]
mod tests;
