//! The start of the last rows in log files, found from their end.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::open;

/// The bytes of one read, from the end of a file towards its beginning.
const STEP_BYTES: u64 = 64 << 10;

/// The files with the last `rows` rows, oldest first, each with the offset where they start.
pub(super) async fn last_rows(files: Vec<PathBuf>, rows: u64) -> io::Result<Vec<(PathBuf, u64)>> {
    let (mut left, mut starts) = (rows, Vec::new());
    for path in files.into_iter().rev() {
        let (from, found) = last_rows_of(&path, left).await?;
        starts.push((path, from));
        left -= found.min(left);
        if left == 0 {
            break;
        }
    }
    starts.reverse();
    Ok(starts)
}

/// The offset of the last `rows` rows of a file, and how many there are.
async fn last_rows_of(path: &Path, rows: u64) -> io::Result<(u64, u64)> {
    let Some((mut file, metadata)) = open(path).await? else { return Ok((0, 0)) };
    let end = metadata.len();
    if rows == 0 || end == 0 {
        return Ok((end, 0));
    }
    let (mut at, mut found) = (end, 0);
    while at > 0 {
        let from = at.saturating_sub(STEP_BYTES);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from)).await?;
        (&mut file).take(at - from).read_to_end(&mut bytes).await?;
        for (index, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let next = from + index as u64 + 1;
            // No row begins after the end of the last one.
            if next != end {
                found += 1;
                if found == rows {
                    return Ok((next, rows));
                }
            }
        }
        at = from;
    }
    Ok((0, found + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_rows_may_lie_in_several_files_and_be_longer_than_a_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        let long = "x".repeat(100_000);
        std::fs::write(&old, format!("1\n{long}\n3\n")).expect("written");
        std::fs::write(&new, "4\n5\n").expect("written");
        let files = || vec![old.clone(), new.clone()];
        for (rows, expected) in [
            (0, vec![(new.clone(), 4)]),
            (1, vec![(new.clone(), 2)]),
            (2, vec![(new.clone(), 0)]),
            (3, vec![(old.clone(), 100_003), (new.clone(), 0)]),
            (4, vec![(old.clone(), 2), (new.clone(), 0)]),
            (99, vec![(old.clone(), 0), (new.clone(), 0)]),
        ] {
            assert_eq!(last_rows(files(), rows).await.expect("readable"), expected, "{rows}");
        }
    }
}
