//! Which hub is dialed next, and when.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::address::HubAddress;
use super::backoff::{Backoff, BackoffSettings};
use super::link::{Link, LinkError};
use crate::dependencies::Chance;

/// Makes a connection to a hub.
pub(crate) type LinkDialer =
    Arc<dyn Fn(HubAddress) -> BoxFuture<'static, Result<Link, LinkError>> + Send + Sync>;

/// Dials the configured hubs in turn.
pub(crate) struct Dialer {
    hubs: Vec<HubAddress>,
    dial: LinkDialer,
    next: usize,
    last: Option<String>,
    backoff: Backoff,
    chance: Arc<dyn Chance>,
}

/// How a connection ended, or why there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisconnectReason {
    /// The hub asked the edge to connect to another hub.
    Moved,
    /// No machine responded.
    NoResponse,
    /// Any other reason.
    Failed,
}

impl Dialer {
    /// Begins with a random hub: edges with the same list spread over it.
    pub(crate) fn new(
        hubs: Vec<HubAddress>,
        settings: BackoffSettings,
        dial: LinkDialer,
        chance: Arc<dyn Chance>,
    ) -> Self {
        let next = usize::try_from(chance.draw() % (hubs.len().max(1) as u64)).unwrap_or(0);
        let backoff = Backoff::new(settings, hubs.len());
        Self { hubs, dial, next, last: None, backoff, chance }
    }

    /// Dials the next hub; `None` where no hub is configured.
    pub(crate) fn dial(&mut self) -> Option<BoxFuture<'static, Result<Link, LinkError>>> {
        let hub = self.hubs.get(self.next)?.clone();
        self.last = Some(hub.to_string());
        Some((self.dial)(hub))
    }

    /// Moves on to the next hub, and returns how long to wait before it is dialed. `lasted` is the
    /// length of the connection that ended, if there was one.
    pub(crate) fn retry_after(
        &mut self,
        reason: DisconnectReason,
        lasted: Option<Duration>,
    ) -> Duration {
        if let Some(lasted) = lasted {
            self.backoff.session_ended(lasted);
        }
        self.next = (self.next + 1) % self.hubs.len().max(1);
        let random = self.chance.draw();
        match reason {
            DisconnectReason::Moved => self.backoff.after_move(random),
            DisconnectReason::NoResponse => self.backoff.after_no_response(random),
            DisconnectReason::Failed => self.backoff.after_failure(random),
        }
    }

    /// The hub that was dialed last, as it was configured.
    pub(crate) fn last_hub(&self) -> Option<String> {
        self.last.clone()
    }
}
