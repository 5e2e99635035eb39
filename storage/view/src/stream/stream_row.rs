//! The row of a stream: what is stored of it besides its entries and its position.

use bytes::Bytes;
use headwater_event::{Cursor, StateHash, StreamId};
use headwater_store::position::CHECKPOINTS;
use headwater_store::{
    Batch, CommitPosition, DecodeError, EncodeError, Folded, Key, StreamCheckpoint, Table, TableId,
    Value,
};

/// The rows of streams. A stream in its first generation that agrees with the log has none.
pub(crate) const STREAM_ROWS: Table<StreamId, StreamRow, Folded> = Table::new(TableId::Staging);

/// Which generation of a stream's entries is the visible one.
///
/// A generation's number is reused only after a commit removed its entries, so the rest of an
/// abandoned generation is never read as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRow {
    /// The generation that readers read.
    pub(crate) visible: u32,
    /// The generation that an advance in parts is written to.
    pub(crate) staged: Option<u32>,
    /// The log's hash at the position, if the state hashes to another.
    pub(crate) claimed: Option<StateHash>,
}

impl StreamRow {
    /// The row of a stream without a stored one.
    pub(crate) const FIRST: Self = Self { visible: 1, staged: None, claimed: None };

    /// A generation number without entries.
    pub(crate) fn unused_generation(&self) -> u32 {
        self.staged.unwrap_or(0).max(self.visible) + 1
    }
}

/// A position that moves with a batch.
pub(crate) enum BatchPosition {
    /// A stream reached a position.
    Stream(StreamCheckpoint),
    /// A stream was dropped.
    Dropped(StreamId),
    /// A stream's row changed: another generation is visible or staged.
    Row(StreamId, StreamRow),
    /// A partition was read up to this cursor.
    Partition(Cursor),
    /// None: the batch has only rows that need no position.
    None,
}

impl CommitPosition for BatchPosition {
    fn put(&self, batch: &mut Batch<Folded>) {
        match self {
            Self::Stream(position) => position.put(batch),
            Self::Dropped(stream) => batch.delete(&CHECKPOINTS, stream),
            Self::Row(stream, row) => batch.put(&STREAM_ROWS, stream, row),
            Self::Partition(cursor) => cursor.put(batch),
            Self::None => {}
        }
    }
}

impl Value for StreamRow {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut bytes = Vec::with_capacity(8 + 32);
        // Zero means no generation.
        (self.visible, self.staged.unwrap_or(0)).encode_key(&mut bytes);
        if let Some(claimed) = self.claimed {
            bytes.extend_from_slice(&claimed.to_bytes());
        }
        Ok(bytes.into())
    }

    fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut rest = bytes.as_ref();
        let (visible, staged) = <(u32, u32)>::decode_key(&mut rest)?;
        let claimed = match rest {
            [] => None,
            _ => Some(StateHash::from_bytes(
                rest.try_into()
                    .map_err(|error| DecodeError::malformed("a claimed state hash", &error))?,
            )),
        };
        Ok(Self { visible, staged: (staged > 0).then_some(staged), claimed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_storage() {
        for row in [
            StreamRow::FIRST,
            StreamRow { visible: 7, staged: Some(8), claimed: None },
            StreamRow { visible: 7, staged: None, claimed: Some(StateHash::from_bytes(&[3; 32])) },
        ] {
            assert_eq!(StreamRow::decode(row.encode().expect("encodes")), Ok(row));
        }
        assert!(StreamRow::decode(Bytes::from_static(&[0; 9])).is_err());
    }
}
