//! When a session ends by the clock: it is old, or the certificate of its edge has expired.

use std::future::pending;
use std::time::Duration;

use headwater_event::NodeName;
use headwater_session::HubInput;
use headwater_session::message::{Refusal, RefusalCode};
use tokio::time::{Instant, sleep_until};

/// The end of a session by the clock. Only the first of its causes needs a timer, because it ends the
/// session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    /// `None`: never.
    at: Option<Instant>,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Age,
    Certificate,
}

impl Deadline {
    /// The deadline of a session that began at `started` and may have this `age`; its edge's certificate
    /// is valid until then, if it has one.
    pub(super) fn of(started: Instant, age: Duration, valid_until: Option<Instant>) -> Self {
        // An age that no clock reaches never comes.
        let old_at = started.checked_add(age);
        match valid_until {
            Some(until) if old_at.is_none_or(|old_at| until <= old_at) => {
                Self { at: Some(until), cause: Cause::Certificate }
            }
            _ => Self { at: old_at, cause: Cause::Age },
        }
    }

    /// Waits for the deadline.
    pub(super) async fn passed(self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }

    /// What the session of `node` receives then.
    pub(super) fn input(self, node: &NodeName) -> HubInput {
        match self.cause {
            Cause::Age => HubInput::Leaving("the session is old".to_owned()),
            Cause::Certificate => {
                let message =
                    format!("the certificate of node {node} has expired: issue a new one");
                HubInput::Dismissed(Refusal { code: RefusalCode::Forbidden, message })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_at_the_first_of_its_age_and_the_end_of_the_certificate() {
        let started = Instant::now();
        let after = |seconds| started + Duration::from_secs(seconds);
        let of = |age, valid_until| Deadline::of(started, Duration::from_secs(age), valid_until);
        let old = |seconds| Deadline { at: Some(after(seconds)), cause: Cause::Age };
        let expired = |seconds| Deadline { at: Some(after(seconds)), cause: Cause::Certificate };
        assert_eq!(of(10, None), old(10));
        assert_eq!(of(10, Some(after(11))), old(10));
        assert_eq!(of(10, Some(after(10))), expired(10));
        assert_eq!(of(10, Some(after(9))), expired(9));
        assert_eq!(of(u64::MAX, None), Deadline { at: None, cause: Cause::Age });
        assert_eq!(of(u64::MAX, Some(after(9))), expired(9));
    }
}
