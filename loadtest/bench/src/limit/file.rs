//! A file, and its syncs.

use std::fs::File;
use std::io::Write as _;
use std::time::Instant;

use headwater_loadtest::failure::{Attempt, Failure};
use headwater_store::WriteOp;

use crate::limit::{Taken, Written};
use crate::thread_time::ThreadTime;

/// Writes the bytes that an edge wrote to a file, and syncs it wherever the edge synced.
///
/// # Errors
/// When the disk does not take them.
pub(crate) fn write(written: &[Written]) -> Result<Taken, Failure> {
    let folder = tempfile::tempdir().tried("making a folder")?;
    let groups = groups(written);
    let mut file = File::create(folder.path().join("groups")).tried("making a file")?;
    let me = ThreadTime::current();
    let (began, processor) = (Instant::now(), me.taken());
    for group in groups {
        file.write_all(&group).tried("writing a file")?;
        file.sync_data().tried("syncing a file")?;
    }
    Ok(Taken { wall: began.elapsed(), processor: me.taken().saturating_sub(processor) })
}

/// What lies between two syncs, group by group.
fn groups(written: &[Written]) -> Vec<Vec<u8>> {
    let mut groups = vec![Vec::new()];
    for one in written {
        if let Some(group) = groups.last_mut() {
            for op in &one.batch.ops {
                if let WriteOp::Put(key, value) = op {
                    group.extend_from_slice(key);
                    group.extend_from_slice(value);
                }
            }
        }
        if one.synced {
            groups.push(Vec::new());
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_store::WriteBatch;

    #[test]
    fn what_lies_between_two_syncs_is_one_group() {
        let one = |key: &'static str, synced| {
            let ops = vec![WriteOp::Put(key.into(), "=".into()), WriteOp::Delete("x".into())];
            Written { batch: WriteBatch { ops }, synced }
        };
        let groups = groups(&[one("a", false), one("b", true), one("c", true)]);
        assert_eq!(groups, [b"a=b=".to_vec(), b"c=".to_vec()]);
    }
}
