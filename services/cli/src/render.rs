//! The text forms of values: times, ages, YAML.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

/// A time in UTC with milliseconds, RFC 3339.
pub(crate) fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| "-".to_owned(), |time| format!("{time:.3}"))
}

/// A span as kubectl shows it: `5s`, `3m12s`, `4h`, `12d`.
pub(crate) fn age(from: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(from).as_secs().max(0);
    let (minute, hour, day) = (60, 3600, 86_400);
    match seconds {
        s if s < 2 * minute => format!("{s}s"),
        s if s < 10 * minute && s % minute != 0 => format!("{}m{}s", s / minute, s % minute),
        s if s < 3 * hour => format!("{}m", s / minute),
        s if s < 8 * hour && s % hour >= minute => {
            format!("{}h{}m", s / hour, s % hour / minute)
        }
        s if s < 2 * day => format!("{}h", s / hour),
        s if s < 8 * day && s % day >= hour => format!("{}d{}h", s / day, s % day / hour),
        s => format!("{}d", s / day),
    }
}

/// The age of an object by its creation timestamp, `<unknown>` where it has none.
pub(crate) fn object_age(object: &Value, now: Timestamp) -> String {
    object
        .pointer("/metadata/creationTimestamp")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .map_or_else(|| "<unknown>".to_owned(), |created| age(created, now))
}

/// A size for people: `512`, `13.4Ki`, `2.0Gi`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut tenths, mut unit) = (bytes.saturating_mul(10), None);
    for next in UNITS {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = Some(next);
    }
    match unit {
        None => bytes.to_string(),
        Some(unit) => format!("{}.{}{unit}", tenths / 10, tenths % 10),
    }
}

/// Escapes text from an object or a server for a terminal: characters that move the cursor, end the
/// line or change the reading direction.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe)
}

/// [`plain`] for text of several lines and columns: line ends and tabs stay.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| is_unsafe(letter) && !matches!(letter, '\n' | '\t'))
}

fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let escaped = |letter: char| {
        if is_unsafe(letter) { letter.escape_default().to_string() } else { letter.to_string() }
    };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// An object as YAML.
pub(crate) fn yaml(object: &Value) -> String {
    serde_saphyr::to_string(object)
        .unwrap_or_else(|error| format!("# the object has no YAML form: {error}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * 100);
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (3599, "59m"),
            (4 * 3600, "4h"),
            (4 * 3600 + 120, "4h2m"),
            (30 * 3600, "30h"),
            (3 * 86_400 + 3600, "3d1h"),
            (12 * 86_400, "12d"),
        ] {
            let from = now - jiff::SignedDuration::from_secs(seconds);
            assert_eq!(age(from, now), shown);
        }
        assert_eq!(time(1_500), "1970-01-01T00:00:01.500Z");
    }

    #[test]
    fn sizes_are_short() {
        for (size, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0Ki"),
            (13_722, "13.4Ki"),
            (2 << 30, "2.0Gi"),
            (u64::MAX, "1638.3Pi"),
        ] {
            assert_eq!(bytes(size), shown);
        }
    }

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey() {
        assert_eq!(plain("a\u{1b}[31mb\nc\u{202e}d"), "a\\u{1b}[31mb\\nc\\u{202e}d");
        assert_eq!(plain_lines("a\tb\n\u{1b}[2J"), "a\tb\n\\u{1b}[2J");
        assert_eq!(plain("caf\u{e9} \u{4f60}\u{597d}"), "caf\u{e9} \u{4f60}\u{597d}");
    }
}
