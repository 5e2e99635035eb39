//! MetaSync: whatever is lost, repeated or restarted, the cloud ends with the node's snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use headwater_event::Boot;
use headwater_event::report::SnapshotClosed;
use headwater_event::{Report, ReportId, ResourceKey};
use headwater_store::{Failure, MemoryEngine, Survival};
use headwater_view::{NodeStatuses, ReportOutcome};
use proptest::prelude::*;

use super::super::ViewChange;
use super::super::outbox::OutboxSettings;
use super::super::pod_statuses::PodStatus;
use super::*;

#[derive(Debug, Default)]
struct StillClock;

impl Clock for StillClock {
    fn wall_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }
}

#[derive(Debug)]
struct SameChance(u64);

impl Chance for SameChance {
    fn draw(&self) -> u64 {
        self.0
    }
}

/// An upstream that a test feeds, and the session's end of its channel.
struct Bench {
    engine: Arc<MemoryEngine>,
    upstream: EdgeUpstream,
    events: mpsc::Receiver<UpstreamEvent>,
    status: watch::Receiver<UpstreamStatus>,
    settings: UpstreamSettings,
    starts: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(UpstreamSettings::default(), Arc::new(MemoryEngine::new()), 1)
    }

    fn with(settings: UpstreamSettings, engine: Arc<MemoryEngine>, starts: u64) -> Self {
        let (session, events) = mpsc::channel(1_000);
        let dependencies = UpstreamDependencies {
            engine: engine.clone(),
            clock: Arc::new(StillClock),
            chance: Arc::new(SameChance(starts)),
            session,
            metrics: EdgeCounts::default(),
        };
        let (upstream, status) =
            EdgeUpstream::open(node(), Incarnation(1), settings, dependencies).expect("opens");
        Self { engine, upstream, events, status, settings, starts }
    }

    /// Loses power and starts again. The replica reports the same view again.
    fn crash(self) -> Self {
        let engine = Arc::new(self.engine.crash(Survival::Synced));
        let (pods, complete) =
            (self.upstream.meta_sync.view.pods.clone(), self.upstream.meta_sync.view.complete);
        let requested = self.upstream.meta_sync.view.requested;
        let mut bench = Self::with(self.settings, engine, self.starts + 1);
        bench.view([
            ViewChange::Listed { pods, complete },
            ViewChange::SnapshotRequested(requested),
        ]);
        bench
    }

    fn ask(&mut self, command: UpstreamCommand) {
        block_on(self.upstream.run_group(command, || None)).expect("the engine works");
    }

    fn view(&mut self, changes: impl IntoIterator<Item = ViewChange>) {
        self.ask(UpstreamCommand::View(changes.into_iter().collect()));
    }

    fn list(&mut self, pods: &[(&str, &str)]) {
        let pods = pods.iter().map(|(name, uid)| (pod(name), (*uid).to_owned())).collect();
        self.view([ViewChange::Listed { pods, complete: true }]);
    }

    fn answer<T>(&mut self, command: impl FnOnce(oneshot::Sender<T>) -> UpstreamCommand) -> T {
        let (reply, mut answer) = oneshot::channel();
        self.ask(command(reply));
        answer.try_recv().expect("answered when the write is on disk")
    }

    fn status(&mut self, name: &str, uid: &str, phase: &str) -> Result<bool, OperationError> {
        let status = PodStatus { uid: uid.to_owned(), status: phase_of(phase) };
        self.answer(|reply| UpstreamCommand::SetStatus {
            pod: pod(name),
            status,
            cause: None,
            reply,
        })
    }

    fn outbox(&mut self) -> Vec<Report> {
        let all = PageRequest { after: None, count: usize::MAX, bytes: u64::MAX };
        self.upstream.writer.read(all).expect("reads").reports
    }

    fn bodies(&mut self) -> Vec<ReportBody> {
        self.outbox().into_iter().map(|report| report.body).collect()
    }

    fn forget_all(&mut self) -> Vec<Report> {
        let reports = self.outbox();
        if let Some(last) = reports.last() {
            self.ask(UpstreamCommand::Forget(last.id));
        }
        reports
    }

    fn tick(&mut self, now_ms: u64) {
        self.ask(UpstreamCommand::Tick(now_ms));
    }
}

