//! The key of an entry's row: stream, generation, type, namespace, name.
//!
//! All entries of one type in one stream are one range of keys. Which generation of a stream is
//! visible is in its [`StreamRow`](super::stream_row::StreamRow).

use headwater_event::key::NULL_NAMESPACE;
use headwater_event::{EntryKey, ResourceKey, StreamId};
use headwater_store::{DecodeError, EngineError, Key, PrefixOf};

/// The key of an entry's row, or a prefix that a range of such keys shares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey(Vec<u8>);

/// Ends a text within a row key. No stream and no resource key contains it.
const END: u8 = 0;

impl RowKey {
    /// The prefix of all row keys of one generation of a stream.
    pub(crate) fn generation(stream: &StreamId, generation: u32) -> Self {
        let mut bytes = stream.to_string().into_bytes();
        bytes.push(END);
        bytes.extend_from_slice(&generation.to_be_bytes());
        Self(bytes)
    }

    /// The row key of `key` in the generation whose prefix is `self`.
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

    /// The prefix of the row keys of one type, in one namespace if given.
    pub(crate) fn of_kind(&self, kind: &str, namespace: Option<&str>) -> Self {
        let mut bytes = self.0.clone();
        for part in [Some(kind), namespace].into_iter().flatten() {
            bytes.extend_from_slice(part.as_bytes());
            bytes.push(END);
        }
        Self(bytes)
    }

    /// The smallest row key after `self`.
    pub(crate) fn successor(mut self) -> Self {
        self.0.push(END);
        self
    }

    /// The key of the row's entry. `generation` is the prefix of its generation.
    pub(crate) fn entry_key(&self, generation: &Self) -> Result<EntryKey, DecodeError> {
        let malformed =
            |reason: &dyn std::fmt::Display| DecodeError::malformed("entry key", reason);
        let rest = self.0.strip_prefix(generation.0.as_slice());
        let text = rest.and_then(|rest| rest.strip_suffix(&[END]));
        let text = text.ok_or_else(|| malformed(&"the row is of another generation"))?;
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

    /// As [`RowKey::entry_key`], for a row that was read from an engine.
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

    /// A row key is all of its table's key, so it takes all bytes.
    fn decode_key(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(std::mem::take(from).to_vec()))
    }
}

impl PrefixOf<Self> for RowKey {
    fn encode_prefix(&self, into: &mut Vec<u8>) {
        self.encode_key(into);
    }
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
        fn keys_survive_storage(ns in "(null|[a-z0-9-]{1,9})", kind in "(node|[a-z]{1,9})", name in "[a-z0-9.-]{1,9}", generation: u32) {
            let prefix = RowKey::generation(&stream(), generation);
            let key: EntryKey = format!("{ns}/{kind}/{name}").parse().expect("well-formed");
            let row = prefix.entry(&key);
            prop_assert_eq!(row.entry_key(&prefix), Ok(key));
            prop_assert!(row.0.starts_with(&prefix.of_kind(&kind, Some(&ns)).0));
            prop_assert!(row.entry_key(&RowKey::generation(&stream(), !generation)).is_err());
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
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
