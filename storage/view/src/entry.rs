//! An entry of a stream's state as it is stored, and the key it is stored under.
//!
//! The key is stream, generation, type, namespace, name: all entries of one type in one
//! stream are one range of keys. Which generation of a stream is visible is in its
//! [`StreamRow`](crate::stream_row::StreamRow); a catch-up is staged under the next one.

use bytes::Bytes;
use headwater_event::key::NULL_NAMESPACE;
use headwater_event::{Applied, EntryKey, ObjectHash, ResourceKey, Seq, StreamId};
use headwater_store::{
    DecodeError, EncodeError, EngineError, Folded, Key, PrefixOf, Table, TableId, Value,
};

/// The entries of all streams.
pub(crate) const ENTRIES: Table<RowKey, Entry, Folded> = Table::new(TableId::Entries);

/// The same table, for rows that are encoded already.
pub(crate) const ENCODED: Table<RowKey, EncodedEntry, Folded> = Table::new(TableId::Entries);

/// An entry of a stream's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The seq that last touched it; where it came by a push, the seq of the push's end. Of an
    /// earlier life of the log, if it stayed when a correction led to this one.
    pub seq: Seq,
    /// BLAKE3 of the object.
    pub object_hash: ObjectHash,
    /// UID of the object; empty for reserved entries.
    pub uid: String,
    /// Kubernetes' resource version: opaque.
    pub resource_version: String,
    /// The object's JSON, byte for byte as the writer had it.
    pub object: Bytes,
}

/// An [`Entry`] as it is stored, or why it cannot be, which refuses the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedEntry(Result<Bytes, EncodeError>);

/// What a fold must know of an entry to fold the next change of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// UID of the object.
    pub uid: String,
    /// BLAKE3 of the object.
    pub object_hash: ObjectHash,
}

/// The key of an entry's row, or the beginning that a range of them shares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey(Vec<u8>);

/// Ends a text within a row key. No stream and no resource key holds it.
const END: u8 = 0;

impl RowKey {
    /// The beginning of all row keys of one generation of a stream.
    pub(crate) fn generation(stream: &StreamId, generation: u32) -> Self {
        let mut bytes = stream.to_string().into_bytes();
        bytes.push(END);
        bytes.extend_from_slice(&generation.to_be_bytes());
        Self(bytes)
    }

    /// The row key of `key` in the generation that `self` is the beginning of.
    pub(crate) fn entry(&self, key: &EntryKey) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + key.as_str().len() + 1);
        bytes.extend_from_slice(&self.0);
        match key.resource() {
            None => bytes.extend_from_slice(key.as_str().as_bytes()),
            Some(key) => {
                let namespace = key.namespace().unwrap_or(NULL_NAMESPACE);
                for part in [key.kind(), namespace] {
                    bytes.extend_from_slice(part.as_bytes());
                    bytes.push(END);
                }
                bytes.extend_from_slice(key.name().as_bytes());
            }
        }
        bytes.push(END);
        Self(bytes)
    }

    /// The beginning of the row keys of one type, in one namespace if given.
    pub(crate) fn of_kind(&self, kind: &str, namespace: Option<&str>) -> Self {
        let mut bytes = self.0.clone();
        for part in [Some(kind), namespace].into_iter().flatten() {
            bytes.extend_from_slice(part.as_bytes());
            bytes.push(END);
        }
        Self(bytes)
    }

    /// The smallest row key behind `self`.
    pub(crate) fn successor(mut self) -> Self {
        self.0.push(END);
        self
    }

    /// The entry that the row is of; `self` begins with `generation`.
    pub(crate) fn entry_key(&self, generation: &Self) -> Result<EntryKey, DecodeError> {
        let malformed =
            |reason: &dyn std::fmt::Display| DecodeError::malformed("entry key", reason);
        let rest = self.0.strip_prefix(generation.0.as_slice());
        let text = rest.and_then(|rest| rest.strip_suffix(&[END]));
        let text = text.ok_or_else(|| malformed(&"it is of another generation"))?;
        let text = std::str::from_utf8(text).map_err(|error| malformed(&error))?;
        let mut parts = text.split(char::from(END));
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(kind), Some(namespace), Some(name), None) => {
                ResourceKey::new(Some(namespace), kind, name)
                    .map(EntryKey::from)
                    .map_err(|error| malformed(&error))
            }
            _ => text.parse().map_err(|error| malformed(&error)),
        }
    }
}

impl RowKey {
    /// As [`RowKey::entry_key`], of a row that was read from an engine.
    pub(crate) fn entry_key_in(&self, generation: &Self) -> Result<EntryKey, EngineError> {
        self.entry_key(generation)
            .map_err(|error| EngineError::Corrupt { reason: format!("a stream's entry: {error}") })
    }
}

impl Key for RowKey {
    fn encode_key(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.0);
    }

    fn encoded_bytes(&self) -> usize {
        self.0.len()
    }

    /// A row key is the whole of its table's key: it ends where the bytes end.
    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(std::mem::take(from).to_vec()))
    }
}

