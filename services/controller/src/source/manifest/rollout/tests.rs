//! Rollouts step by step, and their bounds under statuses of any order.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The pods of one workload in a cluster that does what its rollout asks.
struct Cluster {
    rule: Rule,
    /// By name: the template of each pod, and its state.
    pods: BTreeMap<String, (u32, PodState)>,
    /// The present template.
    template: u32,
    nodes: Vec<NodeName>,
    is_leaving: bool,
    now: Timestamp,
    next: Option<Timestamp>,
    condition: Option<JobCondition>,
    progress: Option<DeploymentProgress>,
    ended: BTreeMap<String, String>,
}

/// What one step changed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    gone: Vec<String>,
    new: Vec<String>,
}

impl Cluster {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            pods: BTreeMap::new(),
            template: 1,
            nodes: Vec::new(),
            is_leaving: false,
            now: time(1_000),
            next: None,
            condition: None,
            progress: None,
            ended: BTreeMap::new(),
        }
    }

    fn names(&self) -> Vec<String> {
        match self.rule {
            Rule::StatefulSet(_) => (0..50).map(|at| format!("w-{at}")).collect(),
            Rule::DaemonSet(_) => {
                self.nodes.iter().map(|node| format!("{node}.{}", self.template)).collect()
            }
            Rule::Deployment(_) => (0..99).map(|at| format!("{}.{at:02}", self.template)).collect(),
            Rule::Replicas(_) | Rule::Job(_) => (0..99).map(|at| format!("{at:02}")).collect(),
        }
    }

    /// Decides, and does it. A pod that is made is not Ready.
    fn step(&mut self) -> Step {
        let live: Vec<LivePod> = self
            .pods
            .iter()
            .map(|(name, (template, state))| LivePod {
                name: name.clone(),
                node: name.split(['.', '-']).next().and_then(|node| node.parse().ok()),
                is_current: *template == self.template,
                created: Some(time(1_000)),
                ended: self.ended.get(name).cloned(),
                state: state.clone(),
            })
            .collect();
        let mut clock = RolloutClock::new(self.now);
        let rollout = self.rule.roll(RolloutContext {
            pods: &live,
            is_leaving: &|| self.is_leaving,
            nodes: &self.nodes,
            names: &mut self.names().into_iter(),
            clock: &mut clock,
        });
        self.next = clock.next();
        (self.condition, self.progress) = (rollout.condition, rollout.progress);
        let mut step = Step::default();
        let mut next = BTreeMap::new();
        for pod in rollout.pods {
            let before = self.pods.remove(&pod.name);
            let is_same = before.as_ref().is_some_and(|(template, _)| {
                pod.content != PodContent::Template || *template == self.template
            });
            if let PodContent::Ended(reason) = pod.content {
                self.ended.insert(pod.name.clone(), reason.to_owned());
            }
            match before.filter(|_| is_same) {
                Some(before) => next.insert(pod.name, before),
                None => {
                    step.new.push(pod.name.clone());
                    next.insert(pod.name, (self.template, PodState::default()))
                }
            };
        }
        step.gone.extend(std::mem::replace(&mut self.pods, next).into_keys());
        step
    }

    fn set_ready(&mut self, name: &str, is_ready: bool) {
        let (_, state) = self.pods.get_mut(name).expect("the pod is there");
        state.ready_since = is_ready.then_some(self.now);
        state.is_unready = !is_ready;
    }

    fn all_ready(&mut self) {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        names.iter().for_each(|name| self.set_ready(name, true));
    }

    fn end(&mut self, name: &str, phase: Phase) {
        let (_, state) = self.pods.get_mut(name).expect("the pod is there");
        *state = PodState { phase, finished: Some(self.now), ..PodState::default() };
    }

    /// Steps until nothing changes while every pod becomes Ready.
    fn settle(&mut self) {
        for _ in 0..500 {
            self.all_ready();
            if self.step() == Step::default() {
                return;
            }
        }
        panic!("the rollout does not end");
    }

    fn count(&self, template: u32) -> usize {
        self.pods.values().filter(|(one, _)| *one == template).count()
    }

    fn ready(&self) -> usize {
        self.pods.values().filter(|(_, state)| state.ready_since.is_some()).count()
    }
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn deployment(replicas: u64, surge: Value, unavailable: Value) -> Rule {
    let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    Rule::deployment(&json!({"strategy": {"rollingUpdate": rolling}}), replicas).expect("valid")
}

