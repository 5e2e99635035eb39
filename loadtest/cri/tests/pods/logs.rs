//! The log files of containers while they are rotated.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::bench::{Bench, uid, until};
use crate::life::{gone, start};

/// The lines of the writer, and the size of a log file: more than ten files.
const LINES: usize = 60_000;
const FILE_BYTES: u64 = 200 << 10;
const FILES_MAX: u32 = 100;
const FILES_MIN: usize = 4;

/// How often the sizes are looked at.
const CHECK: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_writer_loses_no_line_by_rotation() {
    let Some(containerd) = start() else { return };
    let mut bench = Bench::new(containerd.socket());
    bench.settings.log_bytes_max = FILE_BYTES;
    bench.settings.log_files_max = FILES_MAX;
    bench.settings.log_check = CHECK;
    let edged = bench.edged().await;
    let script = format!("i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); done");
    let mut pod = bench.pod("writer", &script);
    pod["spec"]["restartPolicy"] = "Never".into();
    bench.edge.apply(&pod);
    bench.status("writer", "its end", |status| status["phase"] == "Succeeded").await;
    let folder = format!("logs/shop_writer_{}/writer", uid("writer"));
    let folder = bench.edged_dir().join(folder);
    let read = || {
        let files = (1..FILES_MAX).rev().map(|number| folder.join(format!("0.log.{number}")));
        let files: Vec<PathBuf> =
            files.chain([folder.join("0.log")]).filter(|it| it.exists()).collect();
        let text: String =
            files.iter().map(|it| fs::read_to_string(it).unwrap_or_default()).collect();
        let text = joined(&text);
        let lines = text.lines();
        let numbers = lines.filter_map(|line| line.strip_prefix("line ")?.parse().ok());
        (numbers.collect::<Vec<usize>>(), files)
    };
    // The runtime writes the last lines when it has reported the end already.
    until(|| async { (read().0.len() >= LINES).then_some(()) }).await;
    let (numbers, files) = read();
    let first = numbers.iter().enumerate().find(|(right, number)| right != *number);
    assert_eq!((numbers.len(), first), (LINES, None), "{files:?}");
    assert!(files.len() >= FILES_MIN, "{files:?}");
    bench.delete(&pod).await;
    gone(&containerd, &["writer"]).await;
    edged.stop().await;
}

/// The text that a container wrote, of the rows `TIME STREAM TAG TEXT` of its files. A reopening may cut a line in
/// two: the end of a file then holds its beginning, with the tag `P`.
fn joined(rows: &str) -> String {
    let mut text = String::new();
    for row in rows.lines() {
        let mut parts = row.splitn(4, ' ').skip(2);
        let (tag, part) = (parts.next().expect("a tag"), parts.next().expect("a text"));
        text.push_str(part);
        if tag == "F" {
            text.push('\n');
        }
    }
    text
}
