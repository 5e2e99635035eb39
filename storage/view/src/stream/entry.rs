//! An entry of a stream's state, and its stored form.

use bytes::Bytes;
use headwater_event::{Applied, BodyAddress, ObjectHash, Seq, SharedObject};
use headwater_store::{DecodeError, EncodeError, Folded, Key, Table, TableId, Value};

use super::row_key::RowKey;

/// The entries of all streams.
pub(crate) const ENTRIES: Table<RowKey, StoredEntry, Folded> = Table::new(TableId::Entries);

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

/// An entry as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredEntry {
    /// The entry. Its object is empty if a body has it.
    pub(crate) entry: Entry,
    /// The body that has the object.
    pub(crate) body: Option<BodyAddress>,
}

/// An encoded [`StoredEntry`], or why it has no encoding, which fails the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedEntry(Result<Bytes, EncodeError>);

/// What a fold must know of an entry to fold its next change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// UID of the object.
    pub uid: String,
    /// BLAKE3 of the object.
    pub object_hash: ObjectHash,
    /// The body that has the object, if the entry's row does not.
    pub body: Option<BodyAddress>,
}

impl From<StoredEntry> for EntrySummary {
    fn from(StoredEntry { entry: Entry { uid, object_hash, .. }, body }: StoredEntry) -> Self {
        Self { uid, object_hash, body }
    }
}

impl Value for StoredEntry {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        let Self { entry: Entry { seq, object_hash, uid, resource_version, object }, body } = self;
        match body {
            None => encode(*seq, object_hash, [uid, resource_version], object, 0),
            Some(body) => {
                let object = address(body);
                encode(*seq, object_hash, [uid, resource_version], &object, IN_A_BODY)
            }
        }
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut rest = bytes.as_ref();
        let seq = Seq(u64::from_be_bytes(*take(&mut rest)?));
        let object_hash = ObjectHash(*take(&mut rest)?);
        let (uid, form) = take_text(&mut rest)?;
        let (resource_version, _) = take_text(&mut rest)?;
        let (object, body) = match form {
            0 => (bytes.slice(bytes.len() - rest.len()..), None),
            _ => (Bytes::new(), Some(BodyAddress::decode_key(&mut rest)?)),
        };
        let entry = Entry { seq, object_hash, uid, resource_version, object };
        Ok(Self { entry, body })
    }
}

impl EncodedEntry {
    /// Encodes the entry of an object at `seq`. `applied.object` becomes a slice of the encoding,
    /// so its former bytes are freed.
    pub(crate) fn of(seq: Seq, object_hash: &ObjectHash, applied: &mut Applied) -> Self {
        let texts = [applied.uid.as_str(), applied.resource_version.as_str()];
        let row = encode(seq, object_hash, texts, &applied.object, 0);
        if let Ok(row) = &row {
            applied.object = row.slice(row.len() - applied.object.len()..);
        }
        Self(row)
    }

    /// Encodes the entry at `seq` of an object that is in a body.
    pub(crate) fn of_shared(seq: Seq, shared: &SharedObject, applied: &Applied) -> Self {
        let texts = [applied.uid.as_str(), applied.resource_version.as_str()];
        Self(encode(seq, &shared.object_hash, texts, &address(&shared.body), IN_A_BODY))
    }

    /// The decoded entry; `None` when it has no encoding.
    pub(crate) fn entry(&self) -> Option<StoredEntry> {
        StoredEntry::decode(self.0.clone().ok()?).ok()
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

/// Set in the length of the UID if the row ends with the address of a body instead of the object. No
/// text is that long.
const IN_A_BODY: u32 = 1 << 31;

fn address(body: &BodyAddress) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.encoded_bytes());
    body.encode_key(&mut bytes);
    bytes
}

/// Bytes of an encoded entry besides its texts and object.
const FIXED_BYTES: usize = 8 + 32 + 4 + 4;

fn encode(
    seq: Seq,
    object_hash: &ObjectHash,
    texts: [&str; 2],
    object: &[u8],
    form: u32,
) -> Result<Bytes, EncodeError> {
    let text_bytes: usize = texts.iter().map(|text| text.len()).sum();
    let mut bytes = Vec::with_capacity(FIXED_BYTES + text_bytes + object.len());
    bytes.extend_from_slice(&seq.0.to_be_bytes());
    bytes.extend_from_slice(&object_hash.0);
    for (text, form) in texts.into_iter().zip([form, 0]) {
        let length = u32::try_from(text.len()).ok().filter(|length| length & IN_A_BODY == 0);
        let length = length.ok_or_else(|| EncodeError { reason: "a text of 2 GiB".to_owned() })?;
        bytes.extend_from_slice(&(length | form).to_be_bytes());
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

/// Takes a text, and the form that is marked in its length.
fn take_text(from: &mut &[u8]) -> Result<(String, u32), DecodeError> {
    let length = u32::from_be_bytes(*take(from)?);
    let (form, length) = (length & IN_A_BODY, (length & !IN_A_BODY) as usize);
    let (text, rest) = from
        .split_at_checked(length)
        .ok_or(DecodeError::Short { want: length, found: from.len() })?;
    *from = rest;
    let text =
        String::from_utf8(text.to_vec()).map_err(|error| DecodeError::malformed("text", &error))?;
    Ok((text, form))
}

#[cfg(test)]
mod tests {
    use headwater_event::{BodyId, Partition, WriterEpoch};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_survive_storage(seq: u64, uid in ".{0,40}", rv in ".{0,10}", object in proptest::collection::vec(any::<u8>(), 0..100)) {
            let entry = Entry {
                seq: Seq(seq), object_hash: ObjectHash::of(&object), uid,
                resource_version: rv, object: object.into(),
            };
            let stored = StoredEntry { entry: entry.clone(), body: None };
            let bytes = stored.encode().expect("encodes");
            prop_assert_eq!(StoredEntry::decode(bytes), Ok(stored));
            let entry = Entry { object: Bytes::new(), ..entry };
            let id = BodyId { epoch: WriterEpoch(seq), number: 7 };
            let body = Some(BodyAddress { partition: Partition(3), id });
            let shared = StoredEntry { entry, body };
            let bytes = shared.encode().expect("encodes");
            prop_assert_eq!(StoredEntry::decode(bytes), Ok(shared));
        }

        #[test]
        fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = StoredEntry::decode(bytes.into());
        }
    }
}
