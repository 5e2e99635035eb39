//! The bounds of a database: files, logs, memory.

use std::fs;
use std::time::{Duration, Instant};

use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{Durability, Engine, Range, Read, WriteBatch, schema};

use crate::child;
use crate::files::{open_state, prefix_length, write};

/// The deadline for background work: two cores may be busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// The memory of an edge, and the part of it for RocksDB.
const EDGE_BYTES_MAX: u64 = 64 << 20;

/// Waits until `reached` is true.
fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "still not after {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

/// A batch of about `bytes` that does not compress, at the key `n`.
fn noise(n: u64, bytes: usize) -> WriteBatch {
    let mut state = n + 1;
    let value = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut batch = WriteBatch::default();
    batch.put(n.to_be_bytes().to_vec(), value.take(bytes / 8).flatten().collect::<Vec<_>>());
    batch
}

#[test]
fn info_logs_are_bounded() {
    let directory = tempfile::tempdir().expect("a directory");
    for round in 0..10 {
        let engine = open_state(directory.path()).expect("opens");
        write(&engine, round + 1..=round + 1, Durability::Buffered);
    }
    let names = fs::read_dir(directory.path()).expect("a directory");
    let logs = names.filter(|entry| {
        entry.as_ref().expect("an entry").file_name().to_string_lossy().starts_with("LOG")
    });
    assert!(logs.count() <= 3, "each of ten opens left a log");
    assert_eq!(prefix_length(&open_state(directory.path()).expect("opens")).expect("reads"), 10);
}

#[test]
fn the_write_ahead_log_is_bounded() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_state(directory.path()).expect("opens");
    let cap = Role::State.ballast_bytes() / 2;
    let mut peak = 0;
    for n in 0..5 * cap / (64 << 10) {
        engine.write(noise(n, 64 << 10), Durability::Buffered).expect("writes");
        peak = peak.max(engine.stats().expect("stats").wal_bytes);
    }
    // Files are deleted a little after they are no longer needed.
    wait_until("the log is short", || engine.stats().expect("stats").wal_bytes <= cap);
    assert!(peak <= 2 * cap, "the log grew to {peak} bytes, the ballast covers {}", 2 * cap);
    assert!(engine.stats().expect("stats").sst_bytes > 0);
}

#[test]
fn open_files_are_bounded() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_state(directory.path()).expect("opens");
    let open_tables = || {
        let files = fs::read_dir("/proc/self/fd").expect("a list");
        let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let ours = |target: &std::path::PathBuf| {
            target.starts_with(directory.path()) && target.extension().is_some_and(|e| e == "sst")
        };
        targets.filter(ours).count()
    };
    for n in 0..2_000 {
        engine.write(noise(n, 16 << 10), Durability::Buffered).expect("writes");
    }
    assert_eq!(engine.scan(&Range::all(), usize::MAX).expect("reads").len(), 2_001);
    let open = open_tables();
    assert!((1..=96).contains(&open), "{open} tables are open");
}

/// Without compactions a load would end in as many files as it took flushes.
#[test]
fn a_load_merges_late_and_its_end_merges_what_it_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let memory = DatabaseMemory::new(Budget::CLOUD_PART);
    let engine = RocksEngine::open(directory.path(), Role::Fold, &memory, schema::HUB);
    let engine = engine.expect("opens");
    let files = || engine.stats().expect("stats").level_0_files;
    engine.begin_bulk_load();
    let (mut written, mut most) = (0, 0);
    wait_until("a load leaves files for later", || {
        engine.write(noise(written, 256 << 10), Durability::Buffered).expect("writes");
        written += 1;
        most = most.max(files());
        most >= 20
    });
    for n in written..2 * written {
        engine.write(noise(n, 256 << 10), Durability::Buffered).expect("writes");
        most = most.max(files());
    }
    assert!(most < 64, "{most} files, and RocksDB delays writes");
    engine.end_bulk_load();
    wait_until("the files are merged", || files() <= 4);
    let rows = engine.scan(&Range::all(), usize::MAX).expect("reads").len() as u64;
    assert_eq!(rows, 2 * written + 1, "and the schema");
}

