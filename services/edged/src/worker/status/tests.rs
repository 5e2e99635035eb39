//! Statuses as a kubelet reports them.

use std::net::Ipv4Addr;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::container::termination::StopSignal;
use crate::runtime::{RunHistory, SandboxState};
use crate::worker::plan::ContainerFacts;

struct PodCase {
    pod: Pod,
    containers: Containers,
    state: PodState,
    ready: BTreeSet<&'static str>,
    waiting: BTreeMap<String, WaitReason>,
    failing_probes: Vec<String>,
    ended: Option<Outcome>,
    fail_reason: Option<FailReason>,
    notes: Option<&'static str>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn given(spec: Value) -> PodCase {
    let metadata = json!({"name": "web", "namespace": "shop", "generation": 4});
    let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
    PodCase {
        pod,
        containers: Containers::new(),
        state: PodState::default(),
        ready: BTreeSet::new(),
        waiting: BTreeMap::new(),
        failing_probes: Vec::new(),
        ended: None,
        fail_reason: None,
        notes: None,
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        code,
        signal: None,
        started_at: Some(at(1)),
        finished_at: at(2),
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: None,
        interrupted: false,
    }
}

fn runs(attempt: u32, state: RunState, previous: Option<Exit>) -> RunHistory {
    let stop_signal = StopSignal::default();
    RunHistory { attempt, sandbox_attempt: 0, state, previous, image_id: None, stop_signal }
}

impl PodCase {
    fn running(mut self, name: &'static str, attempt: u32, previous: Option<Exit>) -> Self {
        let state = RunState::Running { started_at: at(3) };
        self.state.containers.insert(name.to_owned(), runs(attempt, state, previous));
        let now = ContainerFacts { run: Run::Running, started: true, ..ContainerFacts::default() };
        self.containers.insert(name.to_owned(), now);
        self.ready.insert(name);
        self
    }

    fn unready(mut self, name: &'static str) -> Self {
        self.ready.remove(name);
        self.change(name, |now| now.started = false)
    }

    fn change(mut self, name: &str, change: impl FnOnce(&mut ContainerFacts)) -> Self {
        change(self.containers.get_mut(name).expect("the container ran"));
        self
    }

    fn exited(mut self, name: &str, attempt: u32, exit: Exit) -> Self {
        let run = Run::Exited { code: exit.code, interrupted: false };
        let state = RunState::Exited(exit);
        self.state.containers.insert(name.to_owned(), runs(attempt, state, None));
        let now = ContainerFacts { run, ..ContainerFacts::default() };
        self.containers.insert(name.to_owned(), now);
        self
    }

    fn end_pending(mut self, name: &str, attempt: u32) -> Self {
        let state = RunState::EndPending { started_at: Some(at(3)) };
        self.state.containers.insert(name.to_owned(), runs(attempt, state, None));
        let now = ContainerFacts { run: Run::EndPending, ..ContainerFacts::default() };
        self.containers.insert(name.to_owned(), now);
        self
    }

    fn waiting(mut self, name: &str, reason: &'static str) -> Self {
        let waiting = WaitReason { reason, message: "because".to_owned() };
        self.waiting.insert(name.to_owned(), waiting);
        self
    }

    fn status(&self, before: Option<&PodStatus>, now: Timestamp) -> PodStatus {
        let uid = PodUid::try_from("u1".to_owned()).expect("plain");
        let facts = StatusFacts {
            pod: &self.pod,
            uid: &uid,
            containers: &self.containers,
            state: &self.state,
            ready: &self.ready,
            waiting: &self.waiting,
            failing_probes: &self.failing_probes,
            ended: self.ended,
            fail_reason: self.fail_reason,
            rejection: None,
            notes: self.notes,
            resources: ResourceFacts::default(),
            start_time: at(0),
            node_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            before,
        };
        derive(&facts, now)
    }

