//! I15: what a cluster shows of an object is what its node reports: at the end the last status, and on the
//! way none that is older than one that it showed before, for longer than a time.

use std::collections::BTreeMap;
use std::time::Duration;

/// Something that was seen of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When, since the observation began.
    pub at: Duration,
    /// The object, with its UID: one that is made again is another one.
    pub object: String,
    /// What was seen.
    pub change: Change,
}

/// What was seen of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its node reports the status of this number. The numbers grow.
    Reported(u64),
    /// Its node reports that it has ended.
    Ended,
    /// The cluster shows the status of this number; `None`: none of its node.
    Shown(Option<u64>),
    /// The cluster has it no longer.
    Gone,
}

/// A history that breaks the invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterViolation {
    /// The cluster shows a status that its node has not reported.
    #[error(
        "I15 {object}: status {shown} is shown, and the last one that was reported is {reported:?}"
    )]
    Unreported {
        /// The object.
        object: String,
        /// The last status that was reported.
        reported: Option<u64>,
        /// What is shown.
        shown: u64,
    },
    /// The cluster shows an older status for too long.
    #[error("I15 {object}: status {shown:?} is shown for {lasted:?} after status {newest}")]
    Stale {
        /// The object.
        object: String,
        /// The newest status that was shown.
        newest: u64,
        /// What is shown in its place.
        shown: Option<u64>,
        /// For how long.
        lasted: Duration,
    },
    /// The object went before its node reported that it has ended, or came back.
    #[error(
        "I15 {object}: {change:?} is seen, though it has ended: {has_ended}, is gone: {is_gone}"
    )]
    Untimely {
        /// The object.
        object: String,
        /// What was seen.
        change: Change,
        /// Whether its node had reported its end.
        has_ended: bool,
        /// Whether the cluster had it no longer.
        is_gone: bool,
    },
    /// In the end, the cluster shows another status than the last one.
    #[error(
        "I15 {object}: status {shown:?} is shown in the end, and {reported:?} was reported last"
    )]
    NotLast {
        /// The object.
        object: String,
        /// The last status that was reported.
        reported: Option<u64>,
        /// What is shown.
        shown: Option<u64>,
    },
    /// In the end, the cluster still has an object that has ended.
    #[error("I15 {object}: it has ended, and is there in the end")]
    NotGone {
        /// The object.
        object: String,
    },
}

/// An object at a moment of the history.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectState {
    reported: Option<u64>,
    shown: Option<u64>,
    newest: Option<u64>,
    /// Since when an older status than `newest` is shown.
    stale_since: Option<Duration>,
    has_ended: bool,
    is_gone: bool,
}

/// Checks a history, in the order in which it was seen, up to a moment when nothing changes any more. An
/// older status may be shown for `stale_max`, inclusive: a write that was on its way when its writer lost its
/// role is put right.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(
    history: &[Observation],
    quiet_at: Duration,
    stale_max: Duration,
) -> Result<(), ClusterViolation> {
    let mut objects = BTreeMap::<&str, ObjectState>::new();
    for Observation { at, object, change } in history {
        let state = objects.entry(object).or_default();
        state.take(object, *at, *change, stale_max)?;
    }
    for (object, state) in objects {
        state.check_stale(object, quiet_at, stale_max)?;
        state.check_end(object)?;
    }
    Ok(())
}

impl ClusterViolation {
    /// Whether the history only did not go on for long enough, as far as anybody can tell.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::NotLast { .. } | Self::NotGone { .. })
    }
}

impl ObjectState {
    fn take(
        &mut self,
        object: &str,
        at: Duration,
        change: Change,
        stale_max: Duration,
    ) -> Result<(), ClusterViolation> {
        let Self { has_ended, is_gone, .. } = *self;
        let untimely =
            || ClusterViolation::Untimely { object: object.to_owned(), change, has_ended, is_gone };
        match change {
            Change::Reported(number) => self.reported = self.reported.max(Some(number)),
            Change::Ended => self.has_ended = true,
            Change::Gone if has_ended && !is_gone => {
                self.check_stale(object, at, stale_max)?;
                (self.is_gone, self.stale_since) = (true, None);
            }
            Change::Shown(shown) if !is_gone => self.show(object, at, shown, stale_max)?,
            Change::Gone | Change::Shown(_) => return Err(untimely()),
        }
        Ok(())
    }

    fn show(
        &mut self,
        object: &str,
        at: Duration,
        shown: Option<u64>,
        stale_max: Duration,
    ) -> Result<(), ClusterViolation> {
        if let Some(shown) = shown.filter(|_| shown > self.reported) {
            let (object, reported) = (object.to_owned(), self.reported);
            return Err(ClusterViolation::Unreported { object, reported, shown });
        }
        self.check_stale(object, at, stale_max)?;
        self.shown = shown;
        if shown >= self.newest {
            (self.newest, self.stale_since) = (shown, None);
        } else {
            self.stale_since = self.stale_since.or(Some(at));
        }
        Ok(())
    }

