//! The task that brings the directories of claims in line with the node's view.

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::container::claim::ClaimView;
use crate::runtime::NodeRuntime;
use headwater_telemetry::error_chain;

/// Works until cancelled: at every change of the view, and at every relist, because pods end and
/// time passes without a change.
pub(super) async fn keep(
    runtime: NodeRuntime,
    settings: Settings,
    mut views: watch::Receiver<ClaimView>,
    cancel: CancellationToken,
) {
    let mut relist = tokio::time::interval(settings.relist);
    relist.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_failure = None;
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            changed = views.changed() => if changed.is_err() { return },
            _ = relist.tick() => {}
        }
        let view = views.borrow_and_update().clone();
        let failure = runtime.reclaim(&view, settings.claim_hold).await.err();
        let failure = failure.map(|error| error_chain(&error));
        if let Some(message) = failure.as_ref().filter(|_| failure != last_failure) {
            tracing::warn!(message, "directories of claims cannot be brought up to date yet");
        }
        last_failure = failure;
    }
}