    fn json(&self) -> Value {
        serde_json::to_value(self.status(None, at(9))).expect("JSON")
    }
}

fn condition<'a>(
    status: &'a PodStatus,
    kind: &str,
) -> &'a k8s_openapi::api::core::v1::PodCondition {
    let conditions = status.conditions.as_deref().expect("conditions");
    conditions.iter().find(|c| c.type_ == kind).expect("the condition")
}

fn one() -> Value {
    json!({"containers": [{"name": "main", "image": "busybox"}]})
}

#[test]
fn a_pod_that_is_being_made_is_pending() {
    let status = given(one()).json();
    assert_eq!(status["phase"], "Pending");
    let state = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(state["reason"], "ContainerCreating");
    assert_eq!(status["podIP"], Value::Null);
}

#[test]
fn golden_a_running_pod_that_was_restarted() {
    let status = given(one()).running("main", 2, Some(exit(3))).json();
    let time = |second| at(second).to_string();
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time(9)});
    let wanted = json!({
        "phase": "Running",
        "observedGeneration": 4,
        "qosClass": "BestEffort",
        "startTime": time(0),
        "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [
            condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
            condition("ContainersReady"), condition("PodScheduled"),
        ],
        "containerStatuses": [{
            "name": "main", "image": "busybox", "imageID": "",
            "containerID": "headwater://u1/main/2",
            "ready": true, "started": true, "restartCount": 2,
            "state": {"running": {"startedAt": time(3)}},
            "lastState": {"terminated": {
                "containerID": "headwater://u1/main/1", "exitCode": 3, "reason": "Error",
                "startedAt": time(1), "finishedAt": time(2),
            }},
        }],
    });
    assert_eq!(status, wanted);
}

#[test]
fn a_container_in_back_off_waits_and_has_its_last_state() {
    let given = given(one()).exited("main", 1, exit(3)).waiting("main", "CrashLoopBackOff");
    let status = given.json();
    assert_eq!(status["phase"], "Running");
    let container = &status["containerStatuses"][0];
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
}

#[test]
fn a_pod_that_waits_for_its_init_container_has_the_reason() {
    let spec = json!({"initContainers": [{"name": "init"}], "containers": [{"name": "main"}]});
    let given = given(spec).running("init", 0, None);
    let status = given.status(None, at(9));
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let initialized = condition(&status, "Initialized");
    assert_eq!(initialized.status, "False");
    let message = "containers with incomplete status: [init]";
    // The init container is done when it has ended well, not when it runs.
    assert_eq!(initialized.message.as_deref(), Some(message));
}

#[test]
fn a_pod_that_ended_is_not_ready_and_has_the_reason() {
    for (outcome, phase, reason) in [
        (Outcome::Succeeded, "Succeeded", "PodCompleted"),
        (Outcome::Failed, "Failed", "PodFailed"),
    ] {
        let mut given = given(one()).exited("main", 0, exit(0));
        given.ended = Some(outcome);
        let status = given.status(None, at(9));
        assert_eq!(status.phase.as_deref(), Some(phase));
        let ready = condition(&status, "Ready");
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some(reason)));
    }
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let first = given(one()).status(None, at(5));
    let waits = given(one()).waiting("main", "CreateContainerConfigError");
    let second = waits.status(Some(&first), at(6));
    assert_eq!(condition(&second, "Ready").last_transition_time, Some(Time(at(5))));
    let third = given(one()).running("main", 0, None).status(Some(&second), at(7));
    assert_eq!(condition(&third, "Ready").last_transition_time, Some(Time(at(7))));
    assert_eq!(condition(&third, "PodScheduled").last_transition_time, Some(Time(at(5))));
}