fn job(spec: Value) -> Rule {
    let number = |field: &str| spec[field].as_u64();
    Rule::job(&spec, number("completions"), number("parallelism")).expect("valid")
}

#[test]
fn the_first_rollout_of_a_deployment_makes_all_pods_at_once() {
    let mut cluster = Cluster::new(deployment(4, json!(null), json!(null)));
    assert_eq!(cluster.step().new.len(), 4);
    assert_eq!(cluster.step(), Step::default());
}

#[test]
fn a_deployment_rolls_by_its_surge_and_waits_for_each_new_pod() {
    let mut cluster = Cluster::new(deployment(2, json!(1), json!(0)));
    cluster.settle();
    cluster.template = 2;
    assert_eq!(cluster.step(), Step { gone: vec![], new: vec!["2.00".to_owned()] });
    assert_eq!(cluster.step(), Step::default(), "the new pod is not Ready");
    cluster.set_ready("2.00", true);
    let step = cluster.step();
    assert_eq!((step.gone.len(), step.new.len()), (1, 0));
    assert_eq!(cluster.step().new, ["2.01"]);
    assert_eq!(cluster.step(), Step::default());
    cluster.set_ready("2.01", true);
    assert_eq!(cluster.step().gone.len(), 1);
    assert_eq!((cluster.count(1), cluster.count(2)), (0, 2));
}

#[test]
fn a_deployment_that_is_changed_back_during_its_rollout_keeps_what_is_left_of_the_first() {
    let mut cluster = Cluster::new(deployment(3, json!(1), json!(0)));
    cluster.settle();
    cluster.template = 2;
    cluster.step();
    cluster.all_ready();
    cluster.step();
    assert_eq!((cluster.count(1), cluster.count(2)), (2, 1));
    cluster.template = 1;
    let step = cluster.step();
    assert_eq!((step.gone.len(), step.new.len()), (0, 1));
    cluster.settle();
    assert_eq!((cluster.count(1), cluster.count(2)), (3, 0));
}

#[test]
fn a_pod_of_a_deployment_counts_as_available_after_its_min_ready_seconds() {
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
    let spec = json!({"minReadySeconds": 30, "strategy": {"rollingUpdate": rolling}});
    let mut cluster = Cluster::new(Rule::deployment(&spec, 1).expect("valid"));
    cluster.step();
    cluster.all_ready();
    cluster.now = time(2_000);
    cluster.template = 2;
    cluster.step();
    cluster.set_ready("2.00", true);
    assert_eq!((cluster.step(), cluster.next), (Step::default(), Some(time(2_030))));
    cluster.now = time(2_030);
    assert_eq!(cluster.step().gone, ["1.00"]);
}

#[test]
fn a_deployment_that_is_recreated_has_no_new_pod_before_the_last_old_one_has_left() {
    let spec = json!({"strategy": {"type": "Recreate"}});
    let mut cluster = Cluster::new(Rule::deployment(&spec, 2).expect("valid"));
    cluster.settle();
    cluster.template = 2;
    let step = cluster.step();
    assert_eq!((step.gone.len(), step.new.len()), (2, 0));
    cluster.is_leaving = true;
    assert_eq!(cluster.step(), Step::default());
    cluster.is_leaving = false;
    assert_eq!(cluster.step().new.len(), 2);
}

