//! The rows of a log file that a client wants, in the form in which it wants them. Pure.
//!
//! In the file a row has the columns of CRI runtimes: `time stream tag text`. A row with the tag `P` is
//! a part of a line, which the next row continues.

use jiff::Timestamp;

use crate::query::{LogOptions, LogSource};

/// The bytes of a row that wait for its end: runtimes write rows of 16 KiB. A longer row goes on in pieces, so that a file
/// without line ends costs no more memory.
const ROW_BYTES_MAX: usize = 64 << 10;

/// What a client gets in the place of rows that it may miss. It has no columns, as what a kubelet writes into a log.
const GAP: &str = "rows may be missing here: the log rotated faster than it was read\n";

/// Takes the bytes of a file, gives those for the client.
pub struct LineSelection {
    options: LogOptions,
    /// The beginning of a row whose end is not read yet.
    rest: Vec<u8>,
    /// The row whose beginning was given before its end is read.
    long_row: Option<RowForm>,
    /// The last row was given without its end, and none follows.
    is_torn: bool,
    /// The last row that was given continues in the next one.
    continues: bool,
    /// The bytes that the client still wants.
    left: u64,
}

/// What becomes of the text of a row.
#[derive(Clone, Copy)]
struct RowForm {
    is_wanted: bool,
    /// The next row continues the line.
    is_part: bool,
}

impl RowForm {
    fn of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        match self {
            Self { is_wanted: false, .. } => b"",
            Self { is_part: true, .. } => text.strip_suffix(b"\n").unwrap_or(text),
            Self { .. } => text,
        }
    }
}

impl LineSelection {
    /// The rows that `options` select.
    pub fn new(options: LogOptions) -> Self {
        let left = options.bytes_max.unwrap_or(u64::MAX);
        Self { options, rest: Vec::new(), long_row: None, is_torn: false, continues: false, left }
    }

    /// Whether the client has all the bytes that it wants.
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Drops the beginning of the last row, because the file was truncated.
    pub fn begin_anew(&mut self) {
        self.rest.clear();
        self.is_torn |= self.long_row.take().is_some_and(|row| row.is_wanted);
    }

    /// What the client gets where rows may be missing: a line of its own. The next bytes begin a row.
    pub fn gap(&mut self) -> Vec<u8> {
        self.begin_anew();
        let is_torn = std::mem::take(&mut self.is_torn);
        let end = if std::mem::take(&mut self.continues) || is_torn { "\n" } else { "" };
        self.bounded(format!("{end}{GAP}").into_bytes())
    }

    /// What the client gets of the next bytes of the file.
    pub fn of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_end = part.ends_with(b"\n");
            if let Some(row) = self.long_row {
                out.extend_from_slice(row.of(part));
                self.long_row = Some(row).filter(|_| !is_end);
                continue;
            }
            if is_end && self.rest.is_empty() {
                self.give(part, &mut out);
                continue;
            }
            self.rest.extend_from_slice(part);
            if is_end || self.rest.len() > ROW_BYTES_MAX {
                let row = std::mem::take(&mut self.rest);
                let form = self.give(&row, &mut out);
                self.long_row = Some(form).filter(|_| !is_end);
            }
        }
        self.bounded(out)
    }

    /// As much of these bytes as the client still wants.
    fn bounded(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        bytes.truncate(left);
        self.left -= bytes.len() as u64;
        bytes
    }

    /// Gives a row, or its beginning.
    fn give(&mut self, row: &[u8], out: &mut Vec<u8>) -> RowForm {
        let unwanted = RowForm { is_wanted: false, is_part: false };
        let mut columns = row.splitn(4, |byte| *byte == b' ');
        let (Some(time), Some(source), Some(tag), Some(text)) =
            (columns.next(), columns.next(), columns.next(), columns.next())
        else {
            // No runtime wrote it. A kubelet leaves it out, too.
            return unwanted;
        };
        let is_wanted = match self.options.source {
            LogSource::All => true,
            LogSource::Stdout => source == b"stdout",
            LogSource::Stderr => source == b"stderr",
        };
        if !is_wanted || self.options.since.is_some_and(|since| is_before(time, since)) {
            return unwanted;
        }
        if std::mem::take(&mut self.is_torn) {
            out.push(b'\n');
            self.continues = false;
        }
        // Tags of later runtimes may follow a colon.
        let is_part = tag.split(|byte| *byte == b':').next() == Some(b"P");
        if !std::mem::replace(&mut self.continues, is_part) && self.options.timestamps {
            out.extend_from_slice(time);
            out.push(b' ');
        }
        let form = RowForm { is_wanted: true, is_part };
        out.extend_from_slice(form.of(text));
        form
    }
}

