//! The entries of a directory, live and durable.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::survival::{Draw, Loss};

/// What one call does to a directory: the entries it sets, or removes. All of it survives a cut,
/// or nothing: a rename inside one directory is atomic.
pub(crate) type Change = Vec<(OsString, Option<u64>)>;

/// A directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    live: BTreeMap<OsString, u64>,
    durable: BTreeMap<OsString, u64>,
    /// What `live` has and `durable` does not, oldest first.
    unsynced: Vec<Change>,
}

impl Directory {
    pub(crate) fn get(&self, name: &OsStr) -> Option<u64> {
        self.live.get(name).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&OsString, u64)> {
        self.live.iter().map(|(name, inode)| (name, *inode))
    }

    pub(crate) fn change(&mut self, change: Change) {
        apply(&mut self.live, &change);
        self.unsynced.push(change);
    }

    pub(crate) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            apply(&mut self.durable, &change);
        }
    }

    /// Every inode that is named by an entry that is seen, or may be after a cut.
    pub(crate) fn named(&self) -> impl Iterator<Item = u64> {
        let unsynced = self.unsynced.iter().flatten().filter_map(|(_, inode)| *inode);
        self.live.values().chain(self.durable.values()).copied().chain(unsynced)
    }

    /// The power goes.
    pub(crate) fn cut(&mut self, draw: &mut Draw) -> Loss {
        let unsynced = std::mem::take(&mut self.unsynced);
        let whole = draw.prefix(unsynced.len());
        for change in &unsynced[..whole] {
            apply(&mut self.durable, change);
        }
        self.live = self.durable.clone();
        Loss {
            touched: u64::from(!unsynced.is_empty()),
            entries: (unsynced.len() - whole) as u64,
            ..Loss::default()
        }
    }
}

fn apply(entries: &mut BTreeMap<OsString, u64>, change: &Change) {
    for (name, inode) in change {
        match inode {
            Some(inode) => entries.insert(name.clone(), *inode),
            None => entries.remove(name),
        };
    }
}
