//! Log files with any content, and other things at the path of a log file.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::line::ROW_BYTES_MAX;
use super::*;

/// A deadline far above the time that a test needs.
const WITHIN: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

/// The current file, and the rotated one before it.
fn paths_of(path: &Path) -> Paths {
    let both = [path.with_extension("log.1"), path.to_owned()];
    Box::new(move || Ok(both.iter().filter(|path| path.exists()).cloned().collect()))
}

/// Returns the printed form of one whole file.
fn read(path: &Path, tail: Option<u64>) -> std::io::Result<Vec<u8>> {
    let (sender, mut receiver) = mpsc::channel(CHUNKS_MAX);
    let sending = async move {
        let mut lines = LineFormatter::new(LineFormat::default());
        let path = path.to_owned();
        let paths: Paths = Box::new(move || Ok(vec![path.clone()]));
        send(tail, false, &paths, &mut lines, &sender).await
    };
    let collecting = async {
        let mut shown = Vec::new();
        while let Some(chunk) = receiver.recv().await {
            shown.extend(chunk.expect("only the last chunk is an error").data);
        }
        shown
    };
    let both =
        async { tokio::time::timeout(WITHIN, async { tokio::join!(sending, collecting) }).await };
    let (sent, shown) = runtime().block_on(both).expect("the reader does not wait");
    sent.map(|()| shown)
}

#[test]
fn what_is_no_plain_file_is_named_and_not_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let lies = |name: &str| dir.path().join(name);
    nix::unistd::mkfifo(&lies("pipe"), Mode::S_IRWXU).expect("a pipe");
    fs::create_dir(lies("folder")).expect("a folder");
    fs::write(lies("outside"), "secret\n").expect("written");
    std::os::unix::fs::symlink(lies("outside"), lies("link")).expect("a link");
    std::os::unix::fs::symlink(lies("loop"), lies("loop")).expect("a link");
    std::os::unix::fs::symlink("/dev/zero", lies("device")).expect("a link");
    let _socket = std::os::unix::net::UnixListener::bind(lies("socket")).expect("a socket");
    for name in ["pipe", "folder", "link", "loop", "device", "socket"] {
        for tail in [None, Some(1)] {
            let error = read(&lies(name), tail).expect_err(name).to_string();
            assert!(error.contains(&lies(name).display().to_string()), "{name}: {error}");
        }
    }
    assert_eq!(
        read(Path::new("/dev/zero"), None).expect_err("endless").kind(),
        std::io::ErrorKind::Other
    );
    assert_eq!(read(&lies("absent"), None).expect("rotated away"), b"");
    assert_eq!(read(&lies("absent"), Some(3)).expect("rotated away"), b"");
}

#[test]
fn the_log_of_an_earlier_run_is_not_followed_into_the_next_one() {
    for (follow, previous, expected) in
        [(true, false, true), (true, true, false), (false, true, false)]
    {
        let request = LogsRequest { follow, previous, ..LogsRequest::default() };
        assert_eq!(is_followed(&request), expected, "{request:?}");
    }
}

#[test]
fn a_file_without_line_ends_costs_no_more_than_a_row() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let file = fs::File::create(&path).expect("made");
    file.set_len(8 << 20).expect("eight MiB of zeros");
    for tail in [None, Some(7)] {
        let shown = read(&path, tail).expect("readable");
        assert!(shown.starts_with(&[0; ROW_BYTES_MAX]));
        assert!(shown.len() < ROW_BYTES_MAX + 100, "{} bytes are shown", shown.len());
    }
}

#[test]
fn a_followed_file_may_be_emptied_and_rotated_and_no_line_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let row = |text: &str| format!("2026-01-01T00:00:00Z stdout F {text}\n");
    fs::write(&path, row("first, and long").repeat(3)).expect("written");
    let runtime = runtime();
    let (sender, mut receiver) = mpsc::channel(CHUNKS_MAX);
    let paths = paths_of(&path);
    let following = runtime.spawn(async move {
        let mut lines = LineFormatter::new(LineFormat::default());
        send(None, true, &paths, &mut lines, &sender).await
    });
    let mut shown = String::new();
    let mut until = |end: &str| {
        while !shown.ends_with(end) {
            let next = async { tokio::time::timeout(WITHIN, receiver.recv()).await };
            let chunk =
                runtime.block_on(next).unwrap_or_else(|_| panic!("{end:?} after {shown:?}"));
            let chunk = chunk.expect("the stream continues").expect("readable");
            shown.push_str(std::str::from_utf8(&chunk.data).expect("UTF-8"));
        }
        shown.clone()
    };
    until("first, and long\n");
    // The last line is torn, then the file is truncated.
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(b"2026-01-01T00:00:00Z stdout F to"))
        .expect("written");
    fs::write(&path, row("second")).expect("written");
    until("second\n");
    let mut old = fs::OpenOptions::new().append(true).open(&path).expect("there");
    old.write_all(row("third").as_bytes()).expect("written");
    fs::rename(&path, path.with_extension("log.1")).expect("rotated");
    fs::write(&path, row("fourth")).expect("written");
    let shown = until("fourth\n");
    assert!(shown.ends_with("second\nthird\nfourth\n"), "{shown}");
    // A runtime goes on in the renamed file until it has opened the next one.
    let mut old = fs::OpenOptions::new().append(true).open(&path).expect("there");
    fs::rename(&path, path.with_extension("log.1")).expect("rotated");
    for text in ["fifth", "sixth"] {
        old.write_all(row(text).as_bytes()).expect("written");
        until(&format!("{text}\n"));
    }
    fs::write(&path, row("eighth")).expect("written");
    old.write_all(row("seventh").as_bytes()).expect("written");
    let shown = until("eighth\n");
    assert!(shown.ends_with("fourth\nfifth\nsixth\nseventh\neighth\n"), "{shown}");
    drop(receiver);
    let end = async { tokio::time::timeout(WITHIN, following).await };
    runtime
        .block_on(end)
        .expect("the task ends without a reader")
        .expect("no panic")
        .expect("that is no error");
}