#[test]
fn a_paused_deployment_keeps_its_pods_and_takes_a_new_scale() {
    let rule = |replicas: u64, is_paused: bool| {
        let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
        let spec = json!({"paused": is_paused, "strategy": {"rollingUpdate": rolling}});
        Rule::deployment(&spec, replicas).expect("valid")
    };
    let mut cluster = Cluster::new(rule(2, true));
    assert_eq!(cluster.step(), Step::default(), "it never began");
    assert_eq!(cluster.progress, Some(DeploymentProgress::Paused));
    cluster.rule = rule(2, false);
    cluster.settle();
    cluster.rule = rule(3, true);
    assert_eq!(cluster.step().new, ["1.02"], "of its only template");
    cluster.all_ready();
    cluster.template = 2;
    assert_eq!(cluster.step(), Step::default());
    cluster.rule = rule(2, true);
    assert_eq!(cluster.step().gone.len(), 1);

    // In the midst of a rollout, the surge stays.
    cluster.rule = rule(2, false);
    assert_eq!(cluster.step().new, ["2.00"]);
    cluster.rule = rule(2, true);
    cluster.all_ready();
    assert_eq!(cluster.step(), Step::default());
    assert_eq!((cluster.count(1), cluster.count(2)), (2, 1));
    cluster.rule = rule(2, false);
    cluster.settle();
    assert_eq!((cluster.count(1), cluster.count(2)), (0, 2));
}

#[test]
fn a_rollout_without_progress_exceeds_its_deadline_until_a_new_pod_is_ready() {
    let exceeded = Some(DeploymentProgress::Exceeded { seconds: 60 });
    let progressing = Some(DeploymentProgress::Progressing);
    let rolling = json!({"maxSurge": 1, "maxUnavailable": 0});
    let spec = json!({"progressDeadlineSeconds": 60, "strategy": {"rollingUpdate": rolling}});
    let mut cluster = Cluster::new(Rule::deployment(&spec, 1).expect("valid"));
    let report = |cluster: &mut Cluster| {
        cluster.pods.values_mut().for_each(|(_, state)| {
            state.is_known = true;
            state.was_ready |= state.ready_since.is_some();
        });
    };
    cluster.step();
    cluster.now = time(1_100);
    cluster.step();
    assert_eq!(cluster.progress, progressing, "nothing is known of the pod");
    report(&mut cluster);
    cluster.now = time(1_059);
    cluster.step();
    assert_eq!((cluster.progress, cluster.next), (progressing, Some(time(1_060))));
    cluster.now = time(1_060);
    cluster.step();
    assert_eq!(cluster.progress, exceeded);
    cluster.all_ready();
    report(&mut cluster);
    cluster.step();
    assert_eq!(cluster.progress, progressing);

    // It is complete: a pod that is not Ready any more is no rollout.
    cluster.set_ready("1.00", false);
    cluster.now = time(2_000);
    cluster.step();
    assert_eq!((cluster.progress, cluster.next), (progressing, None));

    cluster.set_ready("1.00", true);
    cluster.template = 2;
    cluster.step();
    report(&mut cluster);
    cluster.step();
    assert_eq!(cluster.progress, exceeded, "the new pod came long ago");
}

#[test]
fn a_status_shows_whether_a_pod_was_ever_ready() {
    let state = |status: &str, changed: &str| {
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": changed});
        let status = json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [ready]});
        PodState::of(&status, true).was_ready
    };
    assert!(state("True", "2026-01-01T00:00:03Z"));
    assert!(!state("False", "2026-01-01T00:00:01Z"), "its first status");
    assert!(state("False", "2026-01-01T00:01:00Z"), "it was Ready in between");
    assert!(!PodState::of(&json!({"phase": "Pending"}), true).was_ready);
}

#[test]
fn pods_that_are_not_ready_leave_first_when_a_deployment_shrinks() {
    let mut cluster = Cluster::new(deployment(3, json!(1), json!(0)));
    cluster.settle();
    cluster.set_ready("1.00", false);
    cluster.rule = deployment(1, json!(1), json!(0));
    assert_eq!(cluster.step().gone, ["1.00", "1.02"]);
}

#[test]
fn a_replica_set_keeps_its_pods_when_its_template_changes() {
    let mut cluster = Cluster::new(Rule::replicas(2));
    cluster.settle();
    cluster.template = 2;
    assert_eq!(cluster.step(), Step::default());
    cluster.rule = Rule::replicas(3);
    assert_eq!(cluster.step().new, ["02"]);
    assert_eq!((cluster.count(1), cluster.count(2)), (2, 1));
}

