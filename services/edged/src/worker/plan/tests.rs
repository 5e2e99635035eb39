//! The plans of pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::container::WaitReason;

const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(30);

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "web", "namespace": "shop"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn two_containers(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}))
}

fn running() -> ContainerFacts {
    ContainerFacts { run: Run::Running, started: true, ..ContainerFacts::default() }
}

fn exited(succeeded: bool) -> ContainerFacts {
    let run = Run::Exited { code: i32::from(!succeeded), interrupted: false };
    ContainerFacts { run, ..ContainerFacts::default() }
}

fn interrupted() -> ContainerFacts {
    let run = Run::Exited { code: 0, interrupted: true };
    ContainerFacts { run, ..ContainerFacts::default() }
}

fn are<const N: usize>(containers: [(&str, ContainerFacts); N]) -> Containers {
    containers.map(|(name, now)| (name.to_owned(), now)).into()
}

fn run_plan(pod: &Pod, containers: &Containers, now: Instant) -> Plan {
    plan(pod, Fate::Run, outcome(pod, containers), containers, now)
}

/// The plan for a runtime without sandboxes.
fn plan(
    pod: &Pod,
    fate: Fate,
    ended: Option<Outcome>,
    containers: &Containers,
    now: Instant,
) -> Plan {
    plan_in(Sandbox::Unneeded, pod, fate, ended, containers, now)
}

fn plan_in(
    sandbox: Sandbox,
    pod: &Pod,
    fate: Fate,
    ended: Option<Outcome>,
    containers: &Containers,
    now: Instant,
) -> Plan {
    super::plan(&facts(sandbox, pod, fate, ended, containers, now))
}

fn facts<'f>(
    sandbox: Sandbox,
    pod: &'f Pod,
    fate: Fate,
    ended: Option<Outcome>,
    containers: &'f Containers,
    now: Instant,
) -> PodFacts<'f> {
    let (is_discarded, is_final, resize_at) = (false, false, None);
    PodFacts { pod, fate, ended, sandbox, containers, is_discarded, is_final, resize_at, now }
}

fn start(name: &str) -> Action {
    Action::Start(name.to_owned())
}

#[test]
fn given_a_new_pod_all_its_containers_start() {
    let plan = run_plan(&two_containers("Always"), &are([]), Instant::now());
    assert_eq!(plan.actions, [start("a"), start("b")]);
    assert_eq!(plan.wake_at, None);
}

#[test]
fn given_everything_runs_nothing_is_done() {
    let containers = are([("a", running()), ("b", running())]);
    let plan = run_plan(&two_containers("Always"), &containers, Instant::now());
    assert_eq!(plan, Plan::default());
}

#[test]
fn a_container_that_ended_starts_again_by_its_policy() {
    let now = Instant::now();
    for (policy, succeeded, starts) in [
        ("Always", true, true),
        ("Always", false, true),
        ("OnFailure", true, false),
        ("OnFailure", false, true),
        ("Never", true, false),
        ("Never", false, false),
    ] {
        let containers = are([("a", exited(succeeded)), ("b", running())]);
        let plan = run_plan(&two_containers(policy), &containers, now);
        let wanted = if starts { vec![start("a")] } else { Vec::new() };
        assert_eq!(plan.actions, wanted, "{policy}, succeeded: {succeeded}");
    }
}

#[test]
fn a_container_that_the_machine_ended_starts_again_whatever_the_policy() {
    let containers = are([("a", interrupted()), ("b", running())]);
    let pod = two_containers("Never");
    assert_eq!(outcome(&pod, &containers), None);
    assert_eq!(run_plan(&pod, &containers, Instant::now()).actions, [start("a")]);
}