#[test]
fn a_readiness_gate_has_to_be_opened_by_the_cloud() {
    let mut spec = one();
    spec["readinessGates"] = json!([{"conditionType": "shop/traffic"}]);
    let mut given = given(spec).running("main", 0, None);
    for (condition_status, wanted) in [
        (None, r#"corresponding condition of pod readiness gate "shop/traffic" does not exist."#),
        (
            Some("False"),
            r#"the status of pod readiness gate "shop/traffic" is not "True", but False"#,
        ),
        (Some("True"), ""),
    ] {
        let conditions = condition_status.map(|s| json!([{"type": "shop/traffic", "status": s}]));
        let status = json!({ "conditions": conditions });
        given.pod.status = Some(serde_json::from_value(status).expect("a status"));
        let status = given.status(None, at(9));
        assert_eq!(condition(&status, "ContainersReady").status, "True");
        let ready = condition(&status, "Ready");
        assert_eq!(ready.message.as_deref().unwrap_or_default(), wanted);
        let reason = (!wanted.is_empty()).then_some("ReadinessGatesNotReady");
        assert_eq!(ready.reason.as_deref(), reason);
        assert_eq!(ready.status, if wanted.is_empty() { "True" } else { "False" });
    }
}

fn with_sidecar() -> Value {
    json!({
        "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}],
    })
}

#[test]
fn a_sidecar_counts_in_the_readiness_of_its_pod() {
    let given = given(with_sidecar()).exited("init", 0, exit(0)).running("side", 0, None);
    let unready = given.running("main", 0, None).unready("side");
    let status = unready.status(None, at(9));
    let ready = condition(&status, "ContainersReady");
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [side]"));
    assert_eq!(condition(&status, "Ready").status, "False");
    let ready = unready.running("side", 0, None).status(None, at(9));
    assert_eq!(condition(&ready, "Ready").status, "True", "an init container does not count");
}

#[test]
fn a_pod_waits_for_a_sidecar_that_has_not_started() {
    let given = given(with_sidecar()).exited("init", 0, exit(0)).running("side", 0, None);
    let status = given.unready("side").status(None, at(9));
    let message = "containers with incomplete status: [side]";
    assert_eq!(condition(&status, "Initialized").message.as_deref(), Some(message));
}

#[test]
fn a_pod_that_starts_anew_after_a_boot_waits_and_keeps_its_last_states() {
    let earlier = |now: &mut ContainerFacts| now.in_earlier_sandbox = true;
    let given = given(with_sidecar()).exited("init", 0, exit(0)).exited("main", 0, exit(137));
    let given = given.change("init", earlier).change("main", earlier);
    let status = given.json();
    assert_eq!(status["phase"], "Running", "as under a kubelet, a phase does not go back");
    for (container, code) in
        [(&status["initContainerStatuses"][0], 0), (&status["containerStatuses"][0], 137)]
    {
        assert_eq!(container["ready"], false);
        assert_eq!(container["state"]["waiting"]["reason"], "PodInitializing");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], code);
    }
}

#[test]
fn the_status_names_an_image_that_needs_a_restart() {
    let image = |now: &mut ContainerFacts| now.run_image = Some("web:1".into());
    let given = given(one()).running("main", 0, None).change("main", image);
    let status = given.status(None, at(9));
    let needed = condition(&status, "headwater/RestartNeeded");
    assert_eq!((&*needed.status, needed.reason.as_deref()), ("True", Some("ImageChanged")));
    let message = needed.message.as_deref().expect("a message");
    assert!(message.contains("web:1") && message.contains("busybox"), "{message}");
    let of_run =
        |status: &PodStatus| status.container_statuses.clone().expect("one")[0].image.clone();
    assert_eq!(of_run(&status), "web:1", "the status names the image that runs");
    let same = given.change("main", |now| now.run_image = Some("busybox".into()));
    let kinds = same.status(None, at(9)).conditions.expect("conditions");
    assert!(kinds.iter().all(|condition| condition.type_ != "headwater/RestartNeeded"));
}

