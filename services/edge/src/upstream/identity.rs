//! The identity of this start of the edge, and the report ids that it may issue.
//!
//! ```text
//!   start:  boot n+1, fresh nonce, ids up to r+1000 reserved      one synced write
//!   issue:  next id; at the end of the block, the next block      one synced write a block
//!   raise:  boot = max(own, known) + 1, fresh nonce               with the reissued outbox
//! ```
//!
//! Ids continue behind the last reserved block, also across starts. No id is issued twice with
//! different contents, whatever a crash or an old disk image restores.

use headwater_event::{Boot, Identity, Incarnation, NodeName, ReportId};
use headwater_store::{Batch, Durability, Engine, EngineError, Json, Table, TableId};
use serde::{Deserialize, Serialize};

/// How many report ids one synced write reserves. One write per thousand reports is cheap, and a
/// start wastes at most this much of the 64-bit range.
pub const RESERVED_BLOCK: u64 = 1_000;

const IDENTITY: Table<(), Json<Row>> = Table::new(TableId::Identity);

/// The identity of a running edge.
#[derive(Debug)]
pub(crate) struct Issuer {
    node: NodeName,
    row: Row,
    next: u64,
}

/// The configured incarnation is older than the stored one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {node} is configured as incarnation {configured}, its outbox is of incarnation {stored}: \
     use the newer enrolment, or wipe the node's data"
)]
pub struct OlderIncarnation {
    /// The node.
    pub node: NodeName,
    /// The configured incarnation.
    pub configured: u64,
    /// The stored incarnation.
    pub stored: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    incarnation: Incarnation,
    boot: Boot,
    reserved_through: u64,
    /// The snapshot request that the last full snapshot answered. `None`: a full snapshot is due.
    base: Option<u64>,
    /// The first report of the last full snapshot, until the cloud acknowledges its end.
    full_since: Option<ReportId>,
}

/// A start of the node.
#[derive(Debug)]
pub(crate) struct NodeStart {
    pub(crate) issuer: Issuer,
    /// The outbox holds reports of an earlier incarnation.
    pub(crate) enrolled_anew: bool,
}

impl Issuer {
    /// Begins a start of `node`. Its boot number is raised and synced when this returns.
    ///
    /// # Errors
    /// As the engine, and as [`OlderIncarnation`].
    pub(crate) fn start(
        engine: &dyn Engine,
        node: NodeName,
        incarnation: Incarnation,
        nonce: u64,
    ) -> Result<Result<NodeStart, OlderIncarnation>, EngineError> {
        let stored = IDENTITY.get(engine, &())?.map(|Json(row)| row);
        if let Some(row) = &stored
            && row.incarnation > incarnation
        {
            let (configured, stored) = (incarnation.0, row.incarnation.0);
            return Ok(Err(OlderIncarnation { node, configured, stored }));
        }
        let enrolled_anew = stored.as_ref().is_some_and(|row| row.incarnation < incarnation);
        let before = stored.unwrap_or(Row {
            incarnation,
            boot: Boot::default(),
            reserved_through: 0,
            base: None,
            full_since: None,
        });
        let number = before.boot.number.checked_add(1).ok_or_else(|| at_its_end("boots"))?;
        let row = Row {
            incarnation,
            boot: Boot { number, nonce },
            reserved_through: next_block(before.reserved_through)?,
            base: before.base,
            full_since: before.full_since,
        };
        write(engine, &row)?;
        let issuer = Self { node, row, next: before.reserved_through + 1 };
        Ok(Ok(NodeStart { issuer, enrolled_anew }))
    }

    /// The identity of this start.
    pub(crate) fn identity(&self) -> Identity {
        Identity { node: self.node.clone(), incarnation: self.row.incarnation, boot: self.row.boot }
    }

    /// The node.
    pub(crate) fn node(&self) -> &NodeName {
        &self.node
    }

    /// Issues a new id.
    ///
    /// # Errors
    /// When the next block cannot be reserved; no id is issued.
    pub(crate) fn issue(&mut self, engine: &dyn Engine) -> Result<ReportId, EngineError> {
        if self.next > self.row.reserved_through {
            let mut row = self.row.clone();
            row.reserved_through = next_block(row.reserved_through)?;
            write(engine, &row)?;
            self.row = row;
        }
        let seq = self.next;
        self.next += 1;
        Ok(ReportId { incarnation: self.row.incarnation, boot: self.row.boot.number, seq })
    }

    /// Moves the boot number past `known`, another start of this node that the cloud knows. Takes
    /// effect with the batch.
    pub(crate) fn raise(&mut self, batch: &mut Batch, known: &Identity, nonce: u64) {
        let number = self.row.boot.number.max(known.boot.number).saturating_add(1);
        self.row.boot = Boot { number, nonce };
        self.put(batch);
    }

    /// The snapshot request that the cloud's base answers; `None`: a full snapshot is due.
    pub(crate) fn base(&self) -> Option<u64> {
        self.row.base
    }

