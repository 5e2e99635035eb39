//! The plans of pods with a container of which it is not known how it ended.

use super::*;

fn pending() -> ContainerFacts {
    ContainerFacts { run: Run::EndPending, ..ContainerFacts::default() }
}

#[test]
fn a_container_whose_end_is_pending_is_neither_stopped_nor_started_whatever_its_policy() {
    let now = Instant::now();
    for policy in ["Always", "OnFailure", "Never"] {
        let pod = two_containers(policy);
        let containers = are([("a", pending()), ("b", running())]);
        let run = |sandbox| plan_in(sandbox, &pod, Fate::Run, None, &containers, now).actions;
        assert_eq!(outcome(&pod, &containers), None, "{policy}");
        assert_eq!(run(Sandbox::Ready), [], "{policy}");
        // What runs in a lost sandbox ends with it.
        assert_eq!(run(Sandbox::Lost), [Action::Kill("b".to_owned())], "{policy}");
        let both = are([("a", pending()), ("b", pending())]);
        let run = |sandbox| plan_in(sandbox, &pod, Fate::Run, None, &both, now).actions;
        assert_eq!(run(Sandbox::Lost), [Action::Close], "{policy}");
        assert_eq!(run(Sandbox::None), [], "{policy}: no other sandbox is opened for them");
    }
    let steps = json!({
        "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}],
    });
    let steps = pod(steps);
    let init = ContainerFacts { in_earlier_sandbox: true, ..pending() };
    for init in [pending(), init] {
        assert_eq!(run_plan(&steps, &are([("init", init)]), now), Plan::default());
    }
    let side = are([("init", exited(true)), ("side", pending()), ("main", running())]);
    assert_eq!(run_plan(&steps, &side, now), Plan::default());
}

#[test]
fn an_object_is_deleted_when_it_is_known_how_its_containers_ended_and_what_has_none_goes_at_once() {
    let now = Instant::now();
    let pod = two_containers("Never");
    let one = are([("a", pending()), ("b", exited(true))]);
    let known = are([("a", exited(true)), ("b", exited(true))]);
    let end = |then, deadline, containers: &Containers| {
        let fate = Fate::End { deadline, then };
        plan_in(Sandbox::None, &pod, fate, None, containers, now)
    };
    // Past its grace period, too.
    assert_eq!(end(FinalStep::AskDelete, now, &one), Plan::default());
    assert_eq!(end(FinalStep::AskDelete, now, &known).actions, [Action::Discard]);
    assert_eq!((stopped(&pod, &one), stopped(&pod, &known)), (None, Some(Outcome::Succeeded)));
    assert_eq!(end(FinalStep::CleanUp, now + GRACE, &one).actions, [Action::CleanUp]);
    let leave = end(FinalStep::Leave, now + GRACE, &one);
    assert_eq!((leave.actions, leave.wake_at), (vec![], Some(now + GRACE)));
    assert_eq!(end(FinalStep::Leave, now, &one).actions, [Action::Leave]);
}

#[test]
fn a_pod_that_has_failed_waits_for_a_code_until_its_last_status_was_reported() {
    let now = Instant::now();
    let pod = two_containers("Never");
    let containers = are([("a", pending()), ("b", exited(true))]);
    let fate = Fate::End { deadline: now + GRACE, then: FinalStep::AskDelete };
    let actions = |ended, is_final| {
        let facts = facts(Sandbox::None, &pod, fate, ended, &containers, now);
        super::super::plan(&PodFacts { is_final, ..facts }).actions
    };
    assert_eq!(actions(Some(Outcome::Succeeded), false), []);
    assert_eq!(actions(Some(Outcome::Succeeded), true), [Action::Discard]);
    assert_eq!(actions(Some(Outcome::Failed), false), []);
    assert_eq!(actions(Some(Outcome::Failed), true), [Action::Discard]);
}
