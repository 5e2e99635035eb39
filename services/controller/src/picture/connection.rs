//! Whether a node is reachable, and when its last contact was.

use std::time::Duration;

use headwater_event::NodeProgress;

use super::presence::Contact;

/// How long after its last contact a node counts as Ready, if its hub has not sent that it left: the
/// grace period of the node lifecycle controller (40 s).
const NODE_GRACE: Duration = Duration::from_secs(40);

/// The same where only the log has the contact, by the clock of the hub: a hub appends the
/// position of an idle node every 5 min.
const POSITION_GRACE_MS: i64 = 5 * 60_000 + 40_000;

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
    /// The log counts where no hub sends presence: hubs of earlier versions do not.
    pub(super) fn of(contact: Contact, progress: Option<&NodeProgress>, now_ms: i64) -> Self {
        let logged_ms = progress.map(|progress| progress.contact_ms);
        let (is_reachable, age) = match contact {
            Contact::Connected(age) | Contact::WithoutWorker { age, .. } => (true, Some(age)),
            Contact::Disconnected(age) => (false, age),
            Contact::Lost(age) => (age <= NODE_GRACE, Some(age)),
            Contact::Unknown => (progress.is_some_and(|it| is_recent(it, now_ms)), None),
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
fn is_recent(progress: &NodeProgress, now_ms: i64) -> bool {
    progress.connected && now_ms.saturating_sub(progress.contact_ms) <= POSITION_GRACE_MS
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
                let found = Connection::of(contact, Some(&progress), now_ms);
                let contact_ms = Some(contact_ms);
                let worker_gone_ms = (contact == without_worker).then_some(940_000);
                let expected = Connection { is_reachable: reachable, worker_gone_ms, contact_ms };
                assert_eq!(found, expected);
                assert_eq!(found.runs_pods(), reachable && worker_gone_ms.is_none());
            }
        }
    }

    #[test]
    fn the_log_counts_where_no_hub_sends_presence() {
        let of = |progress: &NodeProgress, now_ms| {
            Connection::of(Contact::Unknown, Some(progress), now_ms).is_reachable
        };
        assert!(of(&progress(true, 1_000), 2_000));
        assert!(of(&progress(true, 1_000), 1_000 + POSITION_GRACE_MS));
        assert!(!of(&progress(true, 1_000), 1_001 + POSITION_GRACE_MS));
        assert!(!of(&progress(false, 1_000), 2_000));
        let never = Connection { is_reachable: false, worker_gone_ms: None, contact_ms: None };
        assert_eq!(Connection::of(Contact::Unknown, None, 2_000), never);
    }
}
