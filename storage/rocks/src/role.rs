//! What a database is for, and the RocksDB options that follow from it.

use rocksdb::{BlockBasedOptions, DBCompressionType, DBRecoveryMode, LogLevel, Options};

use crate::memory::DatabaseMemory;

/// What a database is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An edge's replica. May be written unsynced; after a power cut it opens to a prefix, and
    /// the log replays the rest. Damaged, it is moved aside and rebuilt from a snapshot.
    State,
    /// An edge's outbox. Every write is to be synced, so that nothing but a torn last write can
    /// be missing: anything else refuses to open, which is an alarm, as reports may be lost.
    Outbox,
    /// The embedded log. As the outbox: what was acknowledged must be there, or be missed aloud.
    Log,
    /// A cloud part's fold of the log: as [`Role::State`], with more memory.
    Fold,
}

/// The format of table files. Fixed, so that an upgrade of the library changes it only when we
/// say so: files of format 6 are read by RocksDB from 8.4 on, and check where a block lies.
const TABLE_FORMAT_VERSION: i32 = 6;

/// Bits per key of the filters: 1 % false positives.
const FILTER_BITS_PER_KEY: f64 = 10.0;

/// How many info logs stay, the one being written included. RocksDB's default is 1000.
const INFO_LOGS_MAX: usize = 3;

/// How large an info log may become, in bytes. RocksDB has no bound of its own.
const INFO_LOG_BYTES_MAX: usize = 1 << 20;

/// How large a manifest may become before it is written anew, in bytes. RocksDB's default of
/// 1 GiB is more than an edge's whole disk budget.
const MANIFEST_BYTES_MAX: usize = 4 << 20;

/// What is set aside on disk for a manifest at a time, in bytes; 4 MiB by default, which a
/// machine with hundreds of small databases would feel.
const MANIFEST_PREALLOCATION_BYTES: usize = 64 << 10;

/// One thread flushes while another compacts.
const BACKGROUND_JOBS: i32 = 2;

/// The bounds in which roles differ.
struct Bounds {
    /// Bytes of a memtable before it is written out.
    write_buffer: usize,
    /// Bytes of write-ahead log before memtables are written out to shorten it.
    wal: u64,
    /// Bytes of a table file.
    table_file: u64,
    /// Table files held open.
    open_files: i32,
}

impl Role {
    /// Room to keep back for the day the disk is full, in bytes: opening a database writes its
    /// whole write-ahead log into a table before anything can be deleted, hence twice the log.
    /// See [`Ballast`](crate::Ballast).
    pub const fn ballast_bytes(self) -> u64 {
        2 * self.bounds().wal
    }

    const fn bounds(self) -> Bounds {
        match self {
            // Together an edge holds 128 files open and stays well below a limit of 256.
            Self::State => {
                Bounds { write_buffer: 2 << 20, wal: 6 << 20, table_file: 4 << 20, open_files: 96 }
            }
            Self::Outbox => Bounds {
                write_buffer: 512 << 10,
                wal: 2 << 20,
                table_file: 2 << 20,
                open_files: 32,
            },
            Self::Log | Self::Fold => Bounds {
                write_buffer: 8 << 20,
                wal: 32 << 20,
                table_file: 32 << 20,
                open_files: 128,
            },
        }
    }

    const fn recovery(self) -> DBRecoveryMode {
        match self {
            // Stops before the first record that does not check: a prefix, never a hole.
            Self::State | Self::Fold => DBRecoveryMode::PointInTime,
            // Tolerates only a torn last write, whose success was never reported.
            Self::Outbox | Self::Log => DBRecoveryMode::TolerateCorruptedTailRecords,
        }
    }

    /// The options of a database of this role, with a bound wherever RocksDB has none. Public for
    /// benchmarks against a bare database.
    pub fn options(self, memory: &DatabaseMemory) -> Options {
        let bounds = self.bounds();
        let mut options = Options::default();
        options.set_paranoid_checks(true);

        // The write-ahead log: one piece, whole, bounded. Syncing it piecemeal could make a
        // later file durable before an earlier one, and recycled files could pass for new.
        options.set_wal_recovery_mode(self.recovery());
        options.set_wal_bytes_per_sync(0);
        options.set_recycle_log_file_num(0);
        options.set_track_and_verify_wals_in_manifest(true);
        options.set_max_total_wal_size(bounds.wal);

        // Memory.
        options.set_write_buffer_manager(&memory.write_buffers);
        options.set_write_buffer_size(bounds.write_buffer);
        options.set_max_write_buffer_number(2);
        options.set_arena_block_size(bounds.write_buffer / 16);
        options.set_max_open_files(bounds.open_files);
        options.set_block_based_table_factory(&table_options(memory));

        // Disk.
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_target_file_size_base(bounds.table_file);
        options.set_max_bytes_for_level_base(4 * bounds.table_file);
        options.set_max_manifest_file_size(MANIFEST_BYTES_MAX);
        options.set_manifest_preallocation_size(MANIFEST_PREALLOCATION_BYTES);
        options.set_keep_log_file_num(INFO_LOGS_MAX);
        options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
        options.set_log_level(LogLevel::Warn);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        options
    }
}

fn table_options(memory: &DatabaseMemory) -> BlockBasedOptions {
    let mut options = BlockBasedOptions::default();
    options.set_format_version(TABLE_FORMAT_VERSION);
    options.set_block_cache(&memory.cache);
    // Otherwise indexes and filters lie outside the budget, as long as their file is open.
    options.set_cache_index_and_filter_blocks(true);
    options.set_bloom_filter(FILTER_BITS_PER_KEY, false);
    options
}
