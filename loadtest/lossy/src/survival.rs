//! Which unsynced changes survive a cut: drawn from a seed, never by chance.

use std::ops::AddAssign;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A disk writes a sector whole or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;

/// A page cache writes pages, in any order.
pub(crate) const PAGE_BYTES: usize = 4096;

/// What of the unsynced changes is there after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// Nothing: the power failed before anything more reached the disk.
    Nothing,
    /// Of each file and each directory as many of the oldest changes as the seed says, the last
    /// write of a file torn at a sector: what a file system with ordered data leaves.
    Prefix {
        /// Draws how many.
        seed: u64,
    },
    /// Of each file any of its pages and sectors, in no order, with holes of zeros between them;
    /// of each directory as many of the oldest changes as the seed says.
    Scattered {
        /// Draws which.
        seed: u64,
    },
}

/// What a power cut took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Files and directories that were not as durable as they looked.
    pub touched: u64,
    /// Bytes of writes that are gone.
    pub bytes: u64,
    /// Changes of directories that are gone: files made, renamed or removed.
    pub entries: u64,
    /// Writes that survived in part.
    pub torn: u64,
}

impl AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.touched += other.touched;
        self.bytes += other.bytes;
        self.entries += other.entries;
        self.torn += other.torn;
    }
}

/// The draws of one cut.
pub(crate) struct Draw {
    survives: Survives,
    rng: StdRng,
}

/// What becomes of one write.
pub(crate) enum Fate {
    /// These parts of it survive: from, to.
    Parts(Vec<(usize, usize)>),
    Lost,
}

impl Draw {
    pub(crate) fn new(survives: Survives) -> Self {
        let seed = match survives {
            Survives::Nothing => 0,
            Survives::Prefix { seed } | Survives::Scattered { seed } => seed,
        };
        Self { survives, rng: StdRng::seed_from_u64(seed) }
    }

    /// Whether a file's changes survive in order, as many as are drawn of it.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self.survives, Survives::Scattered { .. })
    }

    /// How many of the `count` oldest changes survive whole.
    pub(crate) fn prefix(&mut self, count: usize) -> usize {
        match self.survives {
            Survives::Nothing => 0,
            _ => self.rng.random_range(0..=count),
        }
    }

    /// What is left of the write behind such a prefix, at the file's offset `at`.
    pub(crate) fn tear(&mut self, at: u64, length: usize) -> Fate {
        if self.survives == Survives::Nothing {
            return Fate::Lost;
        }
        // Sectors lie where the file has them, not where the write begins.
        let into = usize::try_from(at % SECTOR_BYTES as u64).unwrap_or(0);
        let sectors = self.rng.random_range(0..=(into + length) / SECTOR_BYTES);
        match (sectors * SECTOR_BYTES).checked_sub(into) {
            None | Some(0) => Fate::Lost,
            Some(kept) => Fate::Parts(vec![(0, kept.min(length))]),
        }
    }

    /// How likely a page of this file survives, in a scattered cut.
    pub(crate) fn odds(&mut self) -> f64 {
        [0.1, 0.5, 0.9][self.rng.random_range(0..3)]
    }

    /// Whether something survives that does so with these odds.
    pub(crate) fn coin(&mut self, odds: f64) -> bool {
        self.rng.random_bool(odds)
    }

    /// Which pages of a write at the file's offset `at` survive, the last of them torn.
    pub(crate) fn scatter(&mut self, at: u64, length: usize, odds: f64) -> Fate {
        let mut parts = Vec::new();
        let mut from = 0;
        while from < length {
            let into = usize::try_from((at + from as u64) % PAGE_BYTES as u64).unwrap_or(0);
            let to = (from + PAGE_BYTES - into).min(length);
            if self.coin(odds) {
                parts.push((from, to));
            }
            from = to;
        }
        if parts.is_empty() { Fate::Lost } else { Fate::Parts(parts) }
    }
}
