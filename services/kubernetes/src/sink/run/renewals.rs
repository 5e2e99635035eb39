//! The renewals of Leases: those that are due are sent, and their answers are taken.

use jiff::Timestamp;
use tokio::task::JoinError;

use super::SinkRun;
use crate::sink::answer::{Answer, send, unsendable};
use crate::sink::lease::{Renewal, RenewalEnd};
use crate::sink::memory::Purpose;
use crate::sink::request::WriteRequest;

/// The end of a renewal.
pub(super) struct RenewalDone {
    renewal: Renewal,
    sent_ms: u64,
    answer: Answer,
}

impl SinkRun {
    /// Sends the renewals of Leases that are due.
    pub(super) fn renew(&mut self) {
        while self.has_room()
            && let Some(renewal) = self.leases.take(self.now_ms())
        {
            let sent_ms = self.now_ms();
            let now = micro_time((self.dependencies.wall_clock)());
            let node = renewal.node.clone();
            if !self.look_at(&node).is_present {
                self.leases.end(&node, RenewalEnd::Failed, sent_ms, sent_ms);
                continue;
            }
            let request = if renewal.is_missing {
                let uid = self.view.lock().node(&node).map(|view| view.uid.clone());
                WriteRequest::create_lease(&node, &uid.unwrap_or_default(), &now)
            } else {
                WriteRequest::renew_lease(&node, &now)
            };
            let request =
                request.build().map(|request| self.dependencies.act_as.about(&node, request));
            let connection = self.connection.clone();
            self.renewals.spawn(async move {
                let answer = match request {
                    Ok(request) => send(&connection, request, Purpose::Lease.answer_part()).await,
                    Err(error) => unsendable(&error),
                };
                RenewalDone { renewal, sent_ms, answer }
            });
        }
    }

    pub(super) fn end_renewal(&mut self, done: Result<RenewalDone, JoinError>) {
        let RenewalDone { renewal, sent_ms, answer } = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "the renewal of a Lease ended by itself");
                return;
            }
        };
        self.dependencies.metrics.answered(Purpose::Lease, &answer);
        let now_ms = self.now_ms();
        let end = match answer {
            Answer::Done(_) => {
                self.troubles.allow(Purpose::Lease);
                RenewalEnd::Renewed
            }
            Answer::Absent if !renewal.is_missing => RenewalEnd::Missing,
            Answer::Conflict(_) => RenewalEnd::Exists,
            Answer::Forbidden(message) => {
                self.troubles.forbid(Purpose::Lease, message);
                RenewalEnd::Forbidden
            }
            Answer::Failed(reason) => {
                self.troubles.set_unanswered(Some(reason));
                RenewalEnd::Failed
            }
            Answer::Throttled(after) => {
                self.throttle(now_ms, u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
                RenewalEnd::Failed
            }
            Answer::Absent | Answer::Refused(_) => RenewalEnd::Failed,
        };
        self.leases.end(&renewal.node, end, sent_ms, now_ms);
    }
}

/// A time with microseconds, as Leases have it.
fn micro_time(now_ms: i64) -> String {
    let time = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.6}")
}
