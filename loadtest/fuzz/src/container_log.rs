//! Log files of containers, for both readers: the kubelet's server and the operator API.

use headwater_kubelet::container_logs::lines::LineSelection;
use headwater_kubelet::query::{LogOptions, LogSource};
use headwater_operator::logs::line::{LineFormat, LineFormatter, ROW_BYTES_MAX};
use jiff::Timestamp;

/// What a client asks for that wants no older rows.
const SINCE: &str = "2026-01-01T00:00:02Z";

/// The columns before the tag of a row that a runtime writes.
const COLUMNS: &[u8] = b"2026-01-01T00:00:03Z stdout ";

/// The most bytes that a container writes here: a row of a few bytes has columns of thirty.
const OUTPUT_BYTES_MAX: usize = 1024;

/// A log file of any bytes, and one of a container that writes them. The first byte chooses what the client wants, the
/// second one the size of a read and of a row's text.
pub fn kubelet(bytes: &[u8]) {
    let [wanted, size, file @ ..] = bytes else { return };
    let size = usize::from(*size) + 1;
    let options = LogOptions {
        timestamps: wanted & 1 != 0,
        source: match wanted & 6 {
            2 => LogSource::Stdout,
            4 => LogSource::Stderr,
            _ => LogSource::All,
        },
        since: (wanted & 8 != 0).then(since),
        bytes_max: (wanted & 16 != 0).then(|| u64::from(*wanted) + 1),
        ..LogOptions::default()
    };
    let read = |options: &LogOptions, file: &[u8], size: usize| {
        let mut lines = LineSelection::new(options.clone());
        file.chunks(size).flat_map(|part| lines.of(part)).collect::<Vec<u8>>()
    };
    let whole = read(&options, file, file.len().max(1));
    assert_eq!(read(&options, file, size), whole, "the size of a read changes a log");
    assert!(whole.len() <= file.len(), "a log is longer than its file");
    assert!(options.bytes_max.is_none_or(|max| whole.len() as u64 <= max));
    let (output, written) = container(file, size);
    assert_eq!(read(&LogOptions::default(), &written, size), output);
}

/// The same for the operator API.
pub fn operator(bytes: &[u8]) {
    let [wanted, size, file @ ..] = bytes else { return };
    let size = usize::from(*size) + 1;
    let format = LineFormat {
        since_ms: if wanted & 8 != 0 { since().as_millisecond() } else { 0 },
        timestamps: wanted & 1 != 0,
        prefix: (wanted & 2 != 0).then(|| "[pod/p/c] ".to_owned()),
    };
    let read = |format: &LineFormat, file: &[u8], size: usize| {
        let mut lines = LineFormatter::new(format.clone());
        file.chunks(size).flat_map(|part| lines.of(part)).collect::<Vec<u8>>()
    };
    let whole = read(&format, file, file.len().max(1));
    assert_eq!(read(&format, file, size), whole, "the size of a read changes a log");
    // A row that is cut ends with a note.
    if format.prefix.is_none() && file.len() <= ROW_BYTES_MAX {
        assert!(whole.len() <= file.len(), "a log is longer than its file");
    }
    let (output, written) = container(file, size);
    assert_eq!(read(&LineFormat::default(), &written, size), output);
}

fn since() -> Timestamp {
    SINCE.parse().expect("a time")
}

/// The lines of a container that writes these bytes, and the file that its runtime writes of them, in rows with so many bytes
/// of text. A runtime ends the last line.
fn container(output: &[u8], text_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let output = &output[..output.len().min(OUTPUT_BYTES_MAX)];
    let (mut lines, mut file) = (Vec::new(), Vec::new());
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        let mut rest = line.strip_suffix(b"\n").unwrap_or(line);
        lines.extend_from_slice(rest);
        lines.push(b'\n');
        while rest.len() > text_bytes {
            let (part, next) = rest.split_at(text_bytes);
            file.extend([COLUMNS, b"P ", part, b"\n"].concat());
            rest = next;
        }
        file.extend([COLUMNS, b"F ", rest, b"\n"].concat());
    }
    (lines, file)
}