fn node() -> NodeName {
    "gw-1".parse().expect("a node name")
}

fn pod(name: &str) -> ResourceKey {
    format!("d/pod/{name}").parse().expect("a key")
}

fn phase_of(phase: &str) -> Bytes {
    format!(r#"{{"phase":"{phase}"}}"#).into()
}

fn pod_status(name: &str, uid: &str, phase: &str) -> ReportBody {
    ReportBody::PodStatus { pod: pod(name), uid: uid.to_owned(), status: phase_of(phase) }
}

fn closing(body: Option<&ReportBody>) -> SnapshotClosed {
    match body {
        Some(ReportBody::SnapshotClosed(closed)) => *closed,
        other => panic!("should be the end of a snapshot: {other:?}"),
    }
}

#[test]
fn the_first_snapshot_is_full_and_the_next_have_the_changes() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1"), ("b", "u2")]);
    assert_eq!(bench.status("a", "u1", "Pending"), Ok(true));
    assert_eq!(bench.bodies(), [], "a full snapshot waits for the pod worker to name every pod");
    assert_eq!(bench.status("b", "u2", "Running"), Ok(true));
    let first = bench.forget_all();
    let bodies: Vec<_> = first.iter().map(|report| report.body.clone()).collect();
    assert_eq!(bodies[..2], [pod_status("a", "u1", "Pending"), pod_status("b", "u2", "Running")]);
    let closed = closing(bodies.get(2));
    assert!(closed.full && closed.pods == 2 && closed.first == first[0].id);

    assert_eq!(bench.status("a", "u1", "Running"), Ok(true));
    let next = bench.bodies();
    assert_eq!(next[..1], [pod_status("a", "u1", "Running")]);
    let closed = closing(next.get(1));
    assert!(!closed.full && closed.pods == 2);
}

#[test]
fn an_equal_snapshot_costs_nothing_but_a_heartbeat() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    bench.status("a", "u1", "Running").expect("known");
    bench.forget_all();
    let writes = bench.engine.counts().writes;
    assert_eq!(bench.status("a", "u1", "Running"), Ok(false));
    assert_eq!(bench.answer(|reply| UpstreamCommand::MetaSync { reply }), Ok(false));
    bench.tick(60_000);
    assert_eq!(bench.bodies(), []);
    assert_eq!(bench.engine.counts().writes, writes);
    assert_eq!(bench.status.borrow().last_meta_sync_ms, StillClock.wall_ms());
}

#[test]
fn a_status_of_an_unknown_pod_is_refused() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    for (name, uid) in [("b", "u1"), ("a", "u2")] {
        let refused = bench.status(name, uid, "Running").expect_err("unknown");
        assert!(matches!(refused, OperationError::NotFound(_)), "{refused:?}");
    }
}

#[test]
fn the_status_of_a_pod_that_left_goes_too() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1"), ("b", "u2")]);
    bench.status("a", "u1", "Running").expect("known");
    bench.status("b", "u2", "Running").expect("known");
    bench.forget_all();
    bench.view([ViewChange::PodGone { pod: pod("a"), uid: "u1".to_owned() }]);
    let bodies = bench.bodies();
    assert_eq!(bodies[..1], [ReportBody::PodStatusRemoved { pod: pod("a"), uid: "u1".to_owned() }]);
    assert_eq!(closing(bodies.get(1)).pods, 1);
}