#[test]
fn the_termination_messages_of_a_pod_share_12_kib() {
    let containers: Vec<_> = (0..5).map(|n| json!({"name": format!("c{n}")})).collect();
    let long = Exit { message: Some("ä".repeat(2_048)), ..exit(1) };
    let mut given = given(json!({ "containers": containers }));
    for n in 0..5 {
        given = given.exited(&format!("c{n}"), 0, long.clone());
    }
    let status = given.json();
    let text = |n: usize| status["containerStatuses"][n]["state"]["terminated"]["message"].clone();
    // A fifth of 12 KiB is 2,457 bytes, and half a character is none.
    assert!((0..5).all(|n| text(n).as_str().is_some_and(|text| text.len() == 2_456)));
}

#[test]
fn image_ids_and_addresses_are_those_of_the_runtime() {
    let mut given = given(one()).running("main", 0, None);
    given.state.sandbox = SandboxState::Ready;
    given.state.addresses = vec![[10, 244, 0, 1].into(), "fd00::1".parse().expect("an address")];
    let runs = given.state.containers.get_mut("main").expect("it runs");
    runs.image_id = Some("sha256:00".into());
    let status = given.json();
    assert_eq!(status["podIP"], "10.244.0.1");
    assert_eq!(status["podIPs"], json!([{"ip": "10.244.0.1"}, {"ip": "fd00::1"}]));
    assert_eq!(status["hostIP"], "127.0.0.1");
    assert_eq!(status["containerStatuses"][0]["imageID"], "sha256:00");
    given.state.sandbox = SandboxState::Lost;
    let lost = given.status(None, at(9));
    assert_eq!(condition(&lost, "PodReadyToStartContainers").status, "False");
}

#[test]
fn a_pod_that_was_refused_states_the_reason() {
    let mut given = given(one());
    (given.ended, given.fail_reason) = (Some(Outcome::Failed), Some(FailReason::OutOfCpu));
    let status = given.json();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
    given.fail_reason = Some(FailReason::DeadlineExceeded);
    let status = given.json();
    assert_eq!(status["reason"], "DeadlineExceeded");
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status["message"], message);
}

#[test]
fn a_condition_names_the_fields_that_are_noted_and_is_absent_without_any() {
    let mut given = given(json!({"containers": [{"name": "web"}]}));
    let has = |status: &PodStatus| {
        let conditions = status.conditions.as_deref().expect("conditions");
        conditions.iter().any(|condition| condition.type_ == "headwater/SpecHonoured")
    };
    assert!(!has(&given.status(None, at(5))));
    given.notes = Some("spec.priority: the node does not rank pods");
    let status = given.status(None, at(5));
    let noted = condition(&status, "headwater/SpecHonoured");
    assert_eq!((&*noted.status, noted.reason.as_deref()), ("False", Some("FieldsIgnored")));
    assert_eq!(noted.message.as_deref(), given.notes);
}

#[test]
fn a_condition_names_the_probes_that_fail_until_the_pod_ends() {
    let mut given = given(one()).running("main", 0, None).unready("main");
    let kinds = |status: &PodStatus| {
        let conditions = status.conditions.clone().expect("conditions");
        conditions.into_iter().map(|condition| condition.type_).collect::<Vec<_>>()
    };
    let failing = || "headwater/ProbeFailing".to_owned();
    assert!(!kinds(&given.status(None, at(5))).contains(&failing()));
    given.failing_probes = vec!["first".to_owned(), "second".to_owned()];
    let status = given.status(None, at(5));
    let named = condition(&status, "headwater/ProbeFailing");
    assert_eq!((&*named.status, named.reason.as_deref()), ("True", Some("ProbeFailed")));
    assert_eq!(named.message.as_deref(), Some("first\nsecond"));
    given.ended = Some(Outcome::Failed);
    assert!(!kinds(&given.status(None, at(5))).contains(&failing()));
}