#[test]
fn what_runs_from_before_a_restart_of_all_containers_is_killed_before_the_first_one_starts() {
    let now = Instant::now();
    let pod = pod(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}, {"name": "b"}],
        "ephemeralContainers": [{"name": "shell"}],
    }));
    let superseded = |facts: ContainerFacts| ContainerFacts { is_superseded: true, ..facts };
    let kill = |name: &str| Action::Kill(name.to_owned());
    let mut containers = are([
        ("init", superseded(exited(true))),
        ("side", superseded(running())),
        ("a", superseded(exited(false))),
        ("b", superseded(running())),
        ("shell", running()),
    ]);
    assert_eq!(outcome(&pod, &containers), None, "no end of before counts");
    assert_eq!(run_plan(&pod, &containers, now).actions, [kill("side"), kill("b")]);
    containers.extend(are([("side", superseded(interrupted()))]));
    assert_eq!(run_plan(&pod, &containers, now).actions, [kill("b")]);
    // Then the pod starts like a new one.
    containers.extend(are([("b", superseded(interrupted()))]));
    assert_eq!(run_plan(&pod, &containers, now).actions, [start("init")]);
    containers.extend(are([("init", exited(true))]));
    assert_eq!(run_plan(&pod, &containers, now).actions, [start("side")]);
    containers.extend(are([("side", running())]));
    assert_eq!(run_plan(&pod, &containers, now).actions, [start("a"), start("b")]);
    containers.extend(are([("a", exited(true)), ("b", exited(true))]));
    assert_eq!(outcome(&pod, &containers), Some(Outcome::Succeeded));
}

#[test]
fn a_failing_container_waits_out_its_back_off() {
    let now = Instant::now();
    let until = now + 10 * SECOND;
    let blocked = ContainerFacts { blocked: Some((until, 160 * SECOND)), ..exited(false) };
    let containers = are([("a", blocked), ("b", running())]);
    let plan = run_plan(&two_containers("Always"), &containers, now);
    assert_eq!(plan.actions, []);
    assert_eq!(plan.wake_at, Some(until));
    assert_eq!(plan.waiting["a"].reason, "CrashLoopBackOff");
    let message = "back-off 2m40s restarting failed container=a pod=web";
    assert_eq!(plan.waiting["a"].message, message);
}

#[test]
fn a_container_that_lacks_something_waits_and_the_others_start() {
    let waiting = WaitReason { reason: "CreateContainerConfigError", message: "no map".to_owned() };
    let refused = ContainerFacts { refused: Some(waiting.clone()), ..ContainerFacts::default() };
    let plan = run_plan(&two_containers("Always"), &are([("a", refused)]), Instant::now());
    assert_eq!(plan.actions, [start("b")]);
    assert_eq!(plan.waiting["a"], waiting);
}

#[test]
fn init_containers_run_one_by_one_and_before_the_others() {
    let now = Instant::now();
    let pod = pod(json!({
        "initContainers": [
            {"name": "first"}, {"name": "side", "restartPolicy": "Always"}, {"name": "second"}],
        "containers": [{"name": "main"}],
    }));
    let not_started = ContainerFacts { started: false, ..running() };
    for (containers, wanted) in [
        (are([]), vec![start("first")]),
        (are([("first", running())]), vec![]),
        (are([("first", exited(false))]), vec![start("first")]),
        (are([("first", exited(true))]), vec![start("side")]),
        (are([("first", exited(true)), ("side", not_started)]), vec![]),
        (are([("first", exited(true)), ("side", running())]), vec![start("second")]),
        (
            are([("first", exited(true)), ("side", running()), ("second", exited(true))]),
            vec![start("main")],
        ),
        // A sidecar that ends starts again, and the finished ones stay finished.
        (
            are([
                ("first", exited(true)),
                ("side", exited(false)),
                ("second", exited(true)),
                ("main", running()),
            ]),
            vec![start("side")],
        ),
    ] {
        assert_eq!(run_plan(&pod, &containers, now).actions, wanted, "{containers:#?}");
    }
}

#[test]
fn a_pod_ends_for_good_only_when_nothing_would_start_again() {
    let ends = [
        ("Never", exited(true), exited(true), Some(Outcome::Succeeded)),
        ("Never", exited(true), exited(false), Some(Outcome::Failed)),
        ("Never", exited(true), running(), None),
        ("OnFailure", exited(true), exited(true), Some(Outcome::Succeeded)),
        ("OnFailure", exited(true), exited(false), None),
        ("Always", exited(true), exited(true), None),
        ("Never", exited(true), interrupted(), None),
    ];
    for (policy, a, b, wanted) in ends {
        let containers = are([("a", a), ("b", b)]);
        assert_eq!(
            outcome(&two_containers(policy), &containers),
            wanted,
            "{policy} {containers:?}"
        );
    }
}

