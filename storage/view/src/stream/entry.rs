//! An entry of a stream's state, and its stored form.

use bytes::Bytes;
use headwater_event::{Applied, ObjectHash, Seq};
use headwater_store::{DecodeError, EncodeError, Folded, Table, TableId, Value};

use super::row_key::RowKey;

/// The entries of all streams.
pub(crate) const ENTRIES: Table<RowKey, Entry, Folded> = Table::new(TableId::Entries);

/// The same table, for entries that are encoded already.
pub(crate) const ENCODED: Table<RowKey, EncodedEntry, Folded> = Table::new(TableId::Entries);

/// An entry of a stream's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The seq of its last change. An entry that a push brought has the seq of the push's end. An
    /// entry that stayed when a correction led to a later life of the log has a seq of the earlier
    /// one.
    pub seq: Seq,
    /// BLAKE3 of the object.
    pub object_hash: ObjectHash,
    /// UID of the object; empty for reserved entries.
    pub uid: String,
    /// Kubernetes' resource version: opaque.
    pub resource_version: String,
    /// The object's JSON, byte for byte as the writer appended it.
    pub object: Bytes,
}

/// An encoded [`Entry`], or why it has no encoding, which fails the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedEntry(Result<Bytes, EncodeError>);

/// What a fold must know of an entry to fold its next change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// UID of the object.
    pub uid: String,
    /// BLAKE3 of the object.
    pub object_hash: ObjectHash,
}

impl From<Entry> for EntrySummary {
    fn from(Entry { uid, object_hash, .. }: Entry) -> Self {
        Self { uid, object_hash }
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
    /// Encodes the entry of an object at `seq`. `applied.object` becomes a slice of the encoding,
    /// so its former bytes are freed.
    pub(crate) fn of(seq: Seq, object_hash: &ObjectHash, applied: &mut Applied) -> Self {
        let texts = [applied.uid.as_str(), applied.resource_version.as_str()];
        let row = encode(seq, object_hash, texts, &applied.object);
        if let Ok(row) = &row {
            applied.object = row.slice(row.len() - applied.object.len()..);
        }
        Self(row)
    }

    /// The decoded entry; `None` when it has no encoding.
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
        fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Entry::decode(bytes.into());
        }
    }
}
