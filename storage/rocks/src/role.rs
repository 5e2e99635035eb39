//! The role of a database, and the RocksDB options of each role.

use rocksdb::{BlockBasedOptions, DBCompressionType, DBRecoveryMode, LogLevel, Options};

use crate::memory::DatabaseMemory;

/// The purpose of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An edge's replica. Writes may be unsynced: after a power cut it opens to a prefix, and the
    /// log replays the rest. A damaged one is moved aside and rebuilt from a snapshot.
    State,
    /// An edge's outbox. The caller syncs every write, so that only a torn last write can be
    /// missing. With any other damage the open fails, because reports may be lost.
    Outbox,
    /// The embedded log. As the outbox: the open fails if an acknowledged record is missing.
    Log,
    /// A fold of the log by a part of the cloud: as [`Role::State`], with more memory.
    Fold,
}

/// The format of table files. It is fixed, so that an upgrade of the library does not change it.
/// RocksDB reads format 6 from 8.4 on; its checksums cover the position of a block.
const TABLE_FORMAT_VERSION: i32 = 6;

/// Bits per key of the filters: 1 % false positives.
const FILTER_BITS_PER_KEY: f64 = 10.0;

/// The number of info logs that stay, with the open one. RocksDB's default is 1000.
const INFO_LOGS_MAX: usize = 3;

/// The largest size of an info log, in bytes. RocksDB has no bound by default.
const INFO_LOG_BYTES_MAX: usize = 1 << 20;

/// The largest size of a manifest before RocksDB rewrites it, in bytes. RocksDB's default of
/// 1 GiB is more than an edge's whole disk budget.
const MANIFEST_BYTES_MAX: usize = 4 << 20;

/// The disk space that RocksDB preallocates for a manifest, in bytes. Its default of 4 MiB is much
/// for a machine with hundreds of small databases.
const MANIFEST_PREALLOCATION_BYTES: usize = 64 << 10;

/// One thread flushes while another compacts.
const BACKGROUND_JOBS: i32 = 2;

/// Files in level 0 before a compaction merges them, RocksDB's default: each read looks into every file of it.
pub(crate) const STEADY_FILES: i32 = 4;

/// The same while a load reads almost nothing. Each compaction of level 0 rewrites most of level 1, so fewer of them
/// make a load of a million objects three times as fast.
pub(crate) const BULK_LOAD_FILES: i32 = 32;

/// Files in level 0 above which RocksDB delays writes, and above which it stops them. RocksDB's defaults of 20 and 36
/// leave no room for a load: a third of a fold's open files may be in level 0, and more is for a moment.
const FOLD_SLOWDOWN_FILES: i32 = 64;
const FOLD_STOP_FILES: i32 = 96;

/// The compression of level 0, and of every level below. A file of level 0 is soon merged: compressed, each byte of a
/// load would be compressed twice and decompressed once more, on the processor that the load needs. Level 0 has 32 MiB
/// at rest.
const FOLD_COMPRESSION: [DBCompressionType; 2] = [DBCompressionType::None, DBCompressionType::Lz4];

/// The bounds in which roles differ.
struct Bounds {
    /// Bytes of a memtable before its flush.
    write_buffer: usize,
    /// Bytes of write-ahead log before a flush of memtables shortens it.
    wal: u64,
    /// Bytes of a table file.
    table_file: u64,
    /// Open table files.
    open_files: i32,
}

impl Role {
    /// Returns the space to reserve for a full disk, in bytes: twice the write-ahead log, because
    /// the open of a database writes the whole log into a table before it deletes anything. See
    /// [`Ballast`](crate::Ballast).
    pub const fn ballast_bytes(self) -> u64 {
        2 * self.bounds().wal
    }

    const fn bounds(self) -> Bounds {
        match self {
            // Both databases of an edge have 128 open files, well below a limit of 256.
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
            // Recovery stops before the first invalid record: a prefix, never a hole.
            Self::State | Self::Fold => DBRecoveryMode::PointInTime,
            // Recovery tolerates only a torn last write, whose success was never reported.
            Self::Outbox | Self::Log => DBRecoveryMode::TolerateCorruptedTailRecords,
        }
    }

    /// Returns the options of this role, with a bound wherever RocksDB has none. Public for the
    /// benchmarks against a bare database.
    pub fn options(self, memory: &DatabaseMemory) -> Options {
        let bounds = self.bounds();
        let mut options = Options::default();
        options.set_paranoid_checks(true);

        // The write-ahead log is bounded and synced as a whole: partial syncs could make a later
        // file durable before an earlier one, and a recycled file could be read as new.
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
        options.set_level_zero_file_num_compaction_trigger(STEADY_FILES);
        if self == Self::Fold {
            options.set_compression_per_level(&FOLD_COMPRESSION);
            options.set_level_zero_slowdown_writes_trigger(FOLD_SLOWDOWN_FILES);
            options.set_level_zero_stop_writes_trigger(FOLD_STOP_FILES);
        }
        options
    }
}

fn table_options(memory: &DatabaseMemory) -> BlockBasedOptions {
    let mut options = BlockBasedOptions::default();
    options.set_format_version(TABLE_FORMAT_VERSION);
    options.set_block_cache(&memory.cache);
    // Without this, the indexes and filters of open files lie outside the budget.
    options.set_cache_index_and_filter_blocks(true);
    options.set_bloom_filter(FILTER_BITS_PER_KEY, false);
    options
}
