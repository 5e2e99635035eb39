//! A position in the past, as a request names it: a seq, a time, or a duration ago.

use headwater_event::Seq;
use headwater_log::history::Until;
use jiff::Timestamp;
use tonic::Status;

/// A position in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PastPosition {
    /// The state of a stream after this event; zero: before the first.
    Seq(Seq),
    /// The state at this time, in milliseconds since the Unix epoch.
    Time(i64),
}

impl PastPosition {
    /// Parses a position; `None`: the text is empty. A duration counts back from `now_ms`.
    pub(super) fn parse(text: &str, now_ms: i64) -> Result<Option<Self>, Status> {
        if text.is_empty() {
            return Ok(None);
        }
        if let Ok(seq) = text.parse() {
            return Ok(Some(Self::Seq(Seq(seq))));
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(Some(Self::Time(time.as_millisecond())));
        }
        if let Ok(ago) = humantime::parse_duration(text) {
            let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
            return Ok(Some(Self::Time(now_ms.saturating_sub(ago_ms))));
        }
        Err(Status::invalid_argument(format!(
            "{text:?} is neither a seq nor an RFC 3339 time (2026-11-21T12:00:00Z) nor a duration \
             ago (5m)"
        )))
    }

    /// The state of a stream at this position.
    pub(super) fn until(self) -> Until {
        match self {
            Self::Seq(seq) => Until::Seq(seq),
            Self::Time(ms) => Until::Time(ms),
        }
    }
}

/// A time in UTC with milliseconds, RFC 3339: as a request may name it.
pub(super) fn time_text(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .map_or_else(|_| format!("{ms} ms since the Unix epoch"), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_position_is_a_seq_or_a_time_or_a_duration_ago() {
        let parse = |text| PastPosition::parse(text, 10_000_000);
        assert_eq!(parse("").expect("none"), None);
        for (text, position) in [
            ("0", PastPosition::Seq(Seq(0))),
            ("12", PastPosition::Seq(Seq(12))),
            ("1970-01-01T00:00:01.5Z", PastPosition::Time(1_500)),
            ("1970-01-01T01:00:00+01:00", PastPosition::Time(0)),
            ("5m", PastPosition::Time(10_000_000 - 300_000)),
            ("1h 30s", PastPosition::Time(10_000_000 - 3_630_000)),
        ] {
            assert_eq!(parse(text).expect(text), Some(position), "{text}");
        }
        let error = parse("yesterday").expect_err("none of them");
        assert!(error.message().contains("\"yesterday\" is neither a seq"), "{error}");
    }

    proptest! {
        #[test]
        fn a_position_that_is_written_is_read_as_the_same(seq in any::<u64>(), ms in 0..1_i64 << 45) {
            let parse = |text: &str| PastPosition::parse(text, 0).ok().flatten();
            prop_assert_eq!(parse(&seq.to_string()), Some(PastPosition::Seq(Seq(seq))));
            prop_assert_eq!(parse(&time_text(ms)), Some(PastPosition::Time(ms)));
        }

        #[test]
        fn any_text_is_a_position_or_is_named(
            text in prop_oneof![
                "[-+]?[0-9]{1,24}",
                "[-+]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\\.[0-9]{1,12})?)?(Z|[+-][0-9]{2}(:[0-9]{2})?|\\[[A-Za-z/]{1,8}\\])?",
                "[0-9]{1,20} ?(ns|s|m|min|h|d|w|y|x)",
                any::<String>(),
            ],
            now_ms in any::<i64>(),
        ) {
            match PastPosition::parse(&text, now_ms) {
                Ok(None) => prop_assert!(text.is_empty()),
                Ok(Some(_)) => {}
                Err(status) => {
                    prop_assert_eq!(status.code(), tonic::Code::InvalidArgument);
                    let message = status.message();
                    prop_assert!(message.contains(&format!("{text:?}")), "{}", message);
                }
            }
        }
    }
}