    /// The first report of a full snapshot whose end is not acknowledged yet.
    pub(crate) fn full_since(&self) -> Option<ReportId> {
        self.row.full_since
    }

    /// Sets the base and the first report of the full snapshot. Takes effect with the batch.
    pub(crate) fn set_base(
        &mut self,
        batch: &mut Batch,
        base: Option<u64>,
        full_since: Option<ReportId>,
    ) {
        self.row.base = base;
        self.row.full_since = full_since;
        self.put(batch);
    }

    fn put(&self, batch: &mut Batch) {
        batch.put(&IDENTITY, &(), &Json(self.row.clone()));
    }
}

/// Reads the last start of `node` on `engine`, and whether its outbox had a full snapshot.
///
/// # Errors
/// As the engine.
pub(crate) fn last(
    engine: &dyn Engine,
    node: &NodeName,
) -> Result<Option<(Identity, bool)>, EngineError> {
    let row = IDENTITY.get(engine, &())?;
    Ok(row.map(|Json(row)| {
        let Row { incarnation, boot, base, .. } = row;
        (Identity { node: node.clone(), incarnation, boot }, base.is_some())
    }))
}

fn next_block(reserved_through: u64) -> Result<u64, EngineError> {
    reserved_through.checked_add(RESERVED_BLOCK).ok_or_else(|| at_its_end("report ids"))
}

/// No edge counts that far: the row is damaged.
fn at_its_end(what: &str) -> EngineError {
    let reason = format!("the outbox: its {what} are counted to the end of 64 bits");
    EngineError::Corrupt { reason }
}

fn write(engine: &dyn Engine, row: &Row) -> Result<(), EngineError> {
    let mut batch = Batch::new();
    batch.put(&IDENTITY, &(), &Json(row.clone()));
    batch.write(engine, Durability::Synced)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_store::{MemoryEngine, Survival};
    use proptest::prelude::*;

    use super::*;

    fn start(engine: &MemoryEngine, incarnation: u64, nonce: u64) -> NodeStart {
        let node = "gw-1".parse().expect("a node name");
        Issuer::start(engine, node, Incarnation(incarnation), nonce)
            .expect("the engine works")
            .expect("not older")
    }

    #[test]
    fn every_start_has_a_higher_boot_number_whatever_the_crash_took() {
        let mut engine = MemoryEngine::new();
        for number in 1..5 {
            let started = start(&engine, 1, number * 10);
            let boot = started.issuer.identity().boot;
            assert_eq!(boot, Boot { number, nonce: number * 10 });
            engine = engine.crash(Survival::Synced);
        }
    }

    #[test]
    fn a_raise_moves_past_what_the_cloud_knows() {
        let engine = MemoryEngine::new();
        let mut issuer = start(&engine, 1, 7).issuer;
        let mut known = issuer.identity();
        known.boot = Boot { number: 41, nonce: 3 };
        let mut batch = Batch::new();
        issuer.raise(&mut batch, &known, 8);
        batch.write(&engine, Durability::Synced).expect("writes");
        assert_eq!(issuer.identity().boot, Boot { number: 42, nonce: 8 });
        assert_eq!(start(&engine, 1, 9).issuer.identity().boot.number, 43);
    }

    #[test]
    fn an_older_enrolment_does_not_start() {
        let engine = MemoryEngine::new();
        start(&engine, 2, 7);
        let node: NodeName = "gw-1".parse().expect("a node name");
        let refused = Issuer::start(&engine, node.clone(), Incarnation(1), 7).expect("works");
        assert_eq!(
            refused.expect_err("older"),
            OlderIncarnation { node, configured: 1, stored: 2 }
        );
        assert!(start(&engine, 3, 7).enrolled_anew);
        assert!(!start(&engine, 3, 7).enrolled_anew);
    }

    #[test]
    fn a_number_at_the_end_of_64_bits_is_damage() {
        let node: NodeName = "gw-1".parse().expect("a node name");
        for (boot, reserved_through) in [(u64::MAX, 0), (0, u64::MAX), (0, u64::MAX - 999)] {
            let engine = MemoryEngine::new();
            let row = Row {
                incarnation: Incarnation(1),
                boot: Boot { number: boot, nonce: 0 },
                reserved_through,
                base: None,
                full_since: None,
            };
            write(&engine, &row).expect("writes");
            let refused = Issuer::start(&engine, node.clone(), Incarnation(1), 7);
            assert!(matches!(refused, Err(EngineError::Corrupt { .. })), "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn no_id_is_issued_twice(issued in proptest::collection::vec(0_usize..2500, 1..5)) {
            let mut engine = MemoryEngine::new();
            let mut seen = BTreeSet::new();
            let mut last = None;
            for count in issued {
                let mut issuer = start(&engine, 1, 0).issuer;
                for _ in 0..count {
                    let id = issuer.issue(&engine).expect("reserves");
                    prop_assert!(seen.insert(id.seq), "{id} again");
                    prop_assert!(last < Some(id), "{id} is not above {last:?}");
                    last = Some(id);
                }
                engine = engine.crash(Survival::Synced);
            }
        }
    }
}