#[test]
fn a_stateful_set_comes_in_order_leaves_in_reverse_and_is_replaced_in_reverse() {
    let rule = |count| Rule::stateful_set(&json!({}), count).expect("valid");
    let mut cluster = Cluster::new(rule(3));
    for name in ["w-0", "w-1", "w-2"] {
        assert_eq!(cluster.step().new, [name]);
        assert_eq!(cluster.step(), Step::default(), "{name} is not Ready");
        cluster.set_ready(name, true);
    }
    cluster.template = 2;
    for name in ["w-2", "w-1", "w-0"] {
        assert_eq!(cluster.step().new, [name]);
        assert_eq!(cluster.step(), Step::default(), "{name} is not Ready");
        cluster.set_ready(name, true);
    }
    cluster.rule = rule(1);
    assert_eq!(cluster.step().gone, ["w-2"]);
    cluster.is_leaving = true;
    assert_eq!(cluster.step(), Step::default(), "w-2 is still reported");
    cluster.is_leaving = false;
    assert_eq!(cluster.step().gone, ["w-1"]);
    assert_eq!(cluster.step(), Step::default());
}

#[test]
fn a_stateful_set_that_is_parallel_comes_at_once_and_is_replaced_one_by_one() {
    let spec = json!({"podManagementPolicy": "Parallel"});
    let mut cluster = Cluster::new(Rule::stateful_set(&spec, 3).expect("valid"));
    assert_eq!(cluster.step().new.len(), 3);
    cluster.all_ready();
    cluster.template = 2;
    assert_eq!(cluster.step().new, ["w-2"]);
    assert_eq!(cluster.step(), Step::default());
}

#[test]
fn a_stateful_set_keeps_the_pods_below_its_partition() {
    let spec = json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}});
    let mut cluster = Cluster::new(Rule::stateful_set(&spec, 3).expect("valid"));
    cluster.settle();
    cluster.template = 2;
    cluster.settle();
    assert_eq!((cluster.count(1), cluster.count(2)), (2, 1));
}

#[test]
fn a_template_of_a_stateful_set_that_never_becomes_ready_is_replaced_by_the_next() {
    let mut cluster = Cluster::new(Rule::stateful_set(&json!({}), 2).expect("valid"));
    cluster.settle();
    cluster.template = 2;
    assert_eq!(cluster.step().new, ["w-1"]);
    cluster.template = 3;
    assert_eq!(cluster.step(), Step::default(), "nothing is known of the pod yet");
    cluster.set_ready("w-1", false);
    assert_eq!(cluster.step().new, ["w-1"]);
    assert_eq!(cluster.step(), Step::default());
    cluster.settle();
    assert_eq!(cluster.count(3), 2);
}

#[test]
fn a_daemon_set_replaces_so_many_pods_at_a_time() {
    let spec = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}});
    let mut cluster = Cluster::new(Rule::daemon_set(&spec).expect("valid"));
    cluster.nodes = ["a", "b", "c"].map(|node| node.parse().expect("a name")).into();
    assert_eq!(cluster.step().new.len(), 3);
    cluster.all_ready();
    cluster.template = 2;
    assert_eq!(cluster.step().new, ["a.2", "b.2"]);
    assert_eq!(cluster.step(), Step::default());
    cluster.set_ready("b.2", true);
    assert_eq!(cluster.step(), Step { gone: vec!["c.1".to_owned()], new: vec!["c.2".to_owned()] });
    cluster.nodes.push("d".parse().expect("a name"));
    assert_eq!(cluster.step().new, ["d.2"]);

    let spec = json!({"updateStrategy": {"type": "OnDelete"}});
    let mut cluster = Cluster::new(Rule::daemon_set(&spec).expect("valid"));
    cluster.nodes = vec!["a".parse().expect("a name")];
    cluster.settle();
    cluster.template = 2;
    assert_eq!(cluster.step(), Step::default());
}