impl PrefixOf<Self> for RowKey {
    fn encode_prefix(&self, into: &mut Vec<u8>) {
        self.encode_key(into);
    }
}

impl Value for Entry {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        let Self { seq, object_hash, uid, resource_version, object } = self;
        encode(*seq, object_hash, [uid, resource_version], object)
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut rest = bytes.as_ref();
        let seq = Seq(u64::from_be_bytes(*take(&mut rest)?));
        let object_hash = ObjectHash(*take(&mut rest)?);
        let uid = take_text(&mut rest)?;
        let resource_version = take_text(&mut rest)?;
        let object = bytes.slice(bytes.len() - rest.len()..);
        Ok(Self { seq, object_hash, uid, resource_version, object })
    }
}

impl EncodedEntry {
    /// The row of an object that came at `seq`. The object is then a part of the row, and its
    /// former bytes are let go.
    pub(crate) fn of(seq: Seq, object_hash: &ObjectHash, applied: &mut Applied) -> Self {
        let texts = [applied.uid.as_str(), applied.resource_version.as_str()];
        let row = encode(seq, object_hash, texts, &applied.object);
        if let Ok(row) = &row {
            applied.object = row.slice(row.len() - applied.object.len()..);
        }
        Self(row)
    }

    /// What is stored, where that has an encoding.
    pub(crate) fn entry(&self) -> Option<Entry> {
        Entry::decode(self.0.clone().ok()?).ok()
    }
}

impl Value for EncodedEntry {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        self.0.clone()
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        Ok(Self(Ok(bytes)))
    }
}

/// Bytes of an encoded entry besides its texts and object.
const FIXED_BYTES: usize = 8 + 32 + 4 + 4;

fn encode(
    seq: Seq,
    object_hash: &ObjectHash,
    texts: [&str; 2],
    object: &[u8],
) -> Result<Bytes, EncodeError> {
    let text_bytes: usize = texts.iter().map(|text| text.len()).sum();
    let mut bytes = Vec::with_capacity(FIXED_BYTES + text_bytes + object.len());
    bytes.extend_from_slice(&seq.0.to_be_bytes());
    bytes.extend_from_slice(&object_hash.0);
    for text in texts {
        let length = u32::try_from(text.len())
            .map_err(|error| EncodeError { reason: format!("a text of 4 GiB: {error}") })?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(object);
    Ok(bytes.into())
}

fn take<'a, const N: usize>(from: &mut &'a [u8]) -> Result<&'a [u8; N], DecodeError> {
    let (bytes, rest) =
        from.split_first_chunk().ok_or(DecodeError::Short { want: N, found: from.len() })?;
    *from = rest;
    Ok(bytes)
}

fn take_text(from: &mut &[u8]) -> Result<String, DecodeError> {
    let length = u32::from_be_bytes(*take(from)?) as usize;
    let (text, rest) = from
        .split_at_checked(length)
        .ok_or(DecodeError::Short { want: length, found: from.len() })?;
    *from = rest;
    String::from_utf8(text.to_vec()).map_err(|error| DecodeError::malformed("text", &error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream() -> StreamId {
        "node/gw-1".parse().expect("a stream")
    }

    proptest! {
        #[test]
        fn entries_survive_storage(seq: u64, uid in ".{0,40}", rv in ".{0,10}", object in proptest::collection::vec(any::<u8>(), 0..100)) {
            let entry = Entry {
                seq: Seq(seq), object_hash: ObjectHash::of(&object), uid,
                resource_version: rv, object: object.into(),
            };
            let bytes = entry.encode().expect("encodes");
            prop_assert_eq!(Entry::decode(bytes), Ok(entry));
        }

        #[test]
        fn keys_survive_storage(ns in "[a-z0-9-]{1,9}", kind in "[a-z]{1,9}", name in "[a-z0-9.-]{1,9}", generation: u32) {
            let prefix = RowKey::generation(&stream(), generation);
            let key: EntryKey = format!("{ns}/{kind}/{name}").parse().expect("well-formed");
            let row = prefix.entry(&key);
            prop_assert_eq!(row.entry_key(&prefix), Ok(key));
            prop_assert!(row.0.starts_with(&prefix.of_kind(&kind, Some(&ns)).0));
            prop_assert!(row.entry_key(&RowKey::generation(&stream(), !generation)).is_err());
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Entry::decode(bytes.clone().into());
            let mut row = RowKey::generation(&stream(), 1);
            row.0.extend_from_slice(&bytes);
            let _ = row.entry_key(&RowKey::generation(&stream(), 1));
        }
    }

    #[test]
    fn reserved_keys_survive_storage() {
        let prefix = RowKey::generation(&stream(), 1);
        for key in [EntryKey::Streams, EntryKey::SnapshotRequest] {
            assert_eq!(prefix.entry(&key).entry_key(&prefix), Ok(key));
        }
    }

    #[test]
    fn no_stream_lies_within_another() {
        let short = RowKey::generation(&"node/gw".parse().expect("a stream"), 1);
        let long = RowKey::generation(&"node/gw-1".parse().expect("a stream"), 1);
        assert!(!long.0.starts_with(&short.0));
    }
}