#[test]
fn given_a_pod_that_ended_for_good_nothing_starts_even_if_its_runs_are_forgotten() {
    let pod = two_containers("Never");
    let plan = plan(&pod, Fate::Run, Some(Outcome::Failed), &are([]), Instant::now());
    assert_eq!(plan, Plan::default());
}

#[test]
fn a_container_ends_by_hook_then_sigterm_then_sigkill() {
    let since = Instant::now();
    let deadline = since + GRACE;
    let pod = pod(json!({"containers": [
        {"name": "a", "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}]}));
    let fate = Fate::End { deadline, then: FinalStep::AskDelete };
    let asked = since + 10 * SECOND;
    for (stopping, now, action, wake_at) in [
        (None, since, Some(Action::PreStop("a".to_owned())), None),
        (Some(Stopping::PreStop { done: false }), since + SECOND, None, Some(deadline)),
        (
            Some(Stopping::PreStop { done: true }),
            asked,
            Some(Action::Terminate("a".to_owned())),
            None,
        ),
        // A hook that takes all the time does not take the container's last two seconds.
        (
            Some(Stopping::PreStop { done: false }),
            deadline,
            Some(Action::Terminate("a".to_owned())),
            None,
        ),
        (
            Some(Stopping::Terminated { since: deadline }),
            deadline,
            None,
            Some(deadline + 2 * SECOND),
        ),
        (Some(Stopping::Terminated { since: asked }), asked, None, Some(deadline)),
        (
            Some(Stopping::Terminated { since: asked }),
            deadline,
            Some(Action::Kill("a".to_owned())),
            None,
        ),
        (Some(Stopping::Killed { since: deadline }), deadline, None, Some(deadline + 5 * SECOND)),
    ] {
        let containers = are([("a", ContainerFacts { stopping, ..running() })]);
        let plan = plan(&pod, fate, None, &containers, now);
        let wanted: Vec<_> = action.into_iter().collect();
        assert_eq!((plan.actions, plan.wake_at), (wanted, wake_at), "{stopping:?}");
    }
}

#[test]
fn without_any_grace_a_container_is_killed_at_once() {
    let now = Instant::now();
    let pod = two_containers("Always");
    let fate = Fate::End { deadline: now, then: FinalStep::CleanUp };
    let containers = are([("a", running()), ("b", exited(true))]);
    let plan = plan(&pod, fate, None, &containers, now);
    assert_eq!(plan.actions, [Action::Kill("a".to_owned())]);
}

#[test]
fn what_follows_the_end_comes_only_when_nothing_runs() {
    let now = Instant::now();
    let pod = two_containers("Always");
    for (then, follows) in [
        (FinalStep::AskDelete, Action::Discard),
        (FinalStep::CleanUp, Action::CleanUp),
        (FinalStep::Leave, Action::Leave),
    ] {
        let fate = Fate::End { deadline: now + GRACE, then };
        let still = are([("a", exited(true)), ("b", running())]);
        let plan_now = plan(&pod, fate, None, &still, now);
        assert_eq!(plan_now.actions, [Action::Terminate("b".to_owned())]);
        let ended = are([("a", exited(true)), ("b", exited(false))]);
        assert_eq!(plan(&pod, fate, None, &ended, now).actions, std::slice::from_ref(&follows));
        assert_eq!(plan(&pod, fate, None, &are([]), now).actions, [follows]);
        // What runs although the spec does not name it counts, too.
        let stranger = are([("stranger", running())]);
        let plan = plan(&pod, fate, None, &stranger, now);
        assert_eq!(plan.actions, [Action::Terminate("stranger".to_owned())]);
    }
}

#[test]
fn the_object_goes_only_when_nothing_of_the_pod_is_left() {
    let now = Instant::now();
    let (pod, containers) = (two_containers("Always"), are([("a", exited(true))]));
    let fate = Fate::End { deadline: now + GRACE, then: FinalStep::AskDelete };
    let of = |sandbox, containers, is_discarded| {
        let facts = facts(sandbox, &pod, fate, Some(Outcome::Succeeded), containers, now);
        super::plan(&PodFacts { is_discarded, resize_at: Some(now), ..facts }).actions
    };
    let runs = are([("a", running())]);
    assert_eq!(of(Sandbox::Ready, &runs, true), [Action::Terminate("a".to_owned())]);
    assert_eq!(of(Sandbox::Ready, &containers, true), [Action::Close]);
    assert_eq!(of(Sandbox::None, &containers, false), [Action::Discard]);
    assert_eq!(of(Sandbox::None, &containers, true), [Action::AskDelete]);
}

#[test]
fn sidecars_end_after_the_containers_that_lean_on_them() {
    let now = Instant::now();
    let pod = pod(json!({
        "initContainers": [{"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}],
    }));
    let fate = Fate::End { deadline: now + GRACE, then: FinalStep::AskDelete };
    let both = are([("side", running()), ("main", running())]);
    let first = plan(&pod, fate, None, &both, now);
    assert_eq!(first.actions, [Action::Terminate("main".to_owned())]);
    let one = are([("side", running()), ("main", exited(true))]);
    let second = plan(&pod, fate, None, &one, now);
    assert_eq!(second.actions, [Action::Terminate("side".to_owned())]);
    // The same when the pod ends by itself.
    let ended = plan(&pod, Fate::Run, Some(Outcome::Succeeded), &one, now);
    assert_eq!(ended.actions, [Action::Terminate("side".to_owned())]);
}

#[test]
fn sidecars_end_one_after_the_other_in_the_reverse_order_of_their_starts() {
    let now = Instant::now();
    let hook = json!({"preStop": {"exec": {"command": ["true"]}}});
    let pod = pod(json!({
        "initContainers": [
            {"name": "first", "restartPolicy": "Always", "lifecycle": hook},
            {"name": "second", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}],
    }));
    let end = |containers: &Containers, now| {
        let fate = Fate::End { deadline: now + GRACE, then: FinalStep::AskDelete };
        plan(&pod, fate, None, containers, now)
    };
    let terminate = |name: &str| Action::Terminate(name.to_owned());
    let all = are([("first", running()), ("second", running()), ("main", running())]);
    // As under a kubelet, the hook does not wait for its container's turn.
    let hook = Action::PreStop("first".to_owned());
    assert_eq!(end(&all, now).actions, [terminate("main"), hook]);
    let hooked = |done| ContainerFacts { stopping: Some(Stopping::PreStop { done }), ..running() };
    let two = are([("first", hooked(true)), ("second", running()), ("main", exited(true))]);
    assert_eq!(end(&two, now).actions, [terminate("second")]);
    let one = are([("first", hooked(true)), ("second", exited(true)), ("main", exited(true))]);
    assert_eq!(end(&one, now).actions, [terminate("first")]);
    // When the time is over no sidecar waits, and each has its two seconds.
    let late = Fate::End { deadline: now, then: FinalStep::AskDelete };
    let all = are([("first", hooked(false)), ("second", running()), ("main", running())]);
    let actions = plan(&pod, late, None, &all, now).actions;
    assert_eq!(actions, [Action::Kill("main".to_owned()), terminate("second"), terminate("first")]);
    // The same when the pod ends by itself.
    let ended = plan(&pod, Fate::Run, Some(Outcome::Succeeded), &two, now);
    assert_eq!(ended.actions, [terminate("second")]);
}

#[test]
fn a_sidecar_that_ended_starts_again_and_holds_up_no_later_container() {
    let now = Instant::now();
    let pod = pod(json!({
        "initContainers": [
            {"name": "side", "restartPolicy": "Always"}, {"name": "second"}, {"name": "third"}],
        "containers": [{"name": "main"}],
    }));
    let waits = ContainerFacts { started: false, ..running() };
    for (side, second, wanted) in [
        (exited(false), running(), vec![start("side")]),
        (exited(false), exited(true), vec![start("side"), start("third")]),
        (waits, exited(true), vec![start("third")]),
    ] {
        let containers = are([("side", side), ("second", second)]);
        assert_eq!(run_plan(&pod, &containers, now).actions, wanted, "{containers:#?}");
    }
}

#[test]
fn a_container_of_another_image_is_replaced_whatever_the_policy() {
    let since = Instant::now();
    let outdated = ContainerFacts { is_outdated: true, ..running() };
    let containers = are([("a", outdated.clone()), ("b", running())]);
    let plan = run_plan(&two_containers("Never"), &containers, since);
    assert_eq!(plan.actions, [Action::Terminate("a".to_owned())]);
    let now = since + GRACE;
    let asked = ContainerFacts { stopping: Some(Stopping::Terminated { since }), ..outdated };
    let plan = run_plan(&two_containers("Never"), &are([("a", asked), ("b", running())]), now);
    assert_eq!(plan.actions, [Action::Kill("a".to_owned())], "its grace period is over");
}

#[test]
fn an_unhealthy_container_ends_for_its_own_sake_and_the_others_run_on() {
    let now = Instant::now();
    let sick = ContainerFacts { unhealthy: Some(now + GRACE), ..running() };
    let containers = are([("a", sick), ("b", running())]);
    let plan = run_plan(&two_containers("Always"), &containers, now);
    assert_eq!(plan.actions, [Action::Terminate("a".to_owned())]);
}

#[test]
fn a_sandbox_is_opened_before_a_container_starts_and_closed_after_the_last_ended() {
    let now = Instant::now();
    let pod = two_containers("Always");
    let run = |sandbox, containers: &Containers| {
        plan_in(sandbox, &pod, Fate::Run, None, containers, now).actions
    };
    assert_eq!(run(Sandbox::None, &are([])), [Action::Open]);
    assert_eq!(run(Sandbox::Ready, &are([])), [start("a"), start("b")]);
    for (then, last) in [
        (FinalStep::AskDelete, Action::Discard),
        (FinalStep::CleanUp, Action::CleanUp),
        (FinalStep::Leave, Action::Leave),
    ] {
        let end = |sandbox, containers: &Containers| {
            let fate = Fate::End { deadline: now + GRACE, then };
            plan_in(sandbox, &pod, fate, None, containers, now).actions
        };
        let one = are([("a", exited(true)), ("b", running())]);
        assert_eq!(end(Sandbox::Ready, &one), [Action::Terminate("b".to_owned())]);
        let none = are([("a", exited(true)), ("b", exited(true))]);
        // A stop of the machine leaves the sandbox to the next start.
        let closes = then != FinalStep::Leave;
        let first = if closes { Action::Close } else { last.clone() };
        assert_eq!(end(Sandbox::Ready, &none), [first]);
        assert_eq!(end(Sandbox::None, &none), [last]);
    }
    let ended = are([("a", exited(true)), ("b", exited(true))]);
    let plan = plan_in(Sandbox::Ready, &pod, Fate::Run, Some(Outcome::Failed), &ended, now);
    assert_eq!(plan.actions, [Action::Close], "a pod that has ended needs no sandbox");
}

#[test]
fn a_lost_sandbox_ends_its_containers_and_a_new_one_starts_all_of_them() {
    let now = Instant::now();
    let pod = pod(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "main"}],
    }));
    let run = |sandbox, containers: &Containers| {
        plan_in(sandbox, &pod, Fate::Run, outcome(&pod, containers), containers, now).actions
    };
    let both = are([("init", exited(true)), ("main", running())]);
    assert_eq!(run(Sandbox::Lost, &both), [Action::Kill("main".to_owned())]);
    let ended = are([("init", exited(true)), ("main", interrupted())]);
    assert_eq!(run(Sandbox::Lost, &ended), [Action::Close]);
    assert_eq!(run(Sandbox::None, &ended), [Action::Open]);
    let earlier = |facts| ContainerFacts { in_earlier_sandbox: true, ..facts };
    let (init, main) = (earlier(exited(true)), earlier(interrupted()));
    let reopened = are([("init", init), ("main", main.clone())]);
    assert_eq!(run(Sandbox::Ready, &reopened), [start("init")]);
    let initialized = are([("init", exited(true)), ("main", main)]);
    assert_eq!(run(Sandbox::Ready, &initialized), [start("main")]);
}

#[test]
fn after_a_boot_of_the_machine_init_containers_and_sidecars_start_in_their_order() {
    let now = Instant::now();
    let pod = pod(json!({
        "restartPolicy": "OnFailure",
        "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}, {"name": "done"}],
    }));
    let earlier = |facts| ContainerFacts { in_earlier_sandbox: true, ..facts };
    let waits = ContainerFacts { started: false, ..running() };
    let mut containers = are([
        ("init", earlier(exited(true))),
        ("side", earlier(exited(false))),
        ("main", earlier(exited(false))),
        ("done", earlier(exited(true))),
    ]);
    for (name, facts, wanted) in [
        ("init", earlier(exited(true)), vec![start("init")]),
        ("init", running(), vec![]),
        ("init", exited(true), vec![start("side")]),
        ("side", waits, vec![]),
        // A main container that has done its work does not start again.
        ("side", running(), vec![start("main")]),
        ("main", running(), vec![]),
    ] {
        containers.insert(name.to_owned(), facts);
        assert_eq!(run_plan(&pod, &containers, now).actions, wanted, "{name}");
    }
}

#[test]
fn an_image_is_pulled_by_its_policy() {
    let now = Instant::now();
    let until = now + 10 * SECOND;
    let reason = WaitReason { reason: "ErrImagePull", message: "401".to_owned() };
    let failed =
        |until, told_until| ImageState::Failed { until, told_until, reason: reason.clone() };
    let invalid = ImageState::Invalid { message: "no name".to_owned() };
    let pull = || Some(Action::Pull("a".to_owned()));
    let present = |pulled| ImageState::Present { pulled };
    for (policy, image, action, waits) in [
        ("Always", ImageState::Absent, pull(), None),
        ("Always", present(false), pull(), None),
        ("Always", present(true), Some(start("a")), None),
        ("IfNotPresent", ImageState::Absent, pull(), None),
        ("IfNotPresent", present(false), Some(start("a")), None),
        ("Never", ImageState::Absent, None, Some("ErrImageNeverPull")),
        ("Never", present(false), Some(start("a")), None),
        ("Always", ImageState::Pulling, None, Some("ContainerCreating")),
        ("Always", ImageState::Unknown, None, Some("ImageInspectError")),
        ("Always", failed(until, now + SECOND), None, Some("ErrImagePull")),
        ("Always", failed(until, now), None, Some("ImagePullBackOff")),
        ("Always", failed(now, now), pull(), None),
        ("Always", invalid, None, Some("InvalidImageName")),
    ] {
        let spec = json!({"containers": [
            {"name": "a", "image": "web:1", "imagePullPolicy": policy}]});
        let containers =
            are([("a", ContainerFacts { image: image.clone(), ..Default::default() })]);
        let plan = plan_in(Sandbox::Ready, &pod(spec), Fate::Run, None, &containers, now);
        assert_eq!(plan.actions, action.into_iter().collect::<Vec<_>>(), "{policy}, {image:?}");
        assert_eq!(plan.waiting.get("a").map(|reason| reason.reason), waits, "{policy}, {image:?}");
        // A call that failed brings no news, so the worker looks again by itself.
        let wake_at = match waits {
            Some("ImageInspectError" | "ErrImagePull") => Some(now + SECOND),
            Some("ImagePullBackOff") => Some(until),
            _ => None,
        };
        assert_eq!(plan.wake_at, wake_at, "{policy}, {image:?}");
        let message = match waits {
            Some("ErrImagePull") => "401",
            Some("ImagePullBackOff") => "Back-off pulling image \"web:1\": ErrImagePull: 401",
            Some("InvalidImageName") => "no name",
            Some("ErrImageNeverPull") => {
                "Container image \"web:1\" is not present with pull policy of Never"
            }
            _ => continue,
        };
        assert_eq!(plan.waiting["a"].message, message);
    }
}

#[test]
fn a_pod_that_fails_ends_its_containers_and_is_refused_once() {
    let now = Instant::now();
    let pod = two_containers("Always");
    let reason = FailReason::Evicted;
    let fate = Fate::Fail { reason, deadline: now + GRACE };
    let fail = |sandbox, ended, containers: &Containers| {
        plan_in(sandbox, &pod, fate, ended, containers, now).actions
    };
    let one = are([("a", running()), ("b", exited(true))]);
    assert_eq!(fail(Sandbox::Ready, None, &one), [Action::Terminate("a".to_owned())]);
    let none = are([("a", exited(true)), ("b", exited(true))]);
    assert_eq!(fail(Sandbox::Ready, None, &none), [Action::Close]);
    assert_eq!(fail(Sandbox::None, None, &none), [Action::Refuse(reason)]);
    assert_eq!(fail(Sandbox::None, Some(Outcome::Failed), &none), []);
    assert_eq!(reason.as_str(), "Evicted");
}

mod pending_end;

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn any_container() -> impl Strategy<Value = ContainerFacts> {
        let run = prop_oneof![
            Just(Run::Never),
            Just(Run::Running),
            Just(Run::EndPending),
            (any::<bool>(), any::<bool>()).prop_map(|(succeeded, interrupted)| Run::Exited {
                code: i32::from(!succeeded),
                interrupted
            }),
        ];
        (run, any::<bool>()).prop_map(|(run, started)| ContainerFacts {
            run,
            started,
            ..ContainerFacts::default()
        })
    }

    proptest! {
        #[test]
        fn only_what_runs_is_stopped_and_only_what_does_not_run_is_started(
            all in proptest::collection::vec(any_container(), 4),
            policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
            ending in any::<bool>(),
        ) {
            let now = Instant::now();
            let pod = pod(json!({
                "restartPolicy": policy,
                "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
                "containers": [{"name": "a"}, {"name": "b"}],
            }));
            let names = ["i", "s", "a", "b"].map(str::to_owned);
            let containers: Containers = names.into_iter().zip(all).collect();
            let end = Fate::End { deadline: now + GRACE, then: FinalStep::AskDelete };
            let fate = if ending { end } else { Fate::Run };
            let plan = plan(&pod, fate, outcome(&pod, &containers), &containers, now);
            let runs = |name: &String| containers[name].run == Run::Running;
            let is_pending = |name: &String| containers[name].run == Run::EndPending;
            let none_runs = !containers.keys().any(runs);
            let none_is_pending = !containers.keys().any(is_pending);
            for action in &plan.actions {
                match action {
                    Action::Start(name) => {
                        prop_assert!(!runs(name) && !is_pending(name) && !ending);
                    }
                    Action::PreStop(name) | Action::Terminate(name) | Action::Kill(name) => {
                        prop_assert!(runs(name));
                    }
                    Action::Discard => {
                        prop_assert!(none_runs && none_is_pending && ending);
                    }
                    other => prop_assert!(false, "{other:?} was not asked for"),
                }
            }
            let goes_on = !plan.actions.is_empty() || (none_runs && !none_is_pending);
            prop_assert!(!ending || goes_on, "an end always goes on");
        }
    }
}

#[test]
fn an_ephemeral_container_starts_once_and_ends_with_the_main_ones() {
    let now = Instant::now();
    let pod = pod(json!({
        "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}], "ephemeralContainers": [{"name": "debug"}],
    }));
    let begun = [("init", exited(true)), ("side", running()), ("main", running())];
    let with = |debug: Option<ContainerFacts>| {
        let all = begun.clone().into_iter().chain(debug.map(|facts| ("debug", facts)));
        all.map(|(name, now)| (name.to_owned(), now)).collect::<Containers>()
    };
    // Before the pod is initialized, too; but no sandbox is opened for it.
    assert_eq!(run_plan(&pod, &are([("init", running())]), now).actions, [start("debug")]);
    let first = plan_in(Sandbox::None, &pod, Fate::Run, None, &are([]), now);
    assert_eq!(first.actions, [Action::Open]);
    assert_eq!(run_plan(&pod, &with(None), now).actions, [start("debug")]);
    for debug in [running(), exited(true), exited(false), interrupted()] {
        let earlier = ContainerFacts { in_earlier_sandbox: true, ..debug.clone() };
        for debug in [debug, earlier] {
            let containers = with(Some(debug));
            assert_eq!(run_plan(&pod, &containers, now), Plan::default(), "{containers:#?}");
        }
    }
    // Its end is not the pod's, and the pod's is its.
    assert_eq!(outcome(&pod, &with(Some(exited(false)))), None);
    let fate = Fate::End { deadline: now + GRACE, then: FinalStep::AskDelete };
    let end = |containers: &Containers| plan(&pod, fate, None, containers, now).actions;
    let terminate = |name: &str| Action::Terminate(name.to_owned());
    assert_eq!(end(&with(Some(running()))), [terminate("main"), terminate("debug")]);
    assert_eq!(end(&with(Some(exited(true)))), [terminate("main")]);
}
