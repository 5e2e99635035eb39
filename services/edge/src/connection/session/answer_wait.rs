//! The wait for an answer of the hub: to a connection attempt, a hello or a report.

use std::time::Duration;

use tokio::time::Instant;

/// After this time without an answer, the wait is a trouble. A hub answers much sooner, also over a slow
/// link, and an operator sees the trouble within 5 s.
pub(super) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(3);

/// What the edge has asked of its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// To accept the connection and to welcome the session.
    Session,
    /// To acknowledge reports.
    Reports,
}

/// The first question without an answer. The hub is asked nothing more for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerWait(Option<(Question, Instant)>);

impl AnswerWait {
    /// Notes what the edge waits for at `now`, if it waits.
    pub(super) fn look(&mut self, question: Option<Question>, now: Instant) {
        self.0 = match (question, self.0) {
            (Some(asked), Some((waits, since))) if asked == waits => Some((waits, since)),
            (Some(asked), _) => Some((asked, now)),
            (None, _) => None,
        };
    }

    /// The hub has answered, or there is another connection.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// The trouble, when the wait is too long at `now`.
    pub(super) fn trouble(&self, hub: &str, now: Instant) -> Option<String> {
        let (question, since) = self.0?;
        let seconds = ANSWER_WAIT_MAX.as_secs();
        let is_long = now.saturating_duration_since(since) >= ANSWER_WAIT_MAX;
        is_long.then(|| match question {
            Question::Session => format!("hub {hub} has not answered for more than {seconds} s"),
            Question::Reports => {
                format!("hub {hub} has not acknowledged reports for more than {seconds} s")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_does_not_answer_is_a_trouble_after_three_seconds() {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut wait = AnswerWait::default();
        wait.look(None, at(0));
        assert_eq!(wait.trouble("h:1", at(9)), None, "it is asked nothing");
        wait.look(Some(Question::Session), at(1));
        wait.look(Some(Question::Session), at(2));
        assert_eq!(wait.trouble("h:1", at(3)), None);
        let text = "hub h:1 has not answered for more than 3 s";
        assert_eq!(wait.trouble("h:1", at(4)).as_deref(), Some(text));
        wait.look(Some(Question::Reports), at(5));
        assert_eq!(wait.trouble("h:1", at(7)), None, "it has welcomed the edge");
        let text = "hub h:1 has not acknowledged reports for more than 3 s";
        assert_eq!(wait.trouble("h:1", at(8)).as_deref(), Some(text));
        wait.end();
        wait.look(Some(Question::Reports), at(8));
        assert_eq!(wait.trouble("h:1", at(10)), None, "it acknowledges some");
        wait.look(None, at(11));
        assert_eq!(wait.trouble("h:1", at(20)), None);
    }
}