#[test]
fn a_pod_that_is_gone_keeps_its_status_until_the_pod_worker_has_ended_it() {
    let gone = |name: &str| ViewChange::PodGone { pod: pod(name), uid: "u1".to_owned() };
    let removed =
        |name: &str| ReportBody::PodStatusRemoved { pod: pod(name), uid: "u1".to_owned() };
    let settings =
        UpstreamSettings { end_wait: Duration::from_secs(600), ..UpstreamSettings::default() };
    let mut bench = Bench::with(settings, Arc::new(MemoryEngine::new()), 1);
    bench.list(&[("a", "u1"), ("b", "u1"), ("c", "u1")]);
    for name in ["a", "b", "c"] {
        bench.status(name, "u1", "Running").expect("known");
    }
    bench.forget_all();
    bench.view(["a", "b", "c"].map(gone));
    assert_eq!(bench.bodies(), [], "the node has them still");
    bench.status("a", "u1", "Failed").expect_err("it is no pod of this node any longer");
    let remove = |uid: &str| {
        let (pod, uid) = (pod("a"), Some(uid.to_owned()));
        move |reply| UpstreamCommand::RemoveStatus { pod, uid, reply }
    };
    assert_eq!(bench.answer(remove("u2")), Ok(false), "another pod of the name");
    assert_eq!(bench.bodies(), []);
    assert_eq!(bench.answer(remove("u1")), Ok(true));
    let bodies: Vec<ReportBody> = bench.forget_all().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies[..1], [removed("a")]);
    assert_eq!(closing(bodies.get(1)).pods, 2);
    assert_eq!(bench.answer(remove("u1")), Ok(false));

    // The next pod of the name is here: the status of the earlier one goes with the next difference.
    bench.view([ViewChange::Pod { pod: pod("b"), uid: "u2".to_owned() }]);
    bench.status("b", "u2", "Running").expect("known");
    let bodies: Vec<ReportBody> = bench.forget_all().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies[..1], [pod_status("b", "u2", "Running")]);

    // The pod worker is away.
    bench.tick(599_999);
    assert_eq!(bench.bodies(), []);
    bench.tick(600_000);
    assert_eq!(bench.bodies()[..1], [removed("c")]);
}

#[test]
fn nothing_is_an_orphan_before_the_node_has_its_whole_stream() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    bench.status("a", "u1", "Running").expect("known");
    bench.forget_all();
    // The state database was lost: the view is empty until the hub has sent it anew.
    let mut bench = bench.crash();
    assert_eq!(bench.forget_all().len(), 1, "the closing of a start");
    bench.view([ViewChange::Listed { pods: BTreeMap::new(), complete: false }]);
    assert!(bench.answer(|reply| UpstreamCommand::MetaSync { reply }).is_err());
    bench.tick(600_000);
    assert_eq!(bench.bodies(), []);
    bench.list(&[("a", "u1")]);
    assert_eq!(bench.bodies(), [], "the pod is back, and its status never left");
}

#[test]
fn a_full_snapshot_waits_for_the_pod_worker_only_so_long() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1"), ("b", "u2")]);
    bench.status("a", "u1", "Running").expect("known");
    bench.tick(1_999);
    assert_eq!(bench.bodies(), []);
    bench.tick(2_000);
    let bodies = bench.bodies();
    assert_eq!(bodies[..1], [pod_status("a", "u1", "Running")]);
    assert!(closing(bodies.get(1)).full);
}

#[test]
fn the_cloud_gets_a_full_snapshot_when_it_asks_once() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    bench.status("a", "u1", "Running").expect("known");
    bench.forget_all();
    bench.view([ViewChange::SnapshotRequested(1)]);
    let reports = bench.forget_all();
    assert_eq!(reports[0].body, pod_status("a", "u1", "Running"));
    assert!(closing(reports.last().map(|report| &report.body)).full);
    let mut bench = bench.crash();
    let bodies = bench.bodies();
    assert!(!closing(bodies.first()).full, "the request was answered before the crash");
    assert_eq!(bodies.len(), 1);
}

