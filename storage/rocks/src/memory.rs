//! The memory that all databases of a process share.
//!
//! They share one block cache and one write buffer manager, so that a process with one database and
//! a process with two hundred have the same bound. Memtables are charged to the cache: its capacity
//! is the whole budget, with index and filter blocks.
//!
//! Two things can exceed the bound for a moment. A running read pins its blocks, and the binding
//! has no cache with a strict limit; scans go in chunks, and the read of a whole database keeps its
//! blocks out of the cache, so that this is a few blocks a thread. A memtable counts until its flush
//! has ended: at most one beside the active one in each database, whose writers then wait.

use rocksdb::{Cache, LruCacheOptions, WriteBufferManager};

/// Each shard of the cache must hold several of the 256 KiB pieces in which memtables are
/// charged to it, so a cache of a few MiB has few shards: 2^2.
const CACHE_SHARD_BITS: i32 = 2;

/// The memory that the databases of a process may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The whole budget, in bytes: blocks, indexes, filters and memtables.
    pub cache_bytes: usize,
    /// The part of it that memtables may take before a flush, in bytes.
    pub write_buffer_bytes: usize,
}

impl Budget {
    /// One edge: a state database and an outbox. The target of the whole process is 30 MiB, and 110
    /// pods need a few MiB.
    pub const EDGE: Self = Self { cache_bytes: 8 << 20, write_buffer_bytes: 4 << 20 };

    /// The cloud's parts in one process: log, hub and controller. Their databases have the objects
    /// of every node, and a hub reads most of them once per node and reconnect.
    pub const CLOUD: Self = Self { cache_bytes: 96 << 20, write_buffer_bytes: 32 << 20 };

    /// A hub or a controller in a process of its own, whose target is 64 MiB besides the memory for
    /// its edges.
    pub const CLOUD_PART: Self = Self { cache_bytes: 24 << 20, write_buffer_bytes: 8 << 20 };

    /// The addition for another edge in the same process. Its two memtables must fit, or each write
    /// would flush a nearly empty one.
    pub const PER_NODE: Self = Self { cache_bytes: 1 << 20, write_buffer_bytes: 512 << 10 };

    /// Returns this budget with the additions for `nodes` further edges in the same process.
    #[must_use]
    pub const fn and_nodes(self, nodes: usize) -> Self {
        Self {
            cache_bytes: self.cache_bytes + nodes * Self::PER_NODE.cache_bytes,
            write_buffer_bytes: self.write_buffer_bytes + nodes * Self::PER_NODE.write_buffer_bytes,
        }
    }
}

/// The one cache and the one write buffer manager of a process. Cheap to clone.
#[derive(Clone)]
pub struct DatabaseMemory {
    budget: Budget,
    pub(crate) cache: Cache,
    pub(crate) write_buffers: WriteBufferManager,
}

/// The used part of the budget of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// The budget.
    pub budget: Budget,
    /// Bytes in the cache, with memtables.
    pub cache_bytes: usize,
    /// Bytes in the cache that are pinned.
    pub pinned_bytes: usize,
    /// Bytes of memtables.
    pub write_buffer_bytes: usize,
}

impl DatabaseMemory {
    /// Creates the cache and the write buffer manager for `budget`.
    pub fn new(budget: Budget) -> Self {
        let mut options = LruCacheOptions::default();
        options.set_capacity(budget.cache_bytes);
        options.set_num_shard_bits(CACHE_SHARD_BITS);
        let cache = Cache::new_lru_cache_opts(&options);
        // A stall ends when memtables are flushed, and only a write makes its database flush. So
        // idle databases that use the whole budget would stall the others for ever.
        let allow_stall = false;
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            budget.write_buffer_bytes,
            allow_stall,
            cache.clone(),
        );
        Self { budget, cache, write_buffers }
    }

    /// Returns the memory in use.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            budget: self.budget,
            cache_bytes: self.cache.get_usage(),
            pinned_bytes: self.cache.get_pinned_usage(),
            write_buffer_bytes: self.write_buffers.get_usage(),
        }
    }
}

impl std::fmt::Debug for DatabaseMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DatabaseMemory").field(&self.stats()).finish()
    }
}