#[test]
fn a_container_whose_end_is_pending_stays_as_it_was_reported_and_is_not_ready() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a"}]});
    let status = given(spec).end_pending("a", 0).status(None, at(9));
    let container = &status.container_statuses.as_ref().expect("a status")[0];
    let state = container.state.as_ref().expect("a state");
    let running = state.running.as_ref().expect("no code is made up");
    assert_eq!(running.started_at, Some(Time(at(3))));
    assert_eq!((container.ready, container.started), (false, Some(false)));
    assert_eq!((container.restart_count, status.phase.as_deref()), (0, Some("Running")));
    assert!(!is_last(&PodStatus { phase: Some("Failed".to_owned()), ..status }), "more follows");
}

/// The state of a container, its last state, whether it is ready, and its id.
type ReportedStates = (Option<ContainerState>, Option<ContainerState>, bool, Option<String>);

fn states(status: &PodStatus) -> Vec<ReportedStates> {
    let all = [&status.init_container_statuses, &status.container_statuses];
    let all = all.into_iter().flatten().flatten();
    all.map(|it| (it.state.clone(), it.last_state.clone(), it.ready, it.container_id.clone()))
        .collect()
}

#[test]
fn an_end_that_was_reported_stays_while_it_is_pending_for_the_next_worker() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "a"}, {"name": "b"}],
    });
    let given = || given(spec.clone()).running("b", 0, None);
    let before = given().exited("init", 0, exit(0)).exited("a", 0, exit(3)).status(None, at(5));
    let pending = given().end_pending("init", 0).end_pending("a", 0);
    let after = pending.status(Some(&before), at(9));
    assert_eq!(states(&after), states(&before));
    assert!(states(&after)[0].2, "a step that was done is ready");
    // It is that of another run.
    let other = given().end_pending("init", 0).end_pending("a", 1).status(Some(&before), at(9));
    let state = states(&other)[1].0.clone();
    assert!(state.is_some_and(|state| state.running.is_some()), "{other:?}");
}

#[test]
fn a_container_that_waits_after_its_end_waits_on_while_that_is_pending_for_the_next_worker() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "a"}]});
    let waiting = given(spec.clone()).exited("a", 5, exit(1)).waiting("a", "CrashLoopBackOff");
    let before = waiting.status(None, at(5));
    let after = given(spec).end_pending("a", 5).status(Some(&before), at(9));
    assert_eq!(states(&after), states(&before));
}

#[test]
fn a_pending_end_of_an_evicted_pod_is_reported_as_lost_because_nothing_says_it_any_more() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a"}]});
    let mut given = given(spec).end_pending("a", 0);
    given.fail_reason = Some(FailReason::Evicted);
    given.ended = Some(Outcome::Failed);
    let status = given.status(None, at(9));
    let state = states(&status)[0].0.clone();
    let end = state.and_then(|state| state.terminated).expect("an end");
    assert_eq!((end.exit_code, end.finished_at), (137, None));
    assert_eq!(end.reason.as_deref(), Some("ContainerStatusUnknown"));
    assert!(is_last(&status), "nothing follows");
    given.fail_reason = Some(FailReason::DeadlineExceeded);
    assert!(!is_last(&given.status(None, at(9))), "its end follows");
}

#[test]
fn the_end_of_a_run_is_read_from_the_status_that_reported_it() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "a"}, {"name": "b"}]});
    let given = given(spec).exited("a", 5, exit(3)).running("b", 2, Some(exit(1)));
    let uid = PodUid::try_from("u1".to_owned()).expect("plain");
    let id = |name: &str, attempt| container_id(&uid, name, attempt);
    let ended = given.status(None, at(5));
    let waits = given.waiting("a", "CrashLoopBackOff").status(None, at(5));
    for status in [ended, waits] {
        assert_eq!(reported_exit(&status, &id("a", 5)), Some(exit(3)));
        assert_eq!(reported_exit(&status, &id("a", 6)), None, "it is another run");
        assert_eq!(reported_exit(&status, &id("b", 2)), None, "it runs");
    }
}
