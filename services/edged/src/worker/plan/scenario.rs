//! Plans that are carried out on the in-memory runtime, between faults: every step is possible when
//! it is planned, and when the faults stop the pod reaches its goal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::container::credentials::Credentials;
use crate::container::termination::{StopSignal, TerminationMessage};
use crate::container::{LaunchSpec, WaitReason};
use crate::pod::{self, ImagePullPolicy, PodRecord, PodUid};
use crate::runtime::memory::MemoryRuntime;
use crate::runtime::{Images, RunState, Runtime, SandboxState, StopRequest};

/// The containers in the order of their starts: an init container, two sidecars, two main containers.
const NAMES: [&str; 5] = ["init", "side", "proxy", "a", "b"];

/// The init containers among them.
const INIT: usize = 3;

/// The plans after which a pod without faults has reached its goal.
const PLANS_MAX: usize = 60;

/// Something that happens to the pod.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The planner runs, and its steps are carried out.
    Plan,
    /// A container ends by itself, or it becomes known how it ended.
    Exit(usize, bool),
    /// A container ends by itself, and it is not known how.
    HideEnd(usize),
    /// The sandbox ends by itself.
    LoseSandbox,
    /// An image is removed.
    RemoveImage(usize),
    /// The next pulls fail.
    FailPulls(usize),
    /// The pod's spec asks for other resources.
    Resize,
}

/// A pod on the in-memory runtime, and what a worker knows of it.
struct World {
    runtime: MemoryRuntime,
    record: PodRecord,
    pod: Pod,
    ended: Option<Outcome>,
    stopping: BTreeMap<String, Stopping>,
    failed: BTreeSet<String>,
    pulled: BTreeSet<String>,
    is_discarded: bool,
    is_resize_due: bool,
    now: Instant,
}

fn image(name: &str) -> String {
    format!("localhost/{name}:1")
}

impl World {
    fn new(restart_policy: &str, pull_policy: &str) -> Self {
        let container = |name: &str| json!({"name": name, "image": image(name), "imagePullPolicy": pull_policy});
        let sidecar = |name: &str| {
            let mut sidecar = container(name);
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        };
        let pod = json!({"metadata": {"name": "web"}, "spec": {
            "restartPolicy": restart_policy,
            "initContainers": [container("init"), sidecar("side"), sidecar("proxy")],
            "containers": [container("a"), container("b")],
        }});
        let (notices, _) = mpsc::channel(1);
        let record = PodRecord {
            uid: PodUid::try_from("u1".to_owned()).expect("a UID"),
            key: "shop/pod/web".parse().expect("a key"),
            grace_seconds: 30,
            seen_at: jiff::Timestamp::UNIX_EPOCH,
            seen_in_boot: None,
            is_static: false,
        };
        Self {
            runtime: MemoryRuntime::new(notices),
            record,
            pod: serde_json::from_value(pod).expect("a pod"),
            ended: None,
            stopping: BTreeMap::new(),
            failed: BTreeSet::new(),
            pulled: BTreeSet::new(),
            is_discarded: false,
            is_resize_due: false,
            now: Instant::now(),
        }
    }

    async fn facts(&self) -> Containers {
        let state = self.runtime.pod(&self.record.uid);
        let mut containers = Containers::new();
        for name in NAMES {
            let runs = state.containers.get(name);
            let run = match runs.map(|runs| &runs.state) {
                None => Run::Never,
                Some(RunState::Running { .. }) => Run::Running,
                Some(RunState::EndPending { .. }) => Run::EndPending,
                Some(RunState::Exited(exit)) => {
                    Run::Exited { code: exit.code, interrupted: exit.interrupted }
                }
            };
            let present = self.runtime.status(&image(name)).await.expect("a status").is_some();
            let image = if self.failed.contains(name) {
                let reason = WaitReason { reason: "ErrImagePull", message: String::new() };
                ImageState::Failed { until: self.now, told_until: self.now, reason }
            } else if present {
                ImageState::Present { pulled: self.pulled.contains(name) }
            } else {
                ImageState::Absent
            };
            let facts = ContainerFacts {
                run,
                started: run == Run::Running,
                in_earlier_sandbox: runs
                    .is_some_and(|runs| runs.sandbox_attempt != state.sandbox_attempt),
                stopping: self.stopping.get(name).copied(),
                image,
                ..ContainerFacts::default()
            };
            containers.insert(name.to_owned(), facts);
        }
        containers
    }