#[test]
fn a_disk_from_a_backup_is_found_out_whatever_was_acknowledged_in_it() {
    for acknowledged in [false, true] {
        let mut cloud = NodeStatuses::new(&node());
        let mut fold = |reports: Vec<Report>| {
            reports.iter().map(|report| cloud.fold(report.id, &report.body)).last()
        };
        let mut bench = Bench::new();
        bench.list(&[("a", "u1")]);
        bench.status("a", "u1", "Running").expect("known");
        fold(if acknowledged { bench.forget_all() } else { bench.outbox() });
        let backup = bench.engine.crash(Survival::Synced);
        let mut bench = Bench::with(bench.settings, Arc::new(backup.reopen()), 2);
        bench.list(&[("a", "u1")]);
        bench.status("a", "u1", "Failed").expect("known");
        fold(bench.forget_all());

        // It starts twice before a report arrives: the cloud knows no boot as late as this one.
        let engine = Arc::new(backup.reopen());
        drop(Bench::with(bench.settings, engine.clone(), 3));
        let mut bench = Bench::with(bench.settings, engine, 4);
        bench.list(&[("a", "u1")]);
        assert_eq!(bench.status("a", "u1", "Running"), Ok(false), "to this disk it is no news");
        let outcome = fold(bench.forget_all());
        assert!(
            matches!(outcome, Some(ReportOutcome::Closed { agrees: false, .. })),
            "{outcome:?}"
        );
        bench.view([ViewChange::SnapshotRequested(1)]);
        let outcome = fold(bench.forget_all());
        assert!(matches!(outcome, Some(ReportOutcome::Closed { agrees: true, .. })), "{outcome:?}");
        assert_eq!(cloud.snapshot(), bench.upstream.meta_sync.statuses.snapshot());
    }
}

#[test]
fn a_later_closing_repeats_the_full_one_that_it_replaces() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    bench.status("a", "u1", "Pending").expect("known");
    let first = bench.outbox()[0].id;
    let mut bench = bench.crash();
    bench.status("a", "u1", "Running").expect("known");
    let closed = closing(bench.bodies().last());
    assert!(closed.full && closed.first == first, "{closed:?}");
    bench.forget_all();
    bench.status("a", "u1", "Failed").expect("known");
    assert!(!closing(bench.bodies().last()).full);
}

#[test]
fn a_termination_is_reported_of_a_pod_that_is_there() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    let end = |uid: &str| {
        let uid = uid.to_owned();
        |reply| UpstreamCommand::Terminate { pod: pod("a"), uid, cause: None, reply }
    };
    assert_eq!(bench.answer(end("u2")), Ok(false));
    assert_eq!(bench.answer(end("u1")), Ok(true));
    let gone = ReportBody::PodTerminated { pod: pod("a"), uid: "u1".to_owned() };
    assert!(bench.bodies().contains(&gone));
}

#[test]
fn a_raised_boot_issues_everything_anew_and_reports_everything() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    bench.status("a", "u1", "Running").expect("known");
    bench.forget_all();
    let object = Bytes::from_static(b"{}");
    let body = ReportBody::Node { object };
    let sent = body.clone();
    bench.answer(|reply| UpstreamCommand::Report { body, reply }).expect("room");
    let mut known = bench.upstream.identity();
    known.boot = Boot { number: 9, nonce: 4 };
    bench.ask(UpstreamCommand::Raise { known });
    let mut raised = None;
    while let Ok(event) = bench.events.try_recv() {
        if let UpstreamEvent::Raised(identity) = event {
            raised = Some(identity);
        }
    }
    assert_eq!(raised.expect("answered").boot.number, 10);
    let reports = bench.outbox();
    assert!(reports.iter().all(|report| report.id.boot == 10), "{reports:?}");
    assert_eq!(reports[0].body, sent);
    assert_eq!(reports[1].body, pod_status("a", "u1", "Running"), "the cloud may know another");
    assert!(closing(reports.last().map(|report| &report.body)).full);
}

