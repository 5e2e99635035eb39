//! Notifications for a service manager: ready, stopping, and the watchdog ping.
//!
//! Without `NOTIFY_SOCKET` in the environment it sends none.

use std::convert::Infallible;
use std::time::Duration;

use headwater_telemetry::health::{CheckKind, Health, HealthQuery};
use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// The interval at which a part that is not ready is checked.
const READY_INTERVAL: Duration = Duration::from_millis(200);

/// The extension of the start time limit. It is sent repeatedly, because the fold of a long log has
/// no bound.
const START_LONGER: Duration = Duration::from_secs(30);

/// Extends the start time limit until the part has started: it may wait for another process.
pub(super) async fn starting() -> Infallible {
    loop {
        notify(&[NotifyState::ExtendTimeoutUsec(longer()), NotifyState::Status("starting")]);
        tokio::time::sleep(START_LONGER / 4).await;
    }
}

/// Notifies when the part is ready, then sends watchdog pings.
pub(super) async fn run(health: Health, stop: CancellationToken) {
    if stop.run_until_cancelled(until_ready(&health)).await.is_none() {
        return;
    }
    notify(&[NotifyState::Ready, NotifyState::Status("ready")]);
    if let Some(within) = sd_notify::watchdog_enabled() {
        stop.run_until_cancelled(while_alive(&health, within / 2)).await;
    }
}

/// Notifies that the part stops.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("handing over")]);
}

async fn until_ready(health: &Health) {
    while !health.report(CheckKind::Ready, &HealthQuery::default()).passed {
        notify(&[NotifyState::ExtendTimeoutUsec(longer())]);
        tokio::time::sleep(READY_INTERVAL).await;
    }
}

fn longer() -> u32 {
    u32::try_from(START_LONGER.as_micros()).unwrap_or(u32::MAX)
}

/// Sends watchdog pings. An unhealthy process sends none; the service manager then restarts it.
async fn while_alive(health: &Health, interval: Duration) {
    let mut interval = tokio::time::interval(interval.max(READY_INTERVAL));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let answer = health.report(CheckKind::Live, &HealthQuery::default());
        if answer.passed {
            notify(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(checks = %answer.text, "a liveness check fails");
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not notified");
    }
}
