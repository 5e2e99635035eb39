//! Row 11: what a node's news cost on the way up, and its silence.

use std::thread;
use std::time::Duration;

use headwater_e2e::proxy::Traffic;
use headwater_loadtest::failure::Failure;
use serde_json::{Value, json};

use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::limit::patch;
use crate::link::Link;
use crate::pods::PODS_PER_NODE;
use crate::run::Run;
use crate::waiting::wait;

const OBJECT_BYTES: usize = 2 << 10;

/// The bytes besides the change: key, position, framing.
const FRAMING_BYTES: f64 = 30.0;

/// How often everything would be sent by one who sends everything, and how often one status
/// changes here.
const INTERVAL: Duration = Duration::from_secs(60);

/// Measures it.
///
/// # Errors
/// When the edge does not come in step.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let idle = run.pick(Duration::from_secs(60), Duration::from_secs(600));
    let changes: u32 = run.pick(60, 600);
    let mut link = Link::start(OBJECT_BYTES)?;
    begin(&mut link, PODS_PER_NODE)?;
    let (said, ideal) = change(&link, PODS_PER_NODE, changes)?;
    let before = link.hop.traffic();
    thread::sleep(idle);
    let silent = link.hop.traffic().since(before);

    let each = |bytes: f64| bytes / f64::from(changes);
    let a_second = |bytes: u64| bytes as f64 / idle.as_secs_f64();
    let up = each(said.up as f64);
    let all: usize = (0..PODS_PER_NODE).map(|number| status(number, 0).to_string().len()).sum();
    let a_minute = up + a_second(silent.up) * INTERVAL.as_secs_f64();

    let mut measured = RowResult::default();
    let what = "bytes up a status change";
    measured.push(
        Figure::ratio(what, up.into(), "zstd --patch-from and 30", each(ideal).into())
            .held_to(Bound::at_most(2.6, 1.3)),
    );
    measured.push(
        Figure::ratio(
            "bytes up a minute",
            a_minute.into(),
            "all statuses once",
            (all as f64).into(),
        )
        .held_to(Bound::at_most(1.0 / 20.0, 1.0 / 500.0)),
    );
    measured.push(
        Figure::alone("bytes up a second, idle", a_second(silent.up).into())
            .held_to(Bound::at_most(10.0, 5.0)),
    );
    measured.push(Figure::alone("bytes down a second, idle", a_second(silent.down).into()));
    let down = each(said.down as f64);
    measured.push(Figure::alone("bytes down a status change", down.into()));
    measured.set("pods", format!("{PODS_PER_NODE}, each with a status of about 1 KB"));
    measured.set("changes", format!("{changes}, one by one: a restart and its times"));
    measured.set("a minute", "one change and a minute's silence");
    measured.set("idle", format!("{} s", idle.as_secs()));
    measured.note(
        "The floors of the change and of the silence are twice their targets: the table has none.",
    );
    Ok(measured)
}

/// Starts an edge whose pods have reported their statuses.
fn begin(link: &mut Link, pods: u32) -> Result<(), Failure> {
    link.say((0..pods).map(|number| (number, 0)))?;
    link.start_edge()?;
    link.in_step()?;
    // The edge takes a status once it has read what it stores of the pod.
    wait("statuses that the edge takes", || {
        link.report((0..pods).map(|number| (number, status(number, 0)))).ok()
    })?;
    link.in_step()
}

/// Changes statuses one by one: returns the traffic and the least that had to be sent.
fn change(link: &Link, pods: u32, changes: u32) -> Result<(Traffic, f64), Failure> {
    let before = link.quiet()?;
    let mut ideal = 0.0;
    for turn in 1..=changes {
        let number = turn % pods;
        let was = status(number, turn.saturating_sub(pods)).to_string();
        let is = status(number, turn);
        let patch = patch::bytes(was.as_bytes(), is.to_string().as_bytes())?;
        ideal += patch as f64 + FRAMING_BYTES;
        link.report([(number, is)])?;
        link.in_step()?;
    }
    Ok((link.quiet()?.since(before), ideal))
}

/// A pod's status after `turn`.
fn status(number: u32, turn: u32) -> Value {
    let time = |offset: u32| {
        let seconds = (turn * 61 + offset) % 86_400;
        format!("2026-03-01T{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
    };
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "lastProbeTime": null,
                "lastTransitionTime": "2026-03-01T00:00:07Z" })
    };
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    json!({
        "phase": "Running",
        "hostIP": "192.0.2.7",
        "podIP": format!("10.42.0.{number}"),
        "podIPs": [{ "ip": format!("10.42.0.{number}") }],
        "qosClass": "Burstable",
        "startTime": "2026-03-01T00:00:00Z",
        "conditions": conditions,
        "containerStatuses": [{
            "name": "web",
            "image": "registry.example/shop/web:1.27",
            "containerID": format!("containerd://{number:064x}"),
            "ready": true,
            "started": true,
            "restartCount": turn,
            "state": { "running": { "startedAt": time(9) } },
            "lastState": { "terminated": { "exitCode": 1, "reason": "Error",
                "startedAt": time(1), "finishedAt": time(8) } },
        }],
    })
}

#[cfg(test)]
mod tests {
    use headwater_edge::Settings;
    use headwater_hub::HubLimits;

    use super::*;

    /// Heartbeats in a minute of silence.
    fn heartbeats_a_minute() -> u64 {
        60 / Settings::default().session.heartbeat_interval.as_secs()
    }

    #[test]
    fn a_change_of_a_status_goes_up_as_what_changed() {
        let mut link = Link::start(OBJECT_BYTES).expect("a hub");
        link.settings.session.heartbeat_interval = Duration::from_secs(3600);
        let (pods, changes) = (8, 24);
        begin(&mut link, pods).expect("an edge");
        let (said, ideal) = change(&link, pods, changes).expect("changes");
        let (up, ideal) = (said.up as f64 / f64::from(changes), ideal / f64::from(changes));
        println!("{up} bytes up a change, at least {ideal}");
        // 32 of them are the hash of the snapshot, 14 frames.
        assert!(up <= 1.3 * ideal, "{up} bytes up a change, at least {ideal}");
    }

    #[test]
    fn a_minute_of_silence_takes_six_heartbeats_and_nothing_else() {
        let interval = Settings::default().session.heartbeat_interval;
        assert!(
            interval + Duration::from_secs(2) <= HubLimits::default().keepalive_interval,
            "a hub pings an edge that beats every {interval:?}: both ends say more then"
        );
        let mut link = Link::start(OBJECT_BYTES).expect("a hub");
        link.settings.session.heartbeat_interval = Duration::from_secs(1);
        begin(&mut link, 8).expect("an edge");
        let mut before = link.quiet().expect("quiet").up;
        for _ in 0..3 {
            let now = wait("a heartbeat", || {
                let now = link.hop.traffic().up;
                (now > before).then_some(now)
            });
            let now = now.expect("a heartbeat");
            let minute = (now - before) * heartbeats_a_minute();
            println!("{minute} bytes up a minute");
            // 3 bytes a second; what frames it has 14 of each 28.
            assert!((120..=180).contains(&minute), "{minute} bytes up a minute");
            before = now;
        }
    }
}