    /// Plans, checks the plan and carries it out.
    async fn plan(&mut self, fate: Fate) -> Plan {
        self.now += Duration::from_secs(1);
        let containers = self.facts().await;
        if fate == Fate::Run && self.ended.is_none() {
            self.ended = outcome(&self.pod, &containers);
        }
        let state = self.runtime.pod(&self.record.uid).sandbox;
        let sandbox = match state {
            SandboxState::None => Sandbox::None,
            SandboxState::Ready => Sandbox::Ready,
            SandboxState::Lost => Sandbox::Lost,
        };
        let Self { pod, ended, is_discarded, now, .. } = &*self;
        let (ended, is_discarded, now) = (*ended, *is_discarded, *now);
        let plan = plan(&PodFacts {
            pod,
            fate,
            ended,
            sandbox,
            containers: &containers,
            is_discarded,
            is_final: false,
            resize_at: self.is_resize_due.then_some(now),
            now,
        });
        for action in plan.actions.clone() {
            self.execute(&action, &containers).await;
        }
        plan
    }

    async fn execute(&mut self, action: &Action, containers: &Containers) {
        let uid = self.record.uid.clone();
        match action {
            Action::Open => {
                assert_eq!(self.runtime.pod(&uid).sandbox, SandboxState::None);
                self.runtime.open(&self.record, &self.pod).await.expect("it can be opened");
                self.is_resize_due = false;
            }
            Action::Resize => {
                assert_eq!(self.runtime.pod(&uid).sandbox, SandboxState::Ready);
                let runs = |name: &&str| containers[*name].run == Run::Running;
                let running: Vec<_> = NAMES.into_iter().filter(runs).map(str::to_owned).collect();
                let resized = self.runtime.resize(&self.record, &self.pod, &running).await;
                self.is_resize_due = resized.is_err();
            }
            Action::Close => self.runtime.close(&uid).await.expect("nothing runs in it"),
            Action::Pull(name) => {
                let container = pod::all_containers(&self.pod).find(|c| c.name == *name);
                let policy = container.map(ImagePullPolicy::of);
                assert_ne!(policy, Some(ImagePullPolicy::Never), "{name} must not be pulled");
                self.failed.remove(name);
                match self.runtime.pull(&image(name), &[]).await {
                    Ok(_) => self.pulled.insert(name.clone()),
                    Err(_) => self.failed.insert(name.clone()),
                };
            }
            Action::Start(name) => {
                assert_ne!(containers[name].run, Run::Running, "{name} runs already");
                assert_ne!(containers[name].run, Run::EndPending, "its end is not known");
                let before = NAMES[..INIT].iter().take_while(|before| *before != name);
                let has_begun = |name: &&str| containers[*name].run_here() != Run::Never;
                assert!(
                    is_initialized(&self.pod, containers) || before.clone().all(has_begun),
                    "{name} starts too early"
                );
                if before.count() == INIT {
                    assert!(is_initialized(&self.pod, containers), "{name} starts too early");
                }
                let launch = LaunchSpec {
                    container: name.clone(),
                    image: Some(image(name)),
                    is_step: false,
                    command: Vec::new(),
                    args: Vec::new(),
                    env: BTreeMap::new(),
                    working_dir: None,
                    mounts: Vec::new(),
                    block_devices: Vec::new(),
                    stop_signal: StopSignal::default(),
                    termination_message: TerminationMessage::default(),
                    credentials: Credentials::default(),
                    cpus: None,
                    devices: crate::container::devices::ContainerDevices::default(),
                };
                self.runtime
                    .start(&self.record, &self.pod, &launch)
                    .await
                    .expect("everything is ready");
                self.pulled.remove(name);
                self.stopping.remove(name);
            }
            Action::Terminate(name) | Action::Kill(name) => {
                let is_kill = matches!(action, Action::Kill(_));
                let index = NAMES.iter().position(|other| other == name).expect("a container");
                let after = &NAMES[index + 1..];
                if !is_kill && index < INIT {
                    let runs = |name: &&str| containers[*name].run == Run::Running;
                    assert!(!after.iter().any(runs), "{name} ends before {after:?}");
                }
                let within = if is_kill { Duration::ZERO } else { Duration::from_secs(30) };
                let interrupts = self.runtime.pod(&uid).sandbox == SandboxState::Lost;
                let request = StopRequest { within, interrupts };
                self.runtime.stop(&uid, name, request).await.expect("it runs");
                self.stopping.insert(name.clone(), Stopping::Terminated { since: self.now });
            }
            Action::PreStop(name) => panic!("{name} has no hook"),
            Action::Refuse(_) => self.ended = Some(Outcome::Failed),
            Action::Discard => {
                assert!(containers.values().all(|facts| facts.run != Run::Running));
                Runtime::remove(&self.runtime, &self.record).await.expect("nothing runs");
                self.is_discarded = true;
            }
            Action::AskDelete | Action::CleanUp | Action::Leave => {
                assert!(containers.values().all(|facts| facts.run != Run::Running));
            }
        }
    }

