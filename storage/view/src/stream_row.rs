//! What is stored of a stream besides its entries and its position.

use bytes::Bytes;
use headwater_event::{Cursor, StateHash, StreamId};
use headwater_store::position::CHECKPOINTS;
use headwater_store::{
    Batch, DecodeError, EncodeError, Folded, Key, Position, StreamPosition, Table, TableId, Value,
};

/// The rows of streams, but of those that are in their first generation and do not differ.
pub(crate) const STREAM_ROWS: Table<StreamId, StreamRow, Folded> = Table::new(TableId::Staging);

/// Which generation of a stream's entries is the visible one.
///
/// The number of a generation is given again only after a commit removed what lay under it, so
/// that what is left of an abandoned one is never taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRow {
    /// The generation that readers see.
    pub(crate) visible: u32,
    /// The generation that a catch-up is being written to.
    pub(crate) staged: Option<u32>,
    /// What the log said of the hash at the position, where the state has another.
    pub(crate) claimed: Option<StateHash>,
}

impl StreamRow {
    /// The row of a stream that has none.
    pub(crate) const FIRST: Self = Self { visible: 1, staged: None, claimed: None };

    /// A number under which nothing lies.
    pub(crate) fn unused_generation(&self) -> u32 {
        self.staged.unwrap_or(0).max(self.visible) + 1
    }
}

/// What moves with a batch: the position of a stream or of a partition, or what is staged.
pub(crate) enum Moved {
    /// A stream came to a position.
    Stream(StreamPosition),
    /// A stream was dropped.
    Dropped(StreamId),
    /// Another generation is visible or staged.
    Row(StreamId, StreamRow),
    /// A partition was read up to here.
    Partition(Cursor),
    /// Nothing: the batch holds only rows that stand by themselves.
    Nothing,
}

impl Position for Moved {
    fn put(&self, batch: &mut Batch<Folded>) {
        match self {
            Self::Stream(position) => position.put(batch),
            Self::Dropped(stream) => batch.delete(&CHECKPOINTS, stream),
            Self::Row(stream, row) => batch.put(&STREAM_ROWS, stream, row),
            Self::Partition(cursor) => cursor.put(batch),
            Self::Nothing => {}
        }
    }
}

impl Value for StreamRow {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut bytes = Vec::with_capacity(8 + 32);
        // Zero is no generation.
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
