//! The moment as of which objects are shown.

use headwater_proto::operator::GetResponse;
use jiff::Timestamp;

/// The moment as of which objects are shown: now, or the moment of a past state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Ages and durations count up to here.
    pub(crate) time: Timestamp,
    /// Whether the statuses of this moment are known. A stream at a seq has none.
    pub(crate) has_statuses: bool,
}

impl Moment {
    /// Now.
    pub(crate) fn now() -> Self {
        Self::present(Timestamp::now())
    }

    /// A moment whose statuses are known.
    pub(crate) fn present(time: Timestamp) -> Self {
        Self { time, has_statuses: true }
    }

    /// The moment of a response; of its parts, only the first one has it.
    pub(crate) fn of(first: &GetResponse) -> Self {
        let time = match first.moment_ms {
            0 => None,
            ms => Timestamp::from_millisecond(ms).ok(),
        };
        let time = time.unwrap_or_else(Timestamp::now);
        Self { time, has_statuses: !first.without_statuses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_moment_is_that_of_the_response() {
        let past = GetResponse { moment_ms: 7, without_statuses: true, ..GetResponse::default() };
        let moment = Moment::of(&past);
        assert_eq!((moment.time.as_millisecond(), moment.has_statuses), (7, false));
        assert!(Moment::of(&GetResponse::default()).has_statuses);
    }
}