#[test]
fn a_note_is_where_a_log_rotated_more_often_between_two_looks_than_it_has_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    // Oldest first.
    let rotated = (1..5).rev().map(|number| path.with_extension(format!("log.{number}")));
    let names: Vec<PathBuf> = rotated.chain([path.clone()]).collect();
    let row = |number: u32| format!("2026-01-01T00:00:00Z stdout F row-{number}\n");
    fs::write(&path, row(0)).expect("written");
    let is_due = Arc::new(AtomicBool::new(false));
    let paths: Paths = {
        let is_due = is_due.clone();
        // The rotations are between two looks of the reader.
        Box::new(move || {
            let count = if is_due.swap(false, Ordering::SeqCst) { 9 } else { 0 };
            for number in 1..=count {
                for pair in names.windows(2) {
                    let _ = fs::rename(&pair[1], &pair[0]);
                }
                fs::write(&path, row(number)).expect("written");
            }
            Ok(names.iter().filter(|path| path.exists()).cloned().collect())
        })
    };
    let runtime = runtime();
    let (sender, mut receiver) = mpsc::channel(CHUNKS_MAX);
    let following = runtime.spawn(async move {
        let mut lines = LineFormatter::new(LineFormat::default());
        send(None, true, &paths, &mut lines, &sender).await
    });
    let mut next = || {
        let chunk = async { tokio::time::timeout(WITHIN, receiver.recv()).await };
        let chunk = runtime.block_on(chunk).expect("a chunk").expect("the stream continues");
        let chunk = chunk.expect("readable");
        (String::from_utf8(chunk.data.to_vec()).expect("UTF-8"), chunk.note)
    };
    assert_eq!(next(), ("row-0\n".to_owned(), String::new()));
    is_due.store(true, Ordering::SeqCst);
    assert_eq!(next(), (String::new(), GAP.to_owned()), "four rows are gone");
    for number in 5..=9 {
        assert_eq!(next(), (format!("row-{number}\n"), String::new()));
    }
    drop(receiver);
    let end = async { tokio::time::timeout(WITHIN, following).await };
    runtime.block_on(end).expect("it ends").expect("no panic").expect("that is no error");
}

/// Rows of pod workers, invalid rows, and random bytes.
fn row() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || vec(prop_oneof![any::<u8>(), Just(0), Just(b' '), Just(0xff)], 0..40);
    let tag = prop_oneof![Just("F"), Just("P"), Just(""), Just("x")];
    let time = prop_oneof![
        Just("2026-01-01T00:00:01.000000001Z"),
        Just("+9999999-01-01T00:00:00Z"),
        Just(""),
    ];
    let whole = (time, tag, bytes()).prop_map(|(time, tag, text)| {
        [format!("{time} stdout {tag} ").as_bytes(), &text, b"\n"].concat()
    });
    prop_oneof![
        4 => whole,
        1 => bytes(),
        1 => (1_usize..6).prop_map(|n| vec![b'x'; n * ROW_BYTES_MAX / 3]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_file_is_shown_the_same_however_it_is_read(
        rows in vec(row(), 0..12),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
        since_ms in any::<i64>(),
        timestamps in any::<bool>(),
    ) {
        let form = LineFormat { since_ms, timestamps, prefix: Some("[p] ".to_owned()) };
        let file = rows.concat();
        let whole = LineFormatter::new(form.clone()).of(&file);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(file.len() + 1)).collect();
        cuts.extend([0, file.len()]);
        cuts.sort_unstable();
        let mut lines = LineFormatter::new(form);
        let parts = cuts.windows(2).map(|cut| lines.of(&file[cut[0]..cut[1]]));
        prop_assert_eq!(parts.collect::<Vec<_>>().concat(), whole);
    }

    #[test]
    fn what_a_container_wrote_is_what_is_shown(texts in vec("[^\n]{0,30}", 0..20)) {
        let row = |text: &String| format!("2026-01-01T00:00:01Z stderr F {text}\n");
        let file: String = texts.iter().map(row).collect();
        let expected: String = texts.iter().map(|text| format!("{text}\n")).collect();
        let shown = LineFormatter::default().of(file.as_bytes());
        prop_assert_eq!(String::from_utf8_lossy(&shown), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_last_rows_of_any_file_are_the_end_of_all_of_them(
        rows in vec(prop_oneof!["[^\n ]{0,30}\n", Just("x".repeat(70_000) + "\n")], 0..8),
        tail in prop_oneof![0_u64..10, Just(u64::MAX)],
        torn in "[^\n]{0,5}",
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        fs::write(&path, rows.concat() + &torn).expect("written");
        let all = read(&path, None).expect("readable");
        let last = read(&path, Some(tail)).expect("readable");
        prop_assert!(all.ends_with(&last));
        let lines = last.iter().filter(|byte| **byte == b'\n').count();
        let wanted = usize::try_from(tail).unwrap_or(usize::MAX).min(rows.len());
        // An unfinished line is one of the last lines, and is not printed.
        let hidden = usize::from(!torn.is_empty() && tail <= rows.len() as u64 && tail > 0);
        prop_assert_eq!(lines, wanted - hidden);
    }
}