#[test]
fn snapshots_and_scans_hold_nothing_when_they_are_done() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_state(directory.path()).expect("opens");
    write(&engine, 1..=100, Durability::Buffered);
    let snapshot = engine.snapshot();
    assert_eq!(engine.stats().expect("stats").snapshots, 1);
    snapshot.scan(&Range::all(), 10).expect("reads");
    drop(snapshot);
    assert_eq!(engine.stats().expect("stats").snapshots, 0);
}

#[test]
fn many_databases_share_one_budget() {
    const DATABASES: usize = 10;
    /// Half a MiB in each database.
    const ROUNDS_MAX: u32 = 4_000;
    let directory = tempfile::tempdir().expect("a directory");
    // Without a shared budget, each of the ten has up to 2 MiB in its memtable.
    let budget = Budget { cache_bytes: 8 << 20, write_buffer_bytes: 4 << 20 };
    let shared = DatabaseMemory::new(budget);
    let engines: Vec<_> = (0..DATABASES)
        .map(|n| {
            let path = directory.path().join(n.to_string());
            RocksEngine::open(path, Role::State, &shared, schema::NODE_STATE).expect("opens")
        })
        .collect();
    for n in 0..60 {
        for engine in &engines {
            engine.write(noise(n, 16 << 10), Durability::Buffered).expect("writes");
        }
    }
    // A database flushes one memtable at a time, so a burst exceeds the budget; the next writes
    // bring it back. Together they are too small to fill a memtable, which would be flushed anyway.
    let mut rounds = 0;
    wait_until("memtables are inside the budget", || {
        if rounds < ROUNDS_MAX {
            rounds += 1;
            for engine in &engines {
                engine.write(noise(0, 64), Durability::Buffered).expect("writes");
            }
        }
        let memtables = engines.iter().map(|engine| engine.stats().expect("stats").memtable_bytes);
        memtables.sum::<u64>() <= budget.write_buffer_bytes as u64
    });
    for engine in &engines {
        assert_eq!(engine.scan(&Range::all(), usize::MAX).expect("reads").len(), 61);
    }
    // Memtables are charged to the cache in pieces, which cannot be evicted to the byte.
    let stats = shared.stats();
    assert!(stats.cache_bytes <= budget.cache_bytes * 9 / 8, "{stats:?}");
}

#[test]
#[ignore = "runs as the child of an_edge_stays_inside_its_memory_and_file_limits"]
fn child_churns_as_an_edge() {
    let Some(directory) = child::directory() else { return };
    let shared = DatabaseMemory::new(Budget::EDGE);
    let open = |name: &str, role, schema| {
        RocksEngine::open(directory.join(name), role, &shared, schema).expect("opens")
    };
    let state = open("state", Role::State, schema::NODE_STATE);
    let outbox = open("outbox", Role::Outbox, schema::OUTBOX);
    let idle = resident_bytes();
    // 110 pods and what they name, 4 KiB each, over and over: 128 MiB.
    for n in 0..32_768 {
        state.write(noise(n % 400, 4 << 10), Durability::Buffered).expect("writes");
        if n % 64 == 0 {
            outbox.write(noise(n % 110, 1 << 10), Durability::Synced).expect("writes");
            state.scan(&Range::all(), 64).expect("reads");
        }
    }
    let busy = resident_bytes();
    println!("resident: {} KiB idle, {} KiB after 128 MiB", idle >> 10, busy >> 10);
    assert!(busy <= EDGE_BYTES_MAX, "{busy} bytes are resident");
    let disk = state.stats().expect("stats");
    println!(
        "on disk: {} KiB of tables, {} KiB of log",
        disk.sst_bytes >> 10,
        disk.wal_bytes >> 10
    );
}

/// The greatest resident memory of this process so far.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

#[test]
fn an_edge_stays_inside_its_memory_and_file_limits() {
    let directory = tempfile::tempdir().expect("a directory");
    let shell = ["sh", "-c", "ulimit -n 256 && exec \"$@\"", "sh"];
    let output = child::command_under(&shell, "bounds::child_churns_as_an_edge", directory.path())
        .output()
        .expect("a child");
    let stdout = String::from_utf8_lossy(&output.stdout);
    println!("{stdout}");
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
}