#[test]
fn a_job_runs_so_many_pods_at_once_until_enough_have_succeeded() {
    let mut cluster = Cluster::new(job(json!({"completions": 3, "parallelism": 2})));
    assert_eq!(cluster.step().new, ["00", "01"]);
    assert_eq!(cluster.step(), Step::default());
    cluster.end("01", Phase::Succeeded);
    assert_eq!(cluster.step().new, ["02"]);
    cluster.end("00", Phase::Succeeded);
    assert_eq!(cluster.step(), Step::default());
    assert_eq!(cluster.condition, None);
    cluster.end("02", Phase::Succeeded);
    assert_eq!(cluster.step(), Step::default(), "the pods that ended stay");
    assert_eq!(cluster.condition, Some(JobCondition::Complete));
}

#[test]
fn a_job_retries_with_growing_waits_and_fails_past_its_limit() {
    let mut cluster = Cluster::new(job(json!({"backoffLimit": 1})));
    cluster.step();
    cluster.end("00", Phase::Failed);
    assert_eq!((cluster.step(), cluster.next), (Step::default(), Some(time(1_010))));
    cluster.now = time(1_010);
    assert_eq!(cluster.step().new, ["01"]);
    cluster.end("01", Phase::Failed);
    assert_eq!(cluster.step(), Step::default());
    let reason = "BackoffLimitExceeded".to_owned();
    assert_eq!(cluster.condition, Some(JobCondition::Failed(reason)));
    assert_eq!(cluster.pods.len(), 2, "they are the record of the failure");
}

#[test]
fn a_job_that_restarts_in_place_or_takes_too_long_ends_its_pods_and_stays_failed() {
    let template = json!({"spec": {"restartPolicy": "OnFailure"}});
    let in_place = json!({"backoffLimit": 2, "template": template});
    for (spec, restarts, now, reason) in [
        (in_place, 2, 1_001, "BackoffLimitExceeded"),
        (json!({"activeDeadlineSeconds": 5}), 0, 1_005, "DeadlineExceeded"),
    ] {
        let mut cluster = Cluster::new(job(spec));
        cluster.step();
        cluster.step();
        assert_eq!(cluster.condition, None);
        cluster.pods.get_mut("00").expect("there").1.restarts = restarts;
        cluster.now = time(now);
        assert_eq!(cluster.step(), Step::default());
        assert_eq!(cluster.ended["00"], reason);
        cluster.end("00", Phase::Failed);
        cluster.now = time(9_999);
        assert_eq!(cluster.step(), Step::default());
        assert_eq!(cluster.condition, Some(JobCondition::Failed(reason.to_owned())));
    }
}

#[test]
fn a_job_that_is_suspended_has_no_running_pod_and_another_template_starts_it_anew() {
    let mut cluster = Cluster::new(job(json!({"completions": 2, "parallelism": 2})));
    cluster.step();
    cluster.end("00", Phase::Succeeded);
    cluster.rule = job(json!({"completions": 2, "parallelism": 2, "suspend": true}));
    assert_eq!(cluster.step().gone, ["01"]);
    cluster.rule = job(json!({"completions": 2, "parallelism": 2}));
    assert_eq!(cluster.step().new, ["01"]);
    cluster.template = 2;
    let step = cluster.step();
    assert_eq!((step.gone.len(), step.new.len()), (2, 2));
}

#[test]
fn a_field_that_a_rollout_follows_is_checked() {
    for (spec, field) in [
        (json!({"strategy": {"type": "Sometimes"}}), "strategy.type"),
        (json!({"strategy": {"rollingUpdate": {"maxSurge": "x"}}}), "maxSurge"),
        (json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}), "where"),
        (json!({"minReadySeconds": -1}), "minReadySeconds"),
    ] {
        let error = Rule::deployment(&spec, 1).expect_err("invalid").to_string();
        assert!(error.starts_with("spec.") && error.contains(field), "{error}");
    }
    assert!(Rule::daemon_set(&json!({"updateStrategy": {"type": 7}})).is_err());
    assert!(Rule::stateful_set(&json!({"podManagementPolicy": "Late"}), 1).is_err());
    assert!(Rule::job(&json!({"backoffLimit": "x"}), None, None).is_err());
}

