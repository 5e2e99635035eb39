//! The memory that all databases of a process share.
//!
//! One block cache and one write buffer manager, so that a process with one database and a
//! process with two hundred both stay inside one figure. Memtables are charged to the cache:
//! its capacity is the whole budget, index and filter blocks included.
//!
//! The figure can be exceeded for a moment, in two ways. Blocks that a running read pins stay:
//! the binding offers no cache that refuses instead of growing; scans go in chunks, which keeps
//! it to a few blocks a thread. And a memtable that is being written out counts until it is: at
//! most one beside the active one in each database, where writers then wait.

use rocksdb::{Cache, LruCacheOptions, WriteBufferManager};

/// Each shard of the cache must hold several of the 256 KiB pieces in which memtables are
/// charged to it, so a cache of a few MiB has few shards: 2^2.
const CACHE_SHARD_BITS: i32 = 2;

/// How much memory the databases of a process may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Everything: blocks, indexes, filters and memtables.
    pub cache_bytes: usize,
    /// The part of it that memtables may take before they are written out.
    pub write_buffer_bytes: usize,
}

impl Budget {
    /// One edge: a state database and an outbox. The whole process aims at 30 MiB, and what
    /// 110 pods need lies within a few MiB.
    pub const EDGE: Self = Self { cache_bytes: 8 << 20, write_buffer_bytes: 4 << 20 };

    /// The cloud's parts in one process: log, hub and controller. Its disk holds every node's
    /// objects, read mostly once per node and reconnect.
    pub const CLOUD: Self = Self { cache_bytes: 96 << 20, write_buffer_bytes: 32 << 20 };

    /// A hub or a controller in a process of its own, which is to stay within 64 MiB and what its
    /// edges need.
    pub const CLOUD_PART: Self = Self { cache_bytes: 24 << 20, write_buffer_bytes: 8 << 20 };

    /// What another edge in the same process adds: its two memtables must fit, or each write
    /// would flush a nearly empty one.
    pub const PER_NODE: Self = Self { cache_bytes: 1 << 20, write_buffer_bytes: 512 << 10 };

    /// This budget and that of `nodes` further edges in the same process.
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

/// What the databases of a process use of their budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// The budget.
    pub budget: Budget,
    /// Bytes in the cache, memtables included.
    pub cache_bytes: usize,
    /// Bytes in the cache that cannot be evicted just now.
    pub pinned_bytes: usize,
    /// Bytes of memtables.
    pub write_buffer_bytes: usize,
}

impl DatabaseMemory {
    /// Memory within `budget`.
    pub fn new(budget: Budget) -> Self {
        let mut options = LruCacheOptions::default();
        options.set_capacity(budget.cache_bytes);
        options.set_num_shard_bits(CACHE_SHARD_BITS);
        let cache = Cache::new_lru_cache_opts(&options);
        // A stall ends when memtables have been written out, but only a write makes its
        // database do that: idle ones that hold the room together would stall the rest for ever.
        let allow_stall = false;
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            budget.write_buffer_bytes,
            allow_stall,
            cache.clone(),
        );
        Self { budget, cache, write_buffers }
    }

    /// What is in use.
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
