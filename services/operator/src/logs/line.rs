//! The printed form of the lines of a log file. In the file each has the columns of CRI runtimes:
//! `time stream tag text`.

use jiff::Timestamp;

/// The longest row that is printed whole, in bytes: pod workers write rows of a quarter of that. A
/// longer row is cut, so that a file without line ends costs no more memory.
pub const ROW_BYTES_MAX: usize = 64 << 10;

/// The end of a row that was cut.
const CUT: &[u8] = b" [cut: the row is longer than 64 KiB]\n";

/// The form of printed lines.
#[derive(Clone, Debug, Default)]
pub struct LineFormat {
    /// Only lines written since, milliseconds since the Unix epoch; 0: all.
    pub since_ms: i64,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// The prefix of each line.
    pub prefix: Option<String>,
}

/// Removes the columns of the file from each line.
#[derive(Default)]
pub struct LineFormatter {
    form: LineFormat,
    /// The beginning of a line whose end is not read yet.
    rest: Vec<u8>,
    /// Whether the next bytes belong to a line that was cut.
    is_cut: bool,
    /// Whether the last printed line continues in the next row.
    continues: bool,
}

impl LineFormatter {
    /// Lines in this form.
    pub fn new(form: LineFormat) -> Self {
        Self { form, ..Self::default() }
    }

    /// Drops the beginning of the last line, because the file was truncated.
    pub fn begin_anew(&mut self) {
        self.rest.clear();
        self.is_cut = false;
    }

    /// Ends a line whose rest may be missing. The next bytes begin a row.
    pub fn gap(&mut self) -> Vec<u8> {
        self.begin_anew();
        if std::mem::take(&mut self.continues) { vec![b'\n'] } else { Vec::new() }
    }

    /// Returns the printed form of the next bytes of the file.
    pub fn of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_end = part.ends_with(b"\n");
            if !self.is_cut {
                self.rest.extend_from_slice(part);
                self.is_cut = self.rest.len() > ROW_BYTES_MAX;
                if self.is_cut || is_end {
                    self.rest.truncate(ROW_BYTES_MAX);
                    let (row, shown) = (std::mem::take(&mut self.rest), out.len());
                    self.show(&row, &mut out);
                    if self.is_cut && out.len() > shown {
                        out.extend_from_slice(CUT);
                        self.continues = false;
                    }
                }
            }
            self.is_cut &= !is_end;
        }
        out
    }

    fn show(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let mut columns = line.splitn(4, |byte| *byte == b' ');
        let (time, tag, text) = (columns.next(), columns.nth(1), columns.next());
        let (Some(time), Some(tag), Some(text)) = (time, tag, text) else {
            out.extend(line);
            return;
        };
        if self.form.since_ms > 0 && is_before(time, self.form.since_ms) {
            return;
        }
        if !std::mem::replace(&mut self.continues, tag == b"P") {
            out.extend(self.form.prefix.iter().flat_map(|prefix| prefix.bytes()));
            if self.form.timestamps {
                out.extend(time);
                out.push(b' ');
            }
        }
        out.extend(if self.continues { text.strip_suffix(b"\n").unwrap_or(text) } else { text });
    }
}

/// Whether a line is new enough. A line without a valid time is printed.
fn is_before(time: &[u8], ms: i64) -> bool {
    let time = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
    time.is_some_and(|time| time.as_millisecond() < ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] =
        b"2026-01-01T00:00:01Z stderr P part \n2026-01-01T00:00:02Z stderr F whole\n\
                         2026-01-01T00:00:03Z stdout F \n";

    fn shown(form: LineFormat, log: &[u8]) -> String {
        String::from_utf8(LineFormatter::new(form).of(log)).expect("UTF-8")
    }

    #[test]
    fn only_what_the_container_wrote_is_shown() {
        let mut lines = LineFormatter::default();
        let mut shown = lines.of(b"2026-01-01T00:00:00.1Z stdout F hello world\n2026-01-01T");
        shown.extend(lines.of(b"00:00:01Z stderr P part \n2026-01-01T00:00:02Z stderr F whole\n"));
        shown.extend(lines.of(b"2026-01-01T00:00:03Z stdout F \n"));
        assert_eq!(String::from_utf8_lossy(&shown), "hello world\npart whole\n\n");
    }

    #[test]
    fn a_line_in_parts_begins_once() {
        let form = LineFormat { timestamps: true, prefix: Some("[p] ".to_owned()), since_ms: 0 };
        assert_eq!(
            shown(form, LOG),
            "[p] 2026-01-01T00:00:01Z part whole\n[p] 2026-01-01T00:00:03Z \n"
        );
    }

    #[test]
    fn a_line_that_does_not_end_is_cut_and_what_follows_is_shown() {
        let mut lines = LineFormatter::default();
        let mut shown = lines.of(b"2026-01-01T00:00:01Z stdout F ");
        for _ in 0..100 {
            shown.extend(lines.of(&[b'x'; 4096]));
            assert!(lines.rest.capacity() <= 2 * ROW_BYTES_MAX, "the rest is bounded");
        }
        shown.extend(lines.of(b"y\n2026-01-01T00:00:02Z stdout F next\n"));
        let shown = String::from_utf8(shown).expect("UTF-8");
        assert!(shown.ends_with("xxx [cut: the row is longer than 64 KiB]\nnext\n"), "{shown}");
        assert!(shown.len() < ROW_BYTES_MAX + 100);
    }

    #[test]
    fn a_line_of_ten_mebibytes_in_parts_of_a_runtime_is_one_line_with_every_byte() {
        const LINE_BYTES: usize = 10 << 20;
        // A runtime writes parts of 16 KiB, and a container may write any byte.
        let text: Vec<u8> = (0..LINE_BYTES).map(|at| [0, b'x', b' ', 0xff, 0x1b][at % 5]).collect();
        let mut log = Vec::new();
        for part in text.chunks(16 << 10) {
            log.extend_from_slice(b"2026-01-01T00:00:01Z stdout P ");
            log.extend_from_slice(part);
            log.push(b'\n');
        }
        log.extend_from_slice(
            b"2026-01-01T00:00:01Z stdout F \n2026-01-01T00:00:02Z stdout F next\n",
        );
        let form = LineFormat { timestamps: true, ..LineFormat::default() };
        let mut lines = LineFormatter::new(form);
        let shown: Vec<u8> = log.chunks(60_001).flat_map(|bytes| lines.of(bytes)).collect();
        let (head, next) = (b"2026-01-01T00:00:01Z ", b"\n2026-01-01T00:00:02Z next\n");
        assert!(shown.starts_with(head) && shown.ends_with(next));
        assert!(shown[head.len()..shown.len() - next.len()] == text, "a byte is lost or doubled");
    }

    #[test]
    fn older_lines_are_left_out() {
        let at = "2026-01-01T00:00:03Z".parse::<Timestamp>().expect("a time");
        let form = LineFormat { since_ms: at.as_millisecond(), ..LineFormat::default() };
        let log = [LOG, b"2026-01-01T00:00:04Z stdout F last\n"].concat();
        assert_eq!(shown(form, &log), "\nlast\n");
    }
}