#[test]
fn a_snapshot_without_room_is_reported_once_there_is_some() {
    let settings = UpstreamSettings {
        outbox: OutboxSettings { reports_max: 2, bytes_max: 1 << 20 },
        ..UpstreamSettings::default()
    };
    let mut bench = Bench::with(settings, Arc::new(MemoryEngine::new()), 1);
    bench.list(&[]);
    bench.forget_all();
    bench.list(&[("a", "u1"), ("b", "u2"), ("c", "u3")]);
    let mut cloud = NodeStatuses::new(&node());
    for (name, uid) in [("a", "u1"), ("b", "u2"), ("c", "u3")] {
        bench.status(name, uid, "Running").expect("known");
    }
    assert!(bench.status.borrow().trouble.is_some(), "a full outbox is a trouble");
    for _ in 0..9 {
        for report in bench.forget_all() {
            cloud.fold(report.id, &report.body);
        }
    }
    assert_eq!(bench.status.borrow().trouble, None);
    assert_eq!(cloud.snapshot(), bench.upstream.meta_sync.statuses.snapshot());
    assert!(!cloud.differs() && cloud.snapshot().len() == 3);
}

#[test]
fn a_report_that_the_cloud_refuses_is_named_and_leaves_the_outbox() {
    let mut bench = Bench::new();
    let key: ResourceKey = "d/result/f".parse().expect("a key");
    let body = ReportBody::Message { key, content: Bytes::from_static(b"[]") };
    let sent = bench.answer(|reply| UpstreamCommand::Report { body, reply });
    sent.expect("there is room");
    let id = bench.outbox()[0].id;
    bench.ask(UpstreamCommand::Refused(RefusedReport { id, reason: "too large".to_owned() }));
    bench.ask(UpstreamCommand::Forget(id));
    assert_eq!(bench.outbox(), []);
    let shown = "the cloud refused 1 reports for good; the last: d/result/f: too large";
    assert_eq!(bench.status.borrow().trouble.as_deref(), Some(shown));
}

#[test]
fn a_status_that_the_cloud_refuses_is_reported_once_until_it_changes() {
    let mut bench = Bench::new();
    let mut cloud = NodeStatuses::new(&node());
    // The topic takes no status of this phase.
    let is_refused = |body: &ReportBody| *body == pod_status("a", "u1", "Running");
    let mut sent = 0;
    let mut deliver = |bench: &mut Bench| {
        let reports = bench.outbox();
        for Report { id, body, .. } in &reports {
            if is_refused(body) {
                sent += 1;
                let reason = "too large".to_owned();
                bench.ask(UpstreamCommand::Refused(RefusedReport { id: *id, reason }));
            } else {
                cloud.fold(*id, body);
            }
        }
        if let Some(last) = reports.last() {
            bench.ask(UpstreamCommand::Forget(last.id));
        }
        (sent, cloud.differs(), cloud.snapshot().len())
    };
    bench.list(&[("a", "u1"), ("b", "u2")]);
    bench.status("a", "u1", "Pending").expect("known");
    bench.status("b", "u2", "Running").expect("known");
    assert_eq!(deliver(&mut bench), (0, false, 2));
    bench.status("a", "u1", "Running").expect("known");
    assert_eq!(deliver(&mut bench), (1, true, 2), "the end counts the status");
    assert_eq!(deliver(&mut bench), (1, false, 1), "the next one does not");
    assert_eq!(bench.bodies(), []);
    for requested in 1..=3 {
        bench.view([ViewChange::SnapshotRequested(requested)]);
        assert_eq!(deliver(&mut bench), (1, false, 1));
    }
    let status = bench.status.borrow().trouble.clone().expect("named");
    assert!(status.contains("refused 1 reports") && status.contains("too large"), "{status}");

    bench.status("a", "u1", "Succeeded").expect("known");
    assert_eq!(deliver(&mut bench), (1, false, 2));
    assert_eq!(bench.bodies(), []);
}

