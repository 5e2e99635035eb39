//! Keys and values of tables: the bytes that a damaged or foreign database may hold.

use std::fmt::Debug;

use bytes::Bytes;
use headwater_event::{
    Checkpoint, Cursor, EntryKey, NodeName, Offset, Partition, ReportId, ResourceKey, Seq,
    StateHash, StreamId,
};
use headwater_store::key::Key;
use headwater_store::position::{CHECKPOINTS, CURSORS};
use headwater_store::{Engine, MemoryEngine, Read, Value, WriteBatch, schema};

/// Keys. The first byte chooses the type.
pub fn key(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 10 {
        0 => key_of::<(StreamId, EntryKey)>(rest),
        1 => key_of::<(StreamId, Seq)>(rest),
        2 => key_of::<ResourceKey>(rest),
        3 => key_of::<(NodeName, String)>(rest),
        4 => key_of::<ReportId>(rest),
        5 => key_of::<(Partition, Offset)>(rest),
        6 => key_of::<(u32, i64, Bytes)>(rest),
        7 => key_of::<(String, u8)>(rest),
        8 => key_of::<(NodeName, ResourceKey)>(rest),
        _ => key_of::<Bytes>(rest),
    }
}

fn key_of<K: Key + PartialEq + Debug>(bytes: &[u8]) {
    let mut rest = bytes;
    let Ok(key) = K::decode_key(&mut rest) else { return };
    let mut written = Vec::new();
    key.encode_key(&mut written);
    // A key has one encoding, or one row would be two.
    assert_eq!(written, bytes[..bytes.len() - rest.len()], "{key:?} has two encodings");
}

/// Values. The first byte chooses the type.
pub fn value(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let rest = Bytes::copy_from_slice(rest);
    match which % 8 {
        0 => value_of::<Checkpoint>(rest),
        1 => value_of::<(Checkpoint, StateHash)>(rest),
        2 => value_of::<Cursor>(rest),
        3 => value_of::<ReportId>(rest),
        4 => value_of::<String>(rest),
        5 => value_of::<i64>(rest),
        6 => value_of::<()>(rest),
        _ => whole_database(&rest),
    }
}

fn value_of<V: Value + PartialEq + Debug>(bytes: Bytes) {
    let Ok(value) = V::decode(bytes.clone()) else { return };
    assert_eq!(value.encode().expect("it was read"), bytes, "{value:?} has two encodings");
}

/// A database whose rows are these bytes, cut at each zero byte.
fn whole_database(bytes: &[u8]) {
    let engine = MemoryEngine::new();
    let mut batch = WriteBatch::default();
    for row in bytes.split(|byte| *byte == 0) {
        let (key, value) = row.split_at(row.len() / 2);
        if !key.is_empty() {
            batch.put(key.to_vec(), value.to_vec());
        }
    }
    engine.write(batch, headwater_store::Durability::Buffered).expect("memory takes it");
    let _ = schema::NODE_STATE.check(&engine);
    let _: Vec<_> = CHECKPOINTS.rows(&engine).take(100).collect();
    let _: Vec<_> = CURSORS.rows(&engine).take(100).collect();
    let _ = engine.get(bytes);
}