    fn check_stale(
        &self,
        object: &str,
        at: Duration,
        stale_max: Duration,
    ) -> Result<(), ClusterViolation> {
        let lasted = self.stale_since.map_or(Duration::ZERO, |since| at.saturating_sub(since));
        match self.newest {
            Some(newest) if lasted > stale_max => {
                let (object, shown) = (object.to_owned(), self.shown);
                Err(ClusterViolation::Stale { object, newest, shown, lasted })
            }
            _ => Ok(()),
        }
    }

    fn check_end(&self, object: &str) -> Result<(), ClusterViolation> {
        let Self { reported, shown, has_ended, is_gone, .. } = *self;
        let object = || object.to_owned();
        match (has_ended, is_gone) {
            (true, false) => Err(ClusterViolation::NotGone { object: object() }),
            (false, false) if shown != reported => {
                Err(ClusterViolation::NotLast { object: object(), reported, shown })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE_MAX: Duration = Duration::from_secs(10);

    /// A history of one object, with the seconds of each change.
    fn checked(changes: &[(u64, Change)], quiet_at: u64) -> Result<(), ClusterViolation> {
        let observation = |(at, change): &(u64, Change)| Observation {
            at: Duration::from_secs(*at),
            object: "d/web u-1".to_owned(),
            change: *change,
        };
        let history: Vec<_> = changes.iter().map(observation).collect();
        check(&history, Duration::from_secs(quiet_at), STALE_MAX)
    }

    fn shown(number: u64) -> Change {
        Change::Shown(Some(number))
    }

    #[test]
    fn a_history_that_ends_with_the_last_report_is_right_also_with_a_short_step_back() {
        let history = [
            (0, Change::Shown(None)),
            (0, Change::Reported(1)),
            (1, shown(1)),
            (2, Change::Reported(2)),
            (2, Change::Reported(3)),
            (3, shown(3)),
            (3, shown(1)),
            (8, shown(2)),
            (13, shown(3)),
        ];
        assert_eq!(checked(&history, 99), Ok(()));
        let ended = [&history[..], &[(14, Change::Ended), (15, Change::Gone)]].concat();
        assert_eq!(checked(&ended, 99), Ok(()));
        assert_eq!(checked(&[], 0), Ok(()));
    }

    #[test]
    fn an_older_status_that_stays_too_long_is_found_however_it_ends() {
        let back =
            [(0, Change::Reported(1)), (0, Change::Reported(2)), (1, shown(2)), (2, shown(1))];
        let later = |more: &[(u64, Change)], quiet_at| {
            let violation = checked(&[&back[..], more].concat(), quiet_at);
            let violation = violation.expect_err("it went back for too long");
            assert!(matches!(violation, ClusterViolation::Stale { newest: 2, .. }), "{violation}");
            assert!(!violation.is_pending());
        };
        later(&[], 13);
        later(&[(13, shown(2))], 99);
        // A step back is as old as the first one.
        later(&[(8, Change::Shown(None)), (13, shown(2))], 99);
        later(&[(13, Change::Ended), (13, Change::Gone)], 99);
        // As long as there is time, it is only not the last one.
        let violation = checked(&back, 12).expect_err("it is not the last");
        assert!(violation.is_pending(), "{violation}");
    }

    #[test]
    fn a_status_that_was_lost_or_made_up_is_found() {
        let violation = checked(&[(0, Change::Reported(1)), (1, shown(2))], 5);
        let unreported = ClusterViolation::Unreported {
            object: "d/web u-1".into(),
            reported: Some(1),
            shown: 2,
        };
        assert_eq!(violation, Err(unreported));
        let violation = checked(&[(0, shown(1)), (1, Change::Reported(1))], 5);
        assert!(matches!(violation, Err(ClusterViolation::Unreported { .. })), "{violation:?}");
        for changes in [
            &[(0, Change::Reported(1))][..],
            &[(0, Change::Reported(1)), (1, shown(1)), (2, Change::Reported(2))],
        ] {
            let violation = checked(changes, 5).expect_err("the last report is not shown");
            assert!(matches!(violation, ClusterViolation::NotLast { .. }), "{violation}");
        }
    }

    #[test]
    fn an_object_goes_after_it_has_ended_once_and_for_good() {
        let untimely = |changes: &[(u64, Change)]| {
            let violation = checked(changes, 5).expect_err("untimely");
            assert!(matches!(violation, ClusterViolation::Untimely { .. }), "{violation}");
        };
        untimely(&[(0, Change::Gone), (1, Change::Ended)]);
        untimely(&[(0, Change::Ended), (1, Change::Gone), (2, Change::Gone)]);
        untimely(&[(0, Change::Reported(1)), (0, Change::Ended), (1, Change::Gone), (2, shown(1))]);
        let violation = checked(&[(0, Change::Ended)], 5).expect_err("it is there");
        assert!(matches!(violation, ClusterViolation::NotGone { .. }) && violation.is_pending());
    }
}