/// Whether a row is too old. One without a valid time is given.
fn is_before(time: &[u8], since: Timestamp) -> bool {
    let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
    time.is_some_and(|time| time < since)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LOG: &[u8] =
        b"2026-01-01T00:00:01Z stderr P part \n2026-01-01T00:00:02Z stderr F whole\n\
                         nonsense\n2026-01-01T00:00:03Z stdout F \n";

    fn given(options: LogOptions, log: &[u8]) -> String {
        String::from_utf8(LineSelection::new(options).of(log)).expect("UTF-8")
    }

    #[test]
    fn the_options_select_rows_and_bytes() {
        let all = LogOptions::default;
        assert_eq!(given(all(), LOG), "part whole\n\n");
        let timestamps = LogOptions { timestamps: true, ..all() };
        assert_eq!(
            given(timestamps, LOG),
            "2026-01-01T00:00:01Z part whole\n2026-01-01T00:00:03Z \n"
        );
        let since = Some("2026-01-01T00:00:03Z".parse().expect("a time"));
        assert_eq!(given(LogOptions { since, ..all() }, LOG), "\n");
        assert_eq!(given(LogOptions { source: LogSource::Stdout, ..all() }, LOG), "\n");
        assert_eq!(given(LogOptions { source: LogSource::Stderr, ..all() }, LOG), "part whole\n");
        assert_eq!(given(LogOptions { bytes_max: Some(4), ..all() }, LOG), "part");
    }

    #[test]
    fn a_gap_is_a_line_of_its_own_and_the_row_after_it_is_whole() {
        let mut lines =
            LineSelection::new(LogOptions { timestamps: true, ..LogOptions::default() });
        let mut all =
            lines.of(b"2026-01-01T00:00:01Z stdout P part\n2026-01-01T00:00:01Z stdout F to");
        all.extend(lines.gap());
        all.extend(lines.of(b"2026-01-01T00:00:02Z stdout F next\n"));
        let all = String::from_utf8(all).expect("UTF-8");
        let expected = format!("2026-01-01T00:00:01Z part\n{GAP}2026-01-01T00:00:02Z next\n");
        assert_eq!(all, expected);
        let mut few =
            LineSelection::new(LogOptions { bytes_max: Some(4), ..LogOptions::default() });
        assert_eq!((few.gap().len(), few.is_full()), (4, true));
    }

    #[test]
    fn a_long_row_is_given_whole_and_costs_no_more_than_its_bound() {
        let mut lines = LineSelection::new(LogOptions::default());
        let mut all = lines.of(b"2026-01-01T00:00:01Z stdout F ");
        for _ in 0..100 {
            all.extend(lines.of(&[b'x'; 4096]));
            assert!(lines.rest.capacity() <= 2 * ROW_BYTES_MAX, "the rest is bounded");
        }
        all.extend(lines.of(b"y\n2026-01-01T00:00:02Z stdout F next\n"));
        let all = String::from_utf8(all).expect("UTF-8");
        assert!(all == format!("{}y\nnext\n", "x".repeat(409_600)), "{}", all.len());
    }

    #[test]
    fn a_long_row_that_is_part_of_a_line_goes_on_in_the_next_one_and_an_unwanted_one_is_left_out() {
        let long = "x".repeat(ROW_BYTES_MAX);
        let file = format!(
            "2026-01-01T00:00:01Z stdout P {long}\n2026-01-01T00:00:02Z stdout F end\n\
             2026-01-01T00:00:03Z stderr F {long}\n2026-01-01T00:00:04Z stdout F next\n"
        );
        let options = LogOptions { source: LogSource::Stdout, ..LogOptions::default() };
        let mut lines = LineSelection::new(options);
        let pieces = file.as_bytes().chunks(1000).map(|piece| lines.of(piece));
        assert!(pieces.collect::<Vec<_>>().concat() == format!("{long}end\nnext\n").as_bytes());
    }

    #[test]
    fn a_line_begins_after_a_long_row_whose_rest_was_truncated() {
        let mut lines = LineSelection::new(LogOptions::default());
        let long = "x".repeat(ROW_BYTES_MAX);
        let mut all = lines.of(format!("2026-01-01T00:00:01Z stdout F {long}").as_bytes());
        lines.begin_anew();
        all.extend(lines.of(b"2026-01-01T00:00:02Z stdout F next\n"));
        assert!(all == format!("{long}\nnext\n").as_bytes(), "{}", all.len());
    }

    proptest! {
        #[test]
        fn a_file_gives_the_same_however_it_is_read(
            rows in vec(vec(any::<u8>(), 0..60), 0..8),
            cuts in vec(any::<prop::sample::Index>(), 0..8),
            bytes_max in proptest::option::of(0_u64..200),
            timestamps in any::<bool>(),
        ) {
            let row = |text: &Vec<u8>| [b"2026-01-01T00:00:01Z stdout F ", &text[..], b"\n"].concat();
            let file = rows.iter().map(row).collect::<Vec<_>>().concat();
            let options = LogOptions { bytes_max, timestamps, ..LogOptions::default() };
            let whole = LineSelection::new(options.clone()).of(&file);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(file.len() + 1)).collect();
            cuts.extend([0, file.len()]);
            cuts.sort_unstable();
            let mut lines = LineSelection::new(options);
            let parts = cuts.windows(2).map(|cut| lines.of(&file[cut[0]..cut[1]]));
            prop_assert_eq!(parts.collect::<Vec<_>>().concat(), whole);
        }
    }
}
