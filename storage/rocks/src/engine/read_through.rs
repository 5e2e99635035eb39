//! The read of a whole database, which finds its damage.

use std::collections::BTreeSet;

use headwater_owner::try_for_each_parallel;
use headwater_store::{EngineError, Range};

use super::{RocksEngine, checked, within};
use crate::error;

/// Parts for which a thread more is worth its start: a part is about as large as a table file.
const PARTS_PER_THREAD: usize = 2;

impl RocksEngine {
    /// Reads every row. RocksDB reports a damaged byte when it reads it, so after this call a read finds damage only in
    /// what was written or was damaged since. A large database is read on every processor. The cache stays as it is. It
    /// blocks until all is read.
    ///
    /// # Errors
    /// - [`EngineError::Corrupt`]: a row is damaged.
    /// - [`EngineError::Read`]: the disk could not be read.
    pub fn read_through(&self) -> Result<(), EngineError> {
        try_for_each_parallel(&self.parts()?, PARTS_PER_THREAD, |part| self.read_part(part))
    }

    /// All rows, in ranges that end where a table file begins.
    fn parts(&self) -> Result<Vec<Range>, EngineError> {
        let files = self.db.live_files().map_err(|error| error::of_read(&error))?;
        let firsts: BTreeSet<Vec<u8>> =
            files.into_iter().filter_map(|file| file.start_key).collect();
        Ok(ranges_between(firsts))
    }

    fn read_part(&self, part: &Range) -> Result<(), EngineError> {
        let mut options = within(part);
        options.fill_cache(false);
        let mut rows = self.db.raw_iterator_opt(options);
        rows.seek_to_first();
        while rows.valid() {
            rows.next();
        }
        checked(&rows)
    }
}

/// The ranges that `keys` divide all rows into.
fn ranges_between(keys: BTreeSet<Vec<u8>>) -> Vec<Range> {
    let mut ranges = vec![Range::all()];
    for key in keys.into_iter().filter(|key| !key.is_empty()) {
        if let Some(last) = ranges.last_mut() {
            last.to = Some(key.clone().into());
        }
        ranges.push(Range { from: key.into(), to: None });
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_one_range() {
        let firsts = ["b", "d", "", "d"].map(|key| key.as_bytes().to_vec());
        let ranges = ranges_between(firsts.into());
        assert_eq!(ranges.len(), 3);
        for key in ["", "a", "b", "bb", "d", "e"] {
            let has = |range: &&Range| {
                *range.from <= *key.as_bytes()
                    && range.to.as_ref().is_none_or(|to| *key.as_bytes() < **to)
            };
            assert_eq!(ranges.iter().filter(has).count(), 1, "{key}");
        }
        assert_eq!(ranges_between(BTreeSet::new()).len(), 1);
    }
}
