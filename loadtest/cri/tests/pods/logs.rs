//! The log files of containers while they are rotated.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::bench::{Bench, uid, until};
use crate::life::{gone, start};

/// The writer writes its lines in parts, as fast as it can. A part is more than a log file has, so each one brings
/// another file, during the part or after it.
const PARTS: usize = 5;
const PART_LINES: usize = 12_000;
const LINES: usize = PARTS * PART_LINES;
const FILE_BYTES: u64 = 200 << 10;
const FILES_MAX: u32 = 100;

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
    let parts: Vec<String> = (1..=PARTS).map(|part| part.to_string()).collect();
    let parts = parts.join(" ");
    let script = format!(
        "i=0; for part in {parts}; do \
           while [ $i -lt $((part * {PART_LINES})) ]; do echo line $i; i=$((i+1)); done; \
           while [ ! -e /notes/go-$part ]; do sleep 0.05; done; \
         done"
    );
    let mut pod = bench.pod("writer", &script);
    pod["spec"]["restartPolicy"] = "Never".into();
    bench.edge.apply(&pod);
    let folder = format!("logs/shop_writer_{}/writer", uid("writer"));
    let folder = bench.edged_dir().join(folder);
    let read = || {
        let files = (1..FILES_MAX).rev().map(|number| folder.join(format!("0.log.{number}")));
        let files: Vec<PathBuf> =
            files.chain([folder.join("0.log")]).filter(|it| it.exists()).collect();
        let text: String =
            files.iter().map(|it| whole_rows(fs::read_to_string(it).unwrap_or_default())).collect();
        let text = joined(&text);
        let lines = text.lines();
        let numbers = lines.filter_map(|line| line.strip_prefix("line ")?.parse().ok());
        (numbers.collect::<Vec<usize>>(), files)
    };
    for part in 1..=PARTS {
        // With all of its lines: containerd drops what is still in the pipe two seconds after the writer's end, and the
        // machine may be busy for longer.
        let rotated = || async {
            let (numbers, files) = read();
            (files.len() > part && numbers.len() >= part * PART_LINES).then_some(())
        };
        assert!(until(rotated).await.is_some(), "part {part}: {:?}", read().1);
        fs::write(bench.notes().join(format!("go-{part}")), "").expect("written");
    }
    bench.status("writer", "its end", |status| status["phase"] == "Succeeded").await;
    // The runtime writes the last lines when it has reported the end already.
    until(|| async { (read().0.len() >= LINES).then_some(()) }).await;
    let (numbers, files) = read();
    let first = numbers.iter().enumerate().find(|(right, number)| right != *number);
    assert_eq!((numbers.len(), first), (LINES, None), "{files:?}");
    bench.delete(&pod).await;
    gone(&containerd, &["writer"]).await;
    edged.stop().await;
}

/// The rows of a file but for the last one, of which the runtime is about to write the rest.
fn whole_rows(mut text: String) -> String {
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    text
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