    fn is_running(&self, name: &str) -> bool {
        let state = self.runtime.pod(&self.record.uid);
        state.containers.get(name).is_some_and(crate::runtime::RunHistory::is_running)
    }

    /// It becomes known how all containers ended: well.
    async fn show_ends(&self) {
        let containers = self.facts().await;
        for (name, _) in containers.iter().filter(|(_, facts)| facts.is_end_pending()) {
            self.runtime.exit(&self.record.uid, name, 0);
        }
    }

    /// Plans until the pod runs or has ended. Init containers succeed.
    async fn settle(&mut self) {
        for _ in 0..PLANS_MAX {
            let plan = self.plan(Fate::Run).await;
            if self.is_running("init") {
                self.runtime.exit(&self.record.uid, "init", 0);
                continue;
            }
            if plan.actions.is_empty() {
                return;
            }
        }
        panic!("the pod is not at its goal after {PLANS_MAX} plans");
    }

    async fn apply(&mut self, event: Event) {
        match event {
            Event::Plan => {
                self.plan(Fate::Run).await;
            }
            Event::Exit(index, succeeded) => {
                self.runtime.exit(&self.record.uid, NAMES[index], i32::from(!succeeded));
            }
            Event::HideEnd(index) => self.runtime.hide_end(&self.record.uid, NAMES[index]),
            Event::LoseSandbox => self.runtime.lose_sandbox(&self.record.uid),
            Event::RemoveImage(index) => self.runtime.remove_image(&image(NAMES[index])),
            Event::FailPulls(count) => self.runtime.fail_pulls(count),
            Event::Resize => {
                self.is_resize_due = true;
                self.runtime.fail_resizes(1);
            }
        }
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Plan),
        3 => (0..NAMES.len(), any::<bool>()).prop_map(|(index, ok)| Event::Exit(index, ok)),
        1 => (0..NAMES.len()).prop_map(Event::HideEnd),
        1 => Just(Event::LoseSandbox),
        1 => (0..NAMES.len()).prop_map(Event::RemoveImage),
        1 => (0_usize..3).prop_map(Event::FailPulls),
        1 => Just(Event::Resize),
    ]
}

async fn play(restart_policy: &str, pull_policy: &str, events: Vec<Event>, fails: bool) {
    let mut world = World::new(restart_policy, pull_policy);
    for event in events {
        world.apply(event).await;
    }
    world.runtime.fail_pulls(0);
    world.show_ends().await;
    world.settle().await;
    let goes_on = world.ended.is_none();
    for name in NAMES[INIT..].iter().filter(|_| goes_on && restart_policy == "Always") {
        assert!(world.is_running(name), "{name} does not run");
    }
    if goes_on {
        assert!(!world.is_resize_due, "the pod has the resources of its spec");
    }
    if !goes_on {
        assert!(NAMES.iter().all(|name| !world.is_running(name)), "the pod has ended");
        assert_eq!(world.runtime.pod(&world.record.uid).sandbox, SandboxState::None);
    }
    let deadline = world.now + Duration::from_secs(30);
    let fate = if fails {
        Fate::Fail { reason: FailReason::DeadlineExceeded, deadline }
    } else {
        Fate::End { deadline, then: FinalStep::AskDelete }
    };
    for _ in 0..PLANS_MAX {
        let plan = world.plan(fate).await;
        if plan.actions.is_empty() || plan.actions == [Action::AskDelete] {
            break;
        }
    }
    assert!(NAMES.iter().all(|name| !world.is_running(name)), "everything has ended");
    assert_eq!(world.runtime.pod(&world.record.uid).sandbox, SandboxState::None);
    assert!(!fails || world.ended.is_some(), "the pod was refused");
    assert_eq!(
        world.is_discarded, !fails,
        "a pod that failed keeps what it has until it is deleted"
    );
}

proptest! {
    #[test]
    fn every_planned_step_is_possible_and_without_faults_the_pod_reaches_its_goal(
        restart_policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
        pull_policy in prop_oneof![Just("Always"), Just("IfNotPresent")],
        events in proptest::collection::vec(any_event(), 0..60),
        fails in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(play(restart_policy, pull_policy, events, fails));
    }
}
