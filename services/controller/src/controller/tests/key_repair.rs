//! An old report that comes late is not what compaction keeps.

use super::*;

impl Running {
    /// Waits until so many reports were appended once more.
    async fn has_repaired(&self, count: f64) {
        let series = "headwater_controller_repaired_reports_total";
        until_true("a repair", async || metrics::value(&self.registry, series) == Some(count))
            .await;
    }
}

impl World {
    /// So much time passes that only the last record of each key is left, and no tombstone.
    pub(super) fn weeks_pass(&self) {
        for _ in 0..2 {
            self.upstream.advance_clock(100 * 24 * 3600 * 1000);
            self.upstream.compact();
        }
    }

    /// The phase of the pod as a controller shows it that knows nothing but the logs.
    async fn phase_anew(&self) -> Option<String> {
        let running = self.elsewhere().start().await;
        running.list([pod("p", "c")]).await;
        running.folds("a").await;
        // Its picture is whole when the last of what is there has been folded.
        let node = |seq| self.report("a", seq, ReportBody::Node { object: "{}".into() });
        node(1000).await;
        let filter = Filter { kind: "node", namespace: "", name: "a" };
        until_true("the last report", async || {
            let objects = running.controller.picture().objects(&filter, 0).expect("readable");
            objects.values().any(|node| node["status"]["conditions"].is_array())
        })
        .await;
        let phase = phase(&running).await;
        running.controller.stop().await;
        phase
    }
}

fn closed(pods: &[&str]) -> ReportBody {
    let mut snapshot = PodStatusSnapshot::new(&"a".parse().expect("a name"));
    for phase in pods {
        let ReportBody::PodStatus { pod, uid, status } = status(phase) else { continue };
        snapshot.set(pod, headwater_view::StatusDigest::of(&uid, &status));
    }
    let (hash, pods) = (snapshot.hash(), snapshot.len() as u64);
    ReportBody::SnapshotClosed(SnapshotClosed {
        hash,
        pods,
        full: false,
        first: ReportId::default(),
    })
}

fn removed() -> ReportBody {
    ReportBody::PodStatusRemoved { pod: pod_key(), uid: "u-p".to_owned() }
}

#[tokio::test]
async fn the_newest_status_outlives_an_old_one_that_came_late() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    running.reconciled(0).await;
    world.report("a", 5, status("Running")).await;
    world.report("a", 4, status("Stale")).await;
    running.has_repaired(1.0).await;
    running.controller.stop().await;
    world.weeks_pass();
    assert_eq!(world.phase_anew().await.as_deref(), Some("Running"));
}

#[tokio::test]
async fn a_pod_that_is_long_gone_does_not_come_back() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    running.reconciled(0).await;
    for (seq, body) in [
        (1, status("Running")),
        (2, closed(&["Running"])),
        (3, removed()),
        (4, closed(&[])),
        // What an append of unknown outcome held back.
        (1, status("Running")),
        (2, closed(&["Running"])),
    ] {
        world.report("a", seq, body).await;
    }
    running.has_repaired(2.0).await;
    running.controller.stop().await;
    world.weeks_pass();
    assert_eq!(world.phase_anew().await.as_deref(), Some("Pending"), "no node reports anything");
    assert!(!world.events_in("node/a").await.iter().any(|event| event.contains("request")));
}

#[tokio::test]
async fn only_the_writer_repairs_also_after_a_restart() {
    let world = World::new();
    let running = world.start().await;
    world.report("a", 5, status("Running")).await;
    world.report("a", 4, status("Stale")).await;
    let of = |series: &str| metrics::value(&running.registry, series);
    until_true("the old one", async || of("headwater_controller_stale_reports_total") == Some(1.0))
        .await;
    assert_eq!(of("headwater_controller_repaired_reports_total"), Some(0.0), "nothing is listed");
    running.controller.stop().await;

    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    running.has_repaired(1.0).await;
    running.controller.stop().await;
    world.weeks_pass();
    assert_eq!(world.phase_anew().await.as_deref(), Some("Running"));
}

#[tokio::test]
async fn a_repair_of_unknown_outcome_is_made_again() {
    let world = World::new();
    let (source, script) = script();
    let upstream = world.upstream.handle();
    let running = world.start_reading(upstream.clone(), vec![script], source).await;
    running.list([pod("p", "c")]).await;
    running.reconciled(0).await;
    upstream.inject_fault(AppendFault::UnknownLost);
    world.report("a", 5, status("Running")).await;
    world.report("a", 4, status("Stale")).await;
    running.has_repaired(1.0).await;
    running.controller.stop().await;
    world.weeks_pass();
    assert_eq!(world.phase_anew().await.as_deref(), Some("Running"));
}

#[tokio::test]
async fn a_report_that_the_log_refuses_is_left_out_and_the_others_are_not() {
    let world = World::new();
    let running = world.start().await;
    world.report("a", 5, status("Running")).await;
    world.report("a", 6, ReportBody::Node { object: "{}".into() }).await;
    world.report("a", 4, status("Stale")).await;
    world.report("a", 3, ReportBody::Node { object: "{}".into() }).await;
    running.folds("a").await;
    running.controller.stop().await;

    let (source, script) = script();
    let upstream = world.upstream.handle();
    // The append of both, and then the append of one of them.
    upstream.inject_fault(AppendFault::Rejected);
    upstream.inject_fault(AppendFault::Rejected);
    let running = world.start_reading(upstream, vec![script], source).await;
    running.list([pod("p", "c")]).await;
    running.has_repaired(1.0).await;
    running.controller.stop().await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_costs_an_epoch_and_delays_no_node() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let before = running.controller.progress().borrow().epoch;
    let record = Record {
        key: "node/a d/configmap/c".into(),
        value: Some("{}".into()),
        header: Bytes::from_static(b"\xff"),
        traceparent: None,
    };
    let partition = StreamId::node(&"a".parse().expect("a name")).partition(2);
    world.downstream.append(vec![Append { partition, record }]).await.expect("there is room");
    running.reconciled(before.0).await;
    running.set(config("c", 2, "y")).await;
    until_true("the change", async || {
        let (events, _) = world.read().await;
        let says_y = |event: &Envelope| match &event.event {
            Event::Applied(applied) => applied.object.windows(3).any(|it| it == b"\"y\""),
            Event::Removed(_) | Event::Head => false,
        };
        events.iter().any(says_y)
    })
    .await;
    running.controller.stop().await;
}