proptest! {
    #[test]
    fn a_deployment_stays_within_its_bounds_whatever_becomes_ready_when(
        replicas in 0_u64..8,
        surge in prop_oneof![(0_u64..4).prop_map(Value::from), (0_u64..101).prop_map(percent)],
        unavailable in prop_oneof![(0_u64..4).prop_map(Value::from), (0_u64..101).prop_map(percent)],
        statuses in vec((any::<prop::sample::Index>(), any::<bool>(), 0_u8..8), 1..60),
    ) {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let spec = json!({"strategy": {"rollingUpdate": rolling}});
        let Ok(rule) = Rule::deployment(&spec, replicas) else { return Ok(()) };
        let Rule::Deployment(inner) = &rule else { unreachable!("a deployment") };
        let (surge, unavailable) = inner.margins();
        prop_assert!(surge + unavailable > 0 || replicas == 0);
        let replicas = usize::try_from(replicas).expect("small");
        let mut cluster = Cluster::new(rule.clone());
        cluster.settle();
        prop_assert_eq!(cluster.pods.len(), replicas);
        for (which, is_ready, change) in statuses {
            if change == 0 {
                cluster.template += 1;
            }
            let names: Vec<String> = cluster.pods.keys().cloned().collect();
            if !names.is_empty() {
                cluster.set_ready(which.get::<String>(&names), is_ready);
            }
            let ready = cluster.ready();
            cluster.step();
            prop_assert!(cluster.pods.len() <= replicas + surge);
            let least = replicas.saturating_sub(unavailable).min(ready);
            prop_assert!(cluster.ready() >= least, "{} of {ready}", cluster.ready());
        }
        cluster.settle();
        prop_assert_eq!(cluster.count(cluster.template), replicas);
        prop_assert_eq!(cluster.pods.len(), replicas);
    }

    #[test]
    fn a_stateful_set_has_at_most_one_pod_that_it_took_away(
        statuses in vec((any::<prop::sample::Index>(), any::<bool>(), 0_u8..8), 1..60),
    ) {
        let mut cluster = Cluster::new(Rule::stateful_set(&json!({}), 4).expect("valid"));
        cluster.settle();
        for (which, is_ready, change) in statuses {
            if change == 0 {
                cluster.template += 1;
            }
            let names: Vec<String> = cluster.pods.keys().cloned().collect();
            cluster.set_ready(which.get::<String>(&names), is_ready);
            let ready = cluster.ready();
            let step = cluster.step();
            prop_assert!(step.gone.is_empty() && step.new.len() <= 1);
            prop_assert!(cluster.ready() >= 3.min(ready) || cluster.ready() == ready);
        }
        cluster.settle();
        prop_assert_eq!(cluster.count(cluster.template), 4);
    }

    #[test]
    fn a_job_never_runs_more_than_its_parallelism_nor_succeeds_more_often_than_asked(
        completions in 1_u64..6,
        parallelism in 0_u64..5,
        ends in vec((any::<prop::sample::Index>(), any::<bool>()), 0..40),
    ) {
        let spec = json!({"completions": completions, "parallelism": parallelism});
        let mut cluster = Cluster::new(job(spec));
        for (which, succeeds) in ends {
            cluster.now = cluster.now.checked_add(SignedDuration::from_hours(1)).expect("a time");
            cluster.step();
            let active = |cluster: &Cluster| -> Vec<String> {
                let pods = cluster.pods.iter();
                let active = pods.filter(|(_, (_, state))| state.phase == Phase::Active);
                active.map(|(name, _)| name.clone()).collect()
            };
            let running = active(&cluster);
            let failed = matches!(cluster.condition, Some(JobCondition::Failed(_)));
            prop_assert!(failed || running.len() as u64 <= parallelism);
            if running.is_empty() {
                break;
            }
            let phase = if succeeds { Phase::Succeeded } else { Phase::Failed };
            cluster.end(which.get::<String>(&running), phase);
            let done = cluster.pods.values().filter(|(_, one)| one.phase == Phase::Succeeded);
            prop_assert!(done.count() as u64 <= completions);
        }
    }
}

fn percent(percent: u64) -> Value {
    format!("{percent}%").into()
}
