//! RocksDB, as each role opens it, on a disk that forgets: what a write or a sync promised is
//! there after any power cut, and what is there is a prefix of what was written.

#[path = "disk/place.rs"]
mod place;

use std::path::Path;
use std::thread;
use std::time::Duration;

use headwater_lossy::{Fault, Survives};
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Durability, Engine, EngineError, Range, Read, Schema, WriteBatch, schema};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use self::place::Place;

/// Seeds of each test: `HEADWATER_SEEDS` for more.
const SEEDS: u64 = 8;

/// Lives of a database with one seed, each ended by a cut.
const LIVES: u32 = 6;

/// Between two looks whether a life is over.
const LOOK: Duration = Duration::from_millis(20);

/// Before how many changes of the disk a life ends, at most.
const CHANGES_MAX: u64 = 400;

fn seeds() -> u64 {
    std::env::var("HEADWATER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

fn open(path: &Path, role: Role) -> Result<RocksEngine, EngineError> {
    RocksEngine::open(path, role, &DatabaseMemory::new(Budget::EDGE), schema_of(role))
}

fn schema_of(role: Role) -> Schema {
    match role {
        Role::State => schema::NODE_STATE,
        Role::Outbox => schema::OUTBOX,
        Role::Log => schema::LOG,
        Role::Fold => schema::HUB,
    }
}

/// Batch `n`: two rows, so that half of one would show, of a size between a sector and some pages.
fn numbered(n: u32) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for table in [b'a', b'z'] {
        batch.put([&[table], n.to_be_bytes().as_slice()].concat(), value(n));
    }
    batch
}

fn value(n: u32) -> Vec<u8> {
    let words = 50 + n.wrapping_mul(2_654_435_761) % 1500;
    (0..words).flat_map(|i| n.wrapping_mul(2_654_435_761).rotate_left(i).to_be_bytes()).collect()
}

/// Batches of a life, at most: a fault may hit a write that RocksDB does without.
const BATCHES_MAX: u32 = 150;

/// How many batches are there: the first so many, each whole.
fn prefix_length(engine: &RocksEngine) -> u32 {
    let table =
        |prefix: &'static [u8]| engine.scan(&Range::prefix(prefix), usize::MAX).expect("reads");
    let (first, second) = (table(b"a"), table(b"z"));
    assert_eq!(first.len(), second.len(), "a batch is torn");
    for rows in [&first, &second] {
        for (n, (key, found)) in (1_u32..).zip(rows) {
            assert_eq!(key[1..], n.to_be_bytes(), "a batch before the last is missing");
            assert_eq!(*found, value(n), "wrong data in batch {n}");
        }
    }
    u32::try_from(first.len()).expect("few batches")
}

/// The promises for the batches of a database.
#[derive(Clone, Copy, Debug, Default)]
struct Promises {
    /// The last batch that is durable by a promise.
    durable: u32,
    /// The last batch that was written at all.
    written: u32,
}

/// Writes until the disk fails it, or it is enough.
fn live(engine: &RocksEngine, role: Role, left: u32, mut rng: StdRng) -> Promises {
    let mut promises = Promises { durable: left, written: left };
    let enough = promises.written + BATCHES_MAX;
    while promises.written < enough {
        let synced = matches!(role, Role::Outbox | Role::Log) || rng.random_bool(0.05);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        if engine.write(numbered(promises.written + 1), durability).is_err() {
            return promises;
        }
        promises.written += 1;
        if synced {
            promises.durable = promises.written;
        } else if rng.random_bool(0.05) {
            if engine.sync().is_err() {
                return promises;
            }
            promises.durable = promises.written;
        }
    }
    promises
}

/// What all cuts of a test came to.
#[derive(Debug, Default)]
struct Tally {
    cuts: u32,
    bytes: u64,
    torn: u64,
    batches: u64,
    refused: u32,
}

fn cuts(role: Role, survive: impl Fn(&mut StdRng) -> Survives) -> Option<Tally> {
    let mut tally = Tally::default();
    for seed in 0..seeds() {
        eprintln!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let mut place = Place::new()?;
        let path = place.path().join("deep/down");
        let mut promised = 0;
        for _ in 0..LIVES {
            let engine = match open(&path, role) {
                Ok(engine) => engine,
                Err(EngineError::Corrupt { reason }) => {
                    eprintln!("refused: {reason}");
                    tally.refused += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            };
            let left = prefix_length(&engine);
            assert!(left >= promised, "{promised} were promised, {left} are there");
            place.disk.freeze_after(rng.random_range(0..CHANGES_MAX));
            let draws = StdRng::seed_from_u64(rng.random());
            let promises = thread::scope(|scope| {
                let life = scope.spawn(move || live(&engine, role, left, draws));
                while !life.is_finished() && !place.disk.wait_until_frozen(LOOK) {}
                place.disk.let_go();
                life.join().expect("it ends")
            });
            promised = promises.durable;
            let loss = place.disk.power_cut(survive(&mut rng)).expect("nobody uses it");
            tally.cuts += 1;
            tally.bytes += loss.bytes;
            tally.torn += loss.torn;
            tally.batches += u64::from(promises.written - promises.durable);
        }
    }
    eprintln!("{role:?}: {tally:?}");
    Some(tally)
}

fn ordered(rng: &mut StdRng) -> Survives {
    if rng.random_bool(0.3) { Survives::Nothing } else { Survives::Prefix { seed: rng.random() } }
}

#[test]
fn a_state_falls_back_to_a_prefix_that_has_all_that_was_synced() {
    let scattered = |rng: &mut StdRng| match rng.random_bool(0.5) {
        true => Survives::Scattered { seed: rng.random() },
        false => ordered(rng),
    };
    let Some(tally) = cuts(Role::State, scattered) else { return };
    assert_eq!(tally.refused, 0, "a state opens to a prefix, whatever of it is left");
    assert!(tally.bytes > 0 && tally.torn > 0 && tally.batches > 0, "something is lost: {tally:?}");
}

#[test]
fn an_outbox_has_every_write_that_returned() {
    let Some(tally) = cuts(Role::Outbox, ordered) else { return };
    assert_eq!(tally.refused, 0, "a torn last write is forgiven");
    assert!(tally.torn > 0, "something was torn: {tally:?}");
}

#[test]
fn a_log_has_every_write_that_returned() {
    let Some(tally) = cuts(Role::Log, ordered) else { return };
    assert_eq!(tally.refused, 0, "a torn last write is forgiven");
    assert!(tally.torn > 0, "something was torn: {tally:?}");
}

#[test]
fn what_never_loses_silently_may_refuse_a_last_write_with_holes() {
    let scattered = |rng: &mut StdRng| Survives::Scattered { seed: rng.random() };
    for role in [Role::Outbox, Role::Log] {
        if cuts(role, scattered).is_none() {
            return;
        }
    }
}

#[test]
fn no_write_or_sync_that_fails_takes_what_was_promised() {
    for role in [Role::State, Role::Outbox, Role::Log] {
        let Some(mut place) = Place::new() else { return };
        let path = place.path().join("database");
        let mut promised = 0;
        for nth in 1..17 {
            for fault in [Fault::Full { nth }, Fault::Write { nth }, Fault::Sync { nth }] {
                let engine = open(&path, role).expect("opens");
                let left = prefix_length(&engine);
                assert!(left >= promised, "{fault:?}: {promised} promised, {left} there");
                place.disk.inject(Some(fault));
                let promises = live(&engine, role, left, StdRng::seed_from_u64(nth));
                promised = promises.durable;
                drop(engine);
                place.disk.inject(None);
                if nth % 3 == 0 {
                    place.disk.power_cut(Survives::Nothing).expect("nobody uses it");
                }
            }
        }
        eprintln!("{role:?}: {:?}", place.disk.counts());
    }
}
