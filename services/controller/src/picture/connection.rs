//! Whether a node is reachable, and when its last contact was.

use std::time::Duration;

use headwater_event::NodeProgress;

use super::presence::Contact;

/// How long after its last contact a node counts as Ready, if its hub has not sent that it left: the
/// grace period of the node lifecycle controller (40 s).
pub(super) const NODE_GRACE: Duration = Duration::from_secs(40);

/// The same where only the log has the contact, counted from when this controller read it: a hub
/// appends the position of an idle node every 5 min.
pub(super) const POSITION_GRACE: Duration = Duration::from_secs(5 * 60 + 40);

/// The last position of a node in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedPosition<'p> {
    pub(super) progress: &'p NodeProgress,
    /// The time since this controller read it. The clock of the hub that wrote it decides nothing.
    pub(super) read_for: Duration,
    /// How long it counts.
    pub(super) grace: Duration,
}

/// The connection of a node to a hub, as of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) is_reachable: bool,
    /// Since when its worker does not run while it is reachable, in milliseconds since the Unix epoch.
    pub(super) worker_gone_ms: Option<i64>,
    /// In milliseconds since the Unix epoch.
    pub(super) contact_ms: Option<i64>,
}

impl Connection {
    /// The connection at `now_ms`, by the presence that hubs send and by the last position in the log.
    /// The log counts where no hub sends presence: hubs of earlier versions do not, nor does any to a
    /// controller that does not listen.
    pub(super) fn of(contact: Contact, logged: Option<LoggedPosition<'_>>, now_ms: i64) -> Self {
        let logged_ms = logged.map(|logged| logged.progress.contact_ms);
        let (is_reachable, age) = match contact {
            Contact::Connected(age) | Contact::WithoutWorker { age, .. } => (true, Some(age)),
            Contact::Disconnected(age) => (false, age),
            Contact::Lost(age) => (age <= NODE_GRACE, Some(age)),
            Contact::Unknown => (logged.is_some_and(is_recent), None),
        };
        let before = |age: Duration| {
            i64::try_from(age.as_millis()).ok().map(|age_ms| now_ms.saturating_sub(age_ms))
        };
        let worker_gone_ms = match contact {
            Contact::WithoutWorker { gone_for, .. } => before(gone_for),
            _ => None,
        };
        Self { is_reachable, worker_gone_ms, contact_ms: age.and_then(before).or(logged_ms) }
    }

    /// Whether the node is reachable, and has a worker that runs its pods.
    pub(super) fn runs_pods(&self) -> bool {
        self.is_reachable && self.worker_gone_ms.is_none()
    }
}

/// Whether the log has the node as connected, with a recent contact: a hub that was killed appended
/// no position for the end of the session.
fn is_recent(logged: LoggedPosition<'_>) -> bool {
    logged.progress.connected && logged.read_for <= logged.grace
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};

    use super::*;

    fn progress(connected: bool, contact_ms: i64) -> NodeProgress {
        NodeProgress {
            hub: "hub".to_owned(),
            connected,
            incarnation: Incarnation(1),
            boot: Boot::default(),
            connection: 0,
            outbox_depth: 0,
            contact_ms,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: Vec::new(),
        }
    }

    #[test]
    fn presence_counts_before_the_log_whatever_the_clocks_are() {
        let now_ms = 1_000_000;
        let seconds = Duration::from_secs;
        let without_worker = Contact::WithoutWorker { age: seconds(4), gone_for: seconds(60) };
        for (contact, reachable, contact_ms) in [
            (Contact::Connected(seconds(4)), true, 996_000),
            (without_worker, true, 996_000),
            (Contact::Disconnected(Some(seconds(30))), false, 970_000),
            (Contact::Lost(seconds(40)), true, 960_000),
            (Contact::Lost(seconds(41)), false, 959_000),
        ] {
            // The clock of the hub is an hour ahead, or an hour behind.
            for logged_ms in [now_ms + 3_600_000, now_ms - 3_600_000] {
                let progress = progress(true, logged_ms);
                let (read_for, grace) = (seconds(3_600), POSITION_GRACE);
                let logged = LoggedPosition { progress: &progress, read_for, grace };
                let found = Connection::of(contact, Some(logged), now_ms);
                let contact_ms = Some(contact_ms);
                let worker_gone_ms = (contact == without_worker).then_some(940_000);
                let expected = Connection { is_reachable: reachable, worker_gone_ms, contact_ms };
                assert_eq!(found, expected);
                assert_eq!(found.runs_pods(), reachable && worker_gone_ms.is_none());
            }
        }
    }

    #[test]
    fn the_log_counts_where_no_hub_sends_presence_whatever_the_clocks_are() {
        let now_ms = 1_000_000;
        for contact_ms in [now_ms - 3_600_000, now_ms, now_ms + 3_600_000] {
            let of = |connected, read_for| {
                let progress = progress(connected, contact_ms);
                let logged =
                    LoggedPosition { progress: &progress, read_for, grace: POSITION_GRACE };
                Connection::of(Contact::Unknown, Some(logged), now_ms).is_reachable
            };
            assert!(of(true, Duration::ZERO) && of(true, POSITION_GRACE));
            assert!(!of(true, POSITION_GRACE + Duration::from_millis(1)));
            assert!(!of(false, Duration::ZERO));
        }
        let never = Connection { is_reachable: false, worker_gone_ms: None, contact_ms: None };
        assert_eq!(Connection::of(Contact::Unknown, None, 2_000), never);
    }
}
