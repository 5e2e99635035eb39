//! The schema of a database. It is written at creation and checked at every open.

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::codec::Json;
use crate::engine::{Durability, Engine, EngineError, Range};
use crate::registry::TableId;
use crate::table::Table;

/// The one row of the table [`TableId::Meta`]. Its form never changes.
const SCHEMA: Table<(), Json<StoredSchema>> = Table::new(TableId::Meta);

/// A kind of database and the version of its schema.
///
/// The version counts changes that an older build would read wrongly: another type under a
/// table id, another meaning of a value. A new table that older builds may ignore is no such
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The kind of database, in one word.
    pub database: &'static str,
    /// The version that this build reads and writes.
    pub version: u32,
}

/// The replica of an edge, and the data derived from it.
pub const NODE_STATE: Schema = Schema { database: "node-state", version: 1 };
/// The reports and the identity of an edge: the data that it must not lose.
pub const OUTBOX: Schema = Schema { database: "outbox", version: 1 };
/// The embedded log.
pub const LOG: Schema = Schema { database: "log", version: 1 };
/// A hub's fold of the log.
pub const HUB: Schema = Schema { database: "hub", version: 1 };
/// The controller's folds of both logs.
pub const CONTROLLER: Schema = Schema { database: "controller", version: 1 };

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredSchema {
    database: String,
    version: u32,
}

impl Schema {
    /// Checks that the database of `engine` has this schema. An empty database receives it.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] when it has another schema; [`EngineError::Corrupt`] when it
    /// has data without a schema, because it lost its first row. The database is then unchanged.
    pub fn check(&self, engine: &(impl Engine + ?Sized)) -> Result<(), EngineError> {
        let Some(Json(stored)) = SCHEMA.get(engine, &())? else {
            return self.create(engine);
        };
        let reason = if stored.database != self.database {
            format!(
                "it is the database of a {}, wanted is that of a {}",
                stored.database, self.database
            )
        } else if stored.version > self.version {
            format!(
                "its {} schema has version {}, this build knows {}: use a newer build",
                self.database, stored.version, self.version
            )
        } else if stored.version < self.version {
            format!(
                "its {} schema has version {}, this build knows only {}: move it aside to rebuild it, or use an older build",
                self.database, stored.version, self.version
            )
        } else {
            return Ok(());
        };
        Err(EngineError::Unsupported { reason })
    }

    fn create(&self, engine: &(impl Engine + ?Sized)) -> Result<(), EngineError> {
        if !engine.scan(&Range::all(), 1)?.is_empty() {
            // The schema is written and synced before any other row, so it did exist.
            let reason =
                format!("it holds data, but not the schema of a {} database", self.database);
            return Err(EngineError::Corrupt { reason });
        }
        let stored = StoredSchema { database: self.database.to_owned(), version: self.version };
        let mut batch = Batch::new();
        batch.put(&SCHEMA, &(), &Json(stored));
        batch.write(engine, Durability::Synced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryEngine, Read};

    const V2: Schema = Schema { database: "hub", version: 2 };

    fn refusal(schema: Schema, engine: &MemoryEngine) -> String {
        match schema.check(engine) {
            Err(EngineError::Unsupported { reason }) => reason,
            other => panic!("should be refused as unsupported: {other:?}"),
        }
    }

    #[test]
    fn a_new_database_gets_its_schema_and_is_known_again() {
        let engine = MemoryEngine::new();
        HUB.check(&engine).expect("new");
        let engine = engine.crash(crate::Survival::Synced);
        HUB.check(&engine).expect("known");
        assert_eq!(engine.counts().writes, 0, "a check of a known database writes nothing");
    }

    #[test]
    fn a_schema_from_the_future_or_the_past_is_refused() {
        let engine = MemoryEngine::new();
        V2.check(&engine).expect("new");
        assert!(refusal(HUB, &engine).contains("version 2, this build knows 1"));
        let engine = MemoryEngine::new();
        HUB.check(&engine).expect("new");
        assert!(refusal(V2, &engine).contains("version 1, this build knows only 2"));
    }

    #[test]
    fn another_kind_of_database_is_refused() {
        let engine = MemoryEngine::new();
        OUTBOX.check(&engine).expect("new");
        assert!(refusal(NODE_STATE, &engine).contains("of a outbox"));
    }

    #[test]
    fn data_without_a_schema_is_damage_and_left_alone() {
        let engine = MemoryEngine::new();
        let mut batch = crate::WriteBatch::default();
        batch.put(&b"x"[..], &b"y"[..]);
        engine.write(batch, Durability::Synced).expect("writes");
        let error = HUB.check(&engine).expect_err("its schema is lost");
        assert!(matches!(error, EngineError::Corrupt { .. }), "{error:?}");
        assert_eq!(engine.scan(&Range::all(), 9).expect("reads").len(), 1);
    }
}
