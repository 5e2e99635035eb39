//! The start of the last lines in log files.

use std::io::SeekFrom;

use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::LogFile;

/// The bytes of one read, from the end of a file towards its beginning.
const STEP_BYTES: usize = 64 << 10;

/// Returns the files with the last `rows` rows, oldest first, each with its start offset. Reads from the ends of the
/// files alone.
///
/// # Errors
/// The errors of the file system.
pub(super) async fn last_rows(
    files: Vec<LogFile>,
    rows: u64,
) -> std::io::Result<Vec<(LogFile, u64)>> {
    let mut left = rows;
    let mut found = Vec::new();
    for mut file in files.into_iter().rev() {
        let (from, rows) = last_rows_of(&mut file, left).await?;
        found.push((file, from));
        left -= rows.min(left);
        if left == 0 {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

/// Returns the offset of the last `rows` rows of a file, and their number.
async fn last_rows_of(log: &mut LogFile, rows: u64) -> std::io::Result<(u64, u64)> {
    let (file, end) = (&mut log.file, log.metadata.len());
    if rows == 0 || end == 0 {
        return Ok((end, 0));
    }
    let (mut at, mut found) = (end, 0);
    while at > 0 {
        let from = at.saturating_sub(STEP_BYTES as u64);
        let mut bytes = Vec::with_capacity(STEP_BYTES);
        file.seek(SeekFrom::Start(from)).await?;
        (&mut *file).take(at - from).read_to_end(&mut bytes).await?;
        for (index, byte) in bytes.iter().enumerate().rev() {
            let next = from + index as u64 + 1;
            // No row begins after the end of the last one.
            if *byte == b'\n' && next != end {
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
    use std::path::PathBuf;

    use super::super::open_all;
    use super::*;

    /// The starts of the last rows, each in the path at which its file is.
    async fn starts_in(paths: &[PathBuf], rows: u64) -> Vec<(PathBuf, u64)> {
        let files = open_all(|| Ok(paths.to_vec())).await.expect("opened");
        let found = last_rows(files, rows).await.expect("readable");
        let path = |file: &LogFile| paths.iter().find(|path| file.is_at(path) == Some(true));
        found.into_iter().map(|(file, from)| (path(&file).expect("one").clone(), from)).collect()
    }

    /// Checks where the last rows of two files start, the older one first. Each case has the number of rows, and a start
    /// in a file by its number.
    async fn check(texts: [&str; 2], cases: &[(u64, &[(usize, u64)])]) {
        let dir = tempfile::tempdir().expect("a directory");
        let files = ["old", "new"].map(|name| dir.path().join(name));
        for (file, text) in files.iter().zip(texts) {
            std::fs::write(file, text).expect("written");
        }
        for (rows, starts) in cases {
            let expected: Vec<_> =
                starts.iter().map(|(file, start)| (files[*file].clone(), *start)).collect();
            assert_eq!(starts_in(&files, *rows).await, expected, "{rows}");
        }
    }

    #[tokio::test]
    async fn the_last_rows_may_lie_in_several_files() {
        let both: &[_] = &[(0, 4), (1, 0)];
        let all: &[_] = &[(0, 0), (1, 0)];
        let cases = [(0, &[(1, 4)][..]), (1, &[(1, 2)]), (2, &[(1, 0)]), (3, both), (99, all)];
        check(["1\n2\n3\n", "4\n5\n"], &cases).await;
    }

    #[tokio::test]
    async fn the_last_rows_may_lie_in_several_files_and_be_longer_than_a_read() {
        let long = "x".repeat(100_000);
        let old = format!("1\n{long}\n3\n");
        let cases = [
            (0, &[(1, 4)][..]),
            (1, &[(1, 2)]),
            (2, &[(1, 0)]),
            (3, &[(0, 100_003), (1, 0)]),
            (4, &[(0, 2), (1, 0)]),
            (99, &[(0, 0), (1, 0)]),
        ];
        check([&old, "4\n5\n"], &cases).await;
    }

    #[tokio::test]
    async fn a_row_may_be_longer_than_what_is_read_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let long = "x".repeat(STEP_BYTES * 2);
        std::fs::write(&path, format!("first\n{long}\nlast\n")).expect("written");
        assert_eq!(starts_in(std::slice::from_ref(&path), 2).await, [(path, 6)]);
    }

    #[tokio::test]
    async fn the_last_rows_of_a_file_of_a_tebibyte_are_found_from_its_end() {
        use std::io::{Seek as _, Write as _};

        const END: u64 = 1 << 40;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        // A hole: to read it would take minutes.
        let mut file = std::fs::File::create(&path).expect("made");
        file.seek(SeekFrom::Start(END)).expect("a place");
        file.write_all(b"\n1\n2\n3\n").expect("written");
        let paths = [path.clone()];
        let found = tokio::time::timeout(std::time::Duration::from_secs(20), starts_in(&paths, 2));
        assert_eq!(found.await.expect("the beginning is not read"), [(path, END + 3)]);
    }
}
