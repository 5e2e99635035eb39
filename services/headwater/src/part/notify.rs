//! What a service manager is told, where there is one: that the part is ready, that it stops, and
//! that it still lives.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is said.

use std::convert::Infallible;
use std::time::Duration;

use headwater_telemetry::health::{CheckKind, Health, HealthQuery};
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often a part that is not ready yet is looked at.
const READY_INTERVAL: Duration = Duration::from_millis(200);

/// How much longer a start may take, said again and again while it goes on: folding a long log
/// takes as long as it takes.
const START_LONGER: Duration = Duration::from_secs(30);

/// Asks for longer, for as long as the part has not started: it may wait for others to do so.
pub(super) async fn starting() -> Infallible {
    loop {
        say(&[NotifyState::ExtendTimeoutUsec(longer()), NotifyState::Status("starting")]);
        tokio::time::sleep(START_LONGER / 4).await;
    }
}

/// Says when the part is ready, and then that it lives, for as long as it does.
pub(super) async fn tell(health: Health, stop: CancellationToken) {
    if stop.run_until_cancelled(until_ready(&health)).await.is_none() {
        return;
    }
    say(&[NotifyState::Ready, NotifyState::Status("ready")]);
    if let Some(within) = sd_notify::watchdog_enabled() {
        stop.run_until_cancelled(while_alive(&health, within / 2)).await;
    }
}

/// Says that the part stops.
pub(super) fn stopping() {
    say(&[NotifyState::Stopping, NotifyState::Status("handing over")]);
}

async fn until_ready(health: &Health) {
    while !health.report(CheckKind::Ready, &HealthQuery::default()).passed {
        say(&[NotifyState::ExtendTimeoutUsec(longer())]);
        tokio::time::sleep(READY_INTERVAL).await;
    }
}

fn longer() -> u32 {
    u32::try_from(START_LONGER.as_micros()).unwrap_or(u32::MAX)
}

/// What does not live is not said to: the service manager then starts it again.
async fn while_alive(health: &Health, interval: Duration) {
    let mut interval = tokio::time::interval(interval.max(READY_INTERVAL));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let answer = health.report(CheckKind::Live, &HealthQuery::default());
        if answer.passed {
            say(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(checks = %answer.text, "the part does not live as it should");
        }
    }
}

fn say(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
