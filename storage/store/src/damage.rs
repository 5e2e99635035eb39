//! Damage for tests: rows like those that a bad disk, a bug or another program leaves.
//!
//! Every damaged key still belongs to an existing table. A reader of a damaged database refuses
//! it, repairs it or continues with it, and never panics.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::engine::{Durability, Engine, EngineError, Range, WriteBatch};
use crate::registry::TableId;

/// One kind of damage to a row.
#[derive(Clone, Debug)]
pub struct Damage {
    row: Index,
    at: Index,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The row is missing.
    Gone,
    /// A byte of its value differs.
    Byte(u8),
    /// A byte of its key differs, other than the byte of the table.
    KeyByte(u8),
    /// Its value is cut short.
    Cut,
    /// It has the value of another row.
    Swapped(Index),
    /// A number in its JSON differs.
    Number(u64),
    /// Eight bytes of its value differ.
    Bytes(u64),
}

/// Generates one to five damages.
pub fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let number = || {
        prop_oneof![
            Just(u64::MAX),
            Just(u64::MAX - 1),
            Just(i64::MAX as u64),
            Just(0),
            0..10_u64,
            any::<u64>(),
        ]
    };
    let kind = prop_oneof![
        Just(Kind::Gone),
        any::<u8>().prop_map(Kind::Byte),
        any::<u8>().prop_map(Kind::KeyByte),
        Just(Kind::Cut),
        any::<Index>().prop_map(Kind::Swapped),
        number().prop_map(Kind::Number),
        number().prop_map(Kind::Bytes),
    ];
    let one = (any::<Index>(), any::<Index>(), kind);
    proptest::collection::vec(one.prop_map(|(row, at, kind)| Damage { row, at, kind }), 1..6)
}

/// Damages rows of `engine`, its schema row excepted.
///
/// # Errors
/// As the engine.
pub fn apply_damage(engine: &dyn Engine, damages: &[Damage]) -> Result<(), EngineError> {
    let after_schema = Range { from: vec![TableId::Meta.prefix() + 1].into(), to: None };
    let rows = engine.scan(&after_schema, usize::MAX)?;
    if rows.is_empty() {
        return Ok(());
    }
    let mut batch = WriteBatch::default();
    for Damage { row, at, kind } in damages {
        let (key, value) = row.get(&rows);
        let (mut to, mut harmed) = (key.to_vec(), value.to_vec());
        batch.delete(key.clone());
        let at_byte = at.index(harmed.len().max(1));
        match kind {
            Kind::Gone => continue,
            Kind::Byte(byte) => harmed.iter_mut().skip(at_byte).take(1).for_each(|b| *b = *byte),
            Kind::KeyByte(byte) => {
                let at_byte = 1 + at.index(to.len());
                to.iter_mut().skip(at_byte).take(1).for_each(|b| *b = *byte);
            }
            Kind::Cut => harmed.truncate(at_byte),
            Kind::Swapped(other) => harmed = other.get(&rows).1.to_vec(),
            Kind::Number(number) => renumber(&mut harmed, at_byte, *number),
            Kind::Bytes(number) => {
                let bytes = harmed.iter_mut().skip(at_byte);
                bytes.zip(number.to_be_bytes()).for_each(|(b, byte)| *b = byte);
            }
        }
        batch.put(to, harmed);
    }
    engine.write(batch, Durability::Synced)
}

/// Replaces the first run of digits from `at` on.
fn renumber(value: &mut Vec<u8>, at: usize, number: u64) {
    let Some(from) = value[at.min(value.len())..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let from = at + from;
    let length = value[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    value.splice(from..from + length, number.to_string().into_bytes());
}