#[test]
fn a_failed_write_answers_no_caller() {
    let mut bench = Bench::new();
    bench.list(&[("a", "u1")]);
    bench.engine.fail_write(1, Failure { disk_full: true, took_effect: true });
    let status = PodStatus { uid: "u1".to_owned(), status: phase_of("Running") };
    let (reply, mut answer) = oneshot::channel();
    let command = UpstreamCommand::SetStatus { pod: pod("a"), status, cause: None, reply };
    let failed =
        block_on(bench.upstream.run_group(command, || None)).expect_err("the disk is full");
    assert!(matches!(failed, EngineError::Write { disk_full: true, .. }), "{failed:?}");
    assert!(answer.try_recv().is_err(), "no answer arrives before the sync");
    assert!(bench.events.try_recv().is_err(), "and the session is not");
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, u8),
    Remove(u8),
    Status(u8, u8),
    /// The cloud acknowledges this share of the outbox, in 256ths; some of it twice.
    Acknowledge(u8),
    Crash,
    Request,
    Raise,
    Tick,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..5, 0_u8..2).prop_map(|(pod, uid)| Step::Add(pod, uid)),
        2 => (0_u8..5).prop_map(Step::Remove),
        8 => (0_u8..5, 0_u8..4).prop_map(|(pod, phase)| Step::Status(pod, phase)),
        4 => any::<u8>().prop_map(Step::Acknowledge),
        2 => Just(Step::Crash),
        1 => Just(Step::Request),
        1 => Just(Step::Raise),
        2 => Just(Step::Tick),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever is lost, repeated or restarted on the way: once the outbox is empty, the cloud
    /// has the node's snapshot, and no report id was used for two contents.
    #[test]
    fn the_cloud_ends_with_the_snapshot_of_the_node(steps in steps()) {
        let mut bench = Bench::new();
        let mut cloud = NodeStatuses::new(&node());
        let mut seen: BTreeMap<ReportId, ReportBody> = BTreeMap::new();
        let mut now_ms = 0;
        let mut requested = 0;
        bench.list(&[]);
        for step in steps {
            match step {
                Step::Add(pod_number, uid) => bench.view([ViewChange::Pod {
                    pod: pod(&pod_number.to_string()),
                    uid: format!("u{uid}"),
                }]),
                Step::Remove(number) => {
                    let pod = pod(&number.to_string());
                    if let Some(uid) = bench.upstream.meta_sync.view.pods.get(&pod).cloned() {
                        bench.view([ViewChange::PodGone { pod, uid }]);
                    }
                }
                Step::Status(number, phase) => {
                    let name = number.to_string();
                    if let Some(uid) = bench.upstream.meta_sync.view.pods.get(&pod(&name)).cloned() {
                        bench.status(&name, &uid, &phase.to_string()).expect("known");
                    }
                }
                Step::Acknowledge(share) => {
                    let reports = bench.outbox();
                    let count = reports.len() * usize::from(share) / 255;
                    for report in &reports[..count] {
                        cloud.fold(report.id, &report.body);
                    }
                    if let Some(last) = count.checked_sub(1) {
                        // Half of the time the acknowledgement is lost.
                        if share % 2 == 0 {
                            bench.ask(UpstreamCommand::Forget(reports[last].id));
                        }
                    }
                }
                Step::Crash => bench = bench.crash(),
                Step::Request => {
                    requested += 1;
                    bench.view([ViewChange::SnapshotRequested(requested)]);
                }
                Step::Raise => {
                    let known = bench.upstream.identity();
                    bench.ask(UpstreamCommand::Raise { known });
                }
                Step::Tick => {
                    now_ms += 3_000;
                    bench.tick(now_ms);
                }
            }
            for report in bench.outbox() {
                let before = seen.insert(report.id, report.body.clone());
                prop_assert!(before.is_none_or(|before| before == report.body), "{}", report.id);
            }
        }
        // Everything settles: the pod worker speaks, time passes, the hub takes all.
        bench.tick(now_ms + 5_000);
        bench.tick(now_ms + 70_000);
        let mut agreed = true;
        for report in bench.forget_all() {
            if let ReportOutcome::Closed { agrees, .. } = cloud.fold(report.id, &report.body) {
                agreed = agrees;
            }
        }
        prop_assert!(agreed && !cloud.differs());
        prop_assert_eq!(cloud.snapshot(), bench.upstream.meta_sync.statuses.snapshot());
        prop_assert_eq!(bench.outbox(), []);
    }
}
