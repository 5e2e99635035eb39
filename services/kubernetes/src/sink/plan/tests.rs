//! The plan against a small model of an API server: requests that are lost, others that write, nodes that
//! come and go.

use headwater_event::Incarnation;
use proptest::prelude::*;
use serde_json::json;

use super::super::memory::{FORBIDDEN_PAUSE_MS, Written};
use super::*;
use crate::cluster_view::ClusterView;
use crate::kind::Kind;
use crate::raw_object::RawObject;
use crate::reflector::Step as WatchStep;

const PRESENT: NodePresence = NodePresence { is_present: true, has_drained: true };
const AWAY: NodePresence = NodePresence { is_present: false, has_drained: true };

/// What the API has: a Node, and a pod of it.
struct Api {
    view: ClusterView,
    version: u64,
    pod: Value,
}

impl Api {
    /// A pod whose tolerations are not named tolerates everything.
    fn new(mut pod: Value) -> Self {
        if pod["spec"]["tolerations"].is_null() {
            pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let view = ClusterView::default();
        let mut api = Self { view, version: 1, pod };
        api.show_node(&json!({}), &json!({}));
        api.show();
        api
    }

    fn show_node(&mut self, metadata: &Value, status: &Value) {
        self.version += 1;
        let mut node = json!({ "metadata": metadata, "status": status });
        node["metadata"]["name"] = "gw".into();
        node["metadata"]["uid"] = "node-uid".into();
        node["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.view.step(Kind::Node, &WatchStep::Apply(RawObject::new(node)));
    }

    /// The pod has a new version.
    fn show(&mut self) {
        self.version += 1;
        self.pod["metadata"]["name"] = "web".into();
        self.pod["metadata"]["namespace"] = "d".into();
        self.pod["metadata"]["uid"] = "u".into();
        self.pod["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.pod["spec"]["nodeName"] = "gw".into();
        self.view.step(Kind::Pod, &WatchStep::Apply(RawObject::new(self.pod.clone())));
    }

    fn pod(&self) -> PodView {
        self.view.lock().pod(&"d/pod/web".parse().expect("a key")).cloned().expect("shown")
    }

    fn node(&self) -> NodeView {
        self.view.lock().node(&"gw".parse().expect("a name")).cloned().expect("shown")
    }
}

fn pod(status: Option<&Value>, has_ended: bool) -> DesiredPod {
    DesiredPod { status: status.map(OwnedStatus::of), has_ended, is_current: true }
}

fn phase(phase: &str, message: u8) -> Value {
    json!({"phase": phase, "message": format!("m{message}"), "reason": "r"})
}

fn plan(api: &Api, desired: &DesiredPod, presence: NodePresence, memory: &ObjectMemory) -> Step {
    let facts = Facts { presence, memory, now_ms: 1_000_000 };
    plan_pod(desired, &api.pod(), OfflinePolicy::Keep, &facts)
}

#[test]
fn the_first_status_of_a_pod_that_starts_waits_for_the_next_one() {
    let api = Api::new(json!({"status": {"phase": "Pending"}}));
    let mut memory = ObjectMemory::default();
    memory.set_uid("u", 1_000);
    let plan = |status: &str, memory: &ObjectMemory, now_ms| {
        let facts = Facts { presence: PRESENT, memory, now_ms };
        let desired = pod(Some(&phase(status, 0)), false);
        plan_pod(&desired, &api.pod(), OfflinePolicy::Evict, &facts)
    };
    let call = Step::Call(Purpose::PodStatus);
    let due_ms = 1_000 + START_MS;
    assert_eq!(plan("Pending", &memory, 1_010), Step::Wait { until_ms: due_ms });
    assert_eq!(plan("Running", &memory, 1_010), call);
    assert_eq!(plan("Failed", &memory, 1_010), call);
    assert_eq!(plan("Pending", &memory, due_ms), call);
    let digest = OwnedStatus::of(&phase("Pending", 1)).digest;
    let written = Written { desired: digest, shown: digest, at_ms: 1_000 };
    memory.note_written(Purpose::PodStatus, written);
    assert_eq!(plan("Pending", &memory, 1_010), call, "a later one is written at once");
}

#[test]
fn the_first_status_of_a_pod_waits_for_the_generation_that_its_tolerations_raise() {
    let limited = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists",
        "effect": "NoExecute", "tolerationSeconds": 300}]);
    let mut api =
        Api::new(json!({"metadata": {"generation": 1}, "spec": {"tolerations": limited}}));
    let mut memory = ObjectMemory::default();
    memory.set_uid("u", 1_000);
    let plan = |api: &Api, memory: &ObjectMemory, phase: &str, generation, now_ms| {
        let facts = Facts { presence: PRESENT, memory, now_ms };
        let status = json!({"phase": phase, "observedGeneration": generation});
        plan_pod(&pod(Some(&status), false), &api.pod(), OfflinePolicy::Keep, &facts)
    };
    let (write, tolerate) = (Step::Call(Purpose::PodStatus), Step::Call(Purpose::Tolerations));
    assert_eq!(plan(&api, &memory, "Running", Some(1), 60_000), tolerate, "however late");
    assert_eq!(plan(&api, &memory, "Running", None, 1_010), write, "an edge that reports none");
    assert_eq!(plan(&api, &memory, "Succeeded", Some(1), 1_010), write, "the last one");
    let mut failed = memory.clone();
    failed.note_failure(1_010);
    assert_eq!(plan(&api, &failed, "Running", Some(1), 60_000), write, "tolerations do not go");
    let written = Written { desired: *NO_CONTENT, shown: *NO_CONTENT, at_ms: 5_000 };
    memory.note_written(Purpose::Tolerations, written);
    let due_ms = 5_000 + GENERATION_MS;
    let wait = Step::Wait { until_ms: due_ms };
    assert_eq!(plan(&api, &memory, "Running", Some(1), 5_010), wait, "not shown yet");
    assert_eq!(plan(&api, &memory, "Running", Some(2), 5_010), write, "before it is shown");
    assert_eq!(plan(&api, &memory, "Running", Some(1), due_ms), write, "no longer than that");
    api.pod["metadata"]["generation"] = 2.into();
    api.pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    api.show();
    assert_eq!(plan(&api, &memory, "Running", Some(1), 5_020), wait);
    assert_eq!(plan(&api, &memory, "Running", Some(2), 5_020), write);
    assert_eq!(plan(&api, &memory, "Running", Some(1), due_ms), write, "no longer than that");
    let digest = OwnedStatus::of(&phase("Running", 1)).digest;
    let written = Written { desired: digest, shown: digest, at_ms: 5_030 };
    memory.note_written(Purpose::PodStatus, written);
    assert_eq!(plan(&api, &memory, "Running", Some(1), 5_040), write, "a later one never waits");
}

#[test]
fn a_status_is_written_only_while_its_node_is_present_and_not_over_a_terminal_phase() {
    let memory = ObjectMemory::default();
    let running = pod(Some(&phase("Running", 0)), false);
    let mut api = Api::new(json!({"status": {"phase": "Pending"}}));
    assert_eq!(plan(&api, &running, PRESENT, &memory), Step::Call(Purpose::PodStatus));
    assert_eq!(plan(&api, &running, AWAY, &memory), Step::Rest);
    assert_eq!(plan(&api, &pod(None, false), PRESENT, &memory), Step::Rest);
    api.pod["status"]["phase"] = "Failed".into();
    api.show();
    assert_eq!(plan(&api, &running, PRESENT, &memory), Step::Rest);
    let failed = pod(Some(&phase("Failed", 0)), false);
    assert_eq!(plan(&api, &failed, PRESENT, &memory), Step::Call(Purpose::PodStatus));
}

#[test]
fn a_status_that_may_be_older_than_what_the_api_shows_is_not_written() {
    let older = DesiredPod { is_current: false, ..pod(Some(&phase("Running", 0)), true) };
    let current = DesiredPod { is_current: true, ..older.clone() };
    let limited = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists",
        "effect": "NoExecute", "tolerationSeconds": 300}]);
    let mut api = Api::new(json!({"status": phase("Running", 1)}));
    // It shows what another controller wrote, or this one before it folded the log anew.
    let digest = OwnedStatus::of(&phase("Running", 1)).digest;
    let mut same_writer = ObjectMemory::default();
    let written = Written { desired: digest, shown: digest, at_ms: 0 };
    same_writer.note_written(Purpose::PodStatus, written);
    for memory in [ObjectMemory::default(), same_writer] {
        assert_eq!(plan(&api, &older, PRESENT, &memory), Step::Rest);
        assert_eq!(plan(&api, &current, PRESENT, &memory), Step::Call(Purpose::PodStatus));
    }
    let memory = ObjectMemory::default();
    api.pod["spec"]["tolerations"] = limited;
    api.show();
    assert_eq!(plan(&api, &older, PRESENT, &memory), Step::Call(Purpose::Tolerations));
    api.pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    api.pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    api.show();
    assert_eq!(plan(&api, &older, PRESENT, &memory), Step::Call(Purpose::DeletePod));
}

#[test]
fn a_pod_is_deleted_only_under_deletion_after_its_end_also_while_its_node_is_away() {
    let memory = ObjectMemory::default();
    let mut api = Api::new(json!({"status": {"phase": "Running"}}));
    let ended = pod(None, true);
    assert_eq!(plan(&api, &ended, AWAY, &memory), Step::Rest, "not under deletion");
    api.pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    api.pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    api.show();
    assert_eq!(plan(&api, &pod(None, false), AWAY, &memory), Step::Rest, "not ended");
    assert_eq!(plan(&api, &ended, AWAY, &memory), Step::Call(Purpose::DeletePod));
    api.pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    api.show();
    assert_eq!(plan(&api, &ended, AWAY, &memory), Step::Rest, "confirmed; a finalizer keeps it");
}

#[test]
fn a_policy_to_keep_lets_a_pod_tolerate_an_absence_without_a_limit() {
    let memory = ObjectMemory::default();
    let toleration = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists",
        "effect": "NoExecute", "tolerationSeconds": 300});
    let mut api = Api::new(json!({"spec": {"tolerations": [toleration]}}));
    let desired = pod(None, false);
    let with = |api: &Api, policy| {
        let facts = Facts { presence: AWAY, memory: &memory, now_ms: 0 };
        plan_pod(&desired, &api.pod(), policy, &facts)
    };
    assert_eq!(with(&api, OfflinePolicy::Keep), Step::Call(Purpose::Tolerations));
    assert_eq!(with(&api, OfflinePolicy::Evict), Step::Rest);
    let keyless = |first: &[Value]| {
        let own = json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
        let tolerations: Vec<Value> = first.iter().cloned().chain([own]).collect();
        Api::new(json!({"spec": {"tolerations": tolerations}}))
    };
    let limited = keyless(&[]);
    assert_eq!(with(&limited, OfflinePolicy::Keep), Step::Call(Purpose::Tolerations));
    let first = |taint: &str| json!({"key": taint, "operator": "Exists", "effect": "NoExecute"});
    let both = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"].map(first);
    assert_eq!(with(&keyless(&both), OfflinePolicy::Keep), Step::Rest);
    // Another writer sets them again.
    let mut written = ObjectMemory::default();
    let at = Written { desired: *NO_CONTENT, shown: *NO_CONTENT, at_ms: 999_000 };
    written.note_written(Purpose::Tolerations, at);
    assert_eq!(plan(&api, &desired, AWAY, &written), Step::Wait { until_ms: 1_009_000 });
    api.pod["status"]["phase"] = "Succeeded".into();
    api.show();
    assert_eq!(with(&api, OfflinePolicy::Keep), Step::Rest, "it has ended");
}

#[test]
fn what_others_overwrite_is_put_right_every_ten_seconds_once_the_outbox_was_empty() {
    let reported = phase("Running", 0);
    let api = Api::new(json!({"status": {"phase": "Pending"}}));
    let desired = pod(Some(&reported), false);
    let digest = OwnedStatus::of(&reported).digest;
    let mut memory = ObjectMemory::default();
    let written = Written { desired: digest, shown: digest, at_ms: 995_000 };
    memory.note_written(Purpose::PodStatus, written);
    let wait = Step::Wait { until_ms: 1_005_000 };
    assert_eq!(plan(&api, &desired, PRESENT, &memory), wait);
    let filling = NodePresence { has_drained: false, ..PRESENT };
    assert_eq!(plan(&api, &desired, filling, &memory), Step::Rest);
    let newer = pod(Some(&phase("Running", 1)), false);
    assert_eq!(plan(&api, &newer, filling, &memory), Step::Call(Purpose::PodStatus));
    memory.note_written(Purpose::PodStatus, Written { at_ms: 990_000, ..written });
    assert_eq!(plan(&api, &desired, PRESENT, &memory), Step::Call(Purpose::PodStatus));
    // The API shows it in a form of its own.
    memory.note_written(Purpose::PodStatus, Written { shown: api.pod().status, ..written });
    assert_eq!(plan(&api, &desired, PRESENT, &memory), Step::Rest);
}

#[test]
fn what_the_api_refuses_is_not_sent_again_until_it_or_the_object_changes() {
    let mut api = Api::new(json!({"status": {"phase": "Pending"}}));
    let reported = phase("Running", 0);
    let desired = pod(Some(&reported), false);
    let mut memory = ObjectMemory::default();
    let content = OwnedStatus::of(&reported).digest;
    memory.note_settled(Purpose::PodStatus, content, api.pod().order);
    assert_eq!(plan(&api, &desired, PRESENT, &memory), Step::Rest);
    let newer = pod(Some(&phase("Running", 1)), false);
    assert_eq!(plan(&api, &newer, PRESENT, &memory), Step::Call(Purpose::PodStatus));
    api.show();
    assert_eq!(plan(&api, &desired, PRESENT, &memory), Step::Call(Purpose::PodStatus));
    memory.pause(1_000_000, FORBIDDEN_PAUSE_MS);
    assert_eq!(plan(&api, &desired, PRESENT, &memory), Step::Wait { until_ms: 1_060_000 });
}

fn reported_node(boot: u64, heartbeat: &str) -> DesiredNode {
    let object = json!({
        "metadata": {"labels": {"kubernetes.io/hostname": "gw"}},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat},
        ]},
    });
    let owned = OwnedNode::parse(&object.to_string(), "gw").expect("a node");
    DesiredNode { owned, start: start(boot) }
}

fn start(boot: u64) -> EdgeStart {
    EdgeStart { incarnation: Incarnation(1), boot }
}

#[test]
fn a_node_is_created_once_for_each_start_of_its_edge() {
    let memory = ObjectMemory::default();
    let desired = reported_node(5, "2026-01-01T00:00:00Z");
    let with = |presence, is_listed, last| {
        let facts = Facts { presence, memory: &memory, now_ms: 0 };
        plan_node(&desired, None, Registration { is_listed, last }, &facts)
    };
    let create = Step::Call(Purpose::CreateNode);
    assert_eq!(with(PRESENT, true, None), create);
    assert_eq!(with(PRESENT, true, Some(start(4))), create);
    assert_eq!(with(PRESENT, true, Some(start(5))), Step::Rest, "it was deleted at the API");
    assert_eq!(with(PRESENT, false, None), Step::Rest, "it may be there");
    assert_eq!(with(AWAY, true, None), Step::Rest);
}

#[test]
fn a_node_gets_its_labels_then_its_status_and_times_every_five_minutes() {
    let mut api = Api::new(json!({}));
    let mut memory = ObjectMemory::default();
    let desired = reported_node(1, "2026-01-01T00:00:00Z");
    let at = |api: &Api, desired: &DesiredNode, memory: &ObjectMemory, presence, now_ms| {
        let facts = Facts { presence, memory, now_ms };
        plan_node(desired, Some(&api.node()), Registration::default(), &facts)
    };
    let metadata = json!({"labels": {"kubernetes.io/hostname": "gw", "team": "a"}});
    assert_eq!(at(&api, &desired, &memory, PRESENT, 0), Step::Call(Purpose::NodeMetadata));
    assert_eq!(at(&api, &desired, &memory, AWAY, 0), Step::Rest);
    api.show_node(&metadata, &json!({}));
    assert_eq!(at(&api, &desired, &memory, PRESENT, 0), Step::Call(Purpose::NodeStatus));
    let mut status = json!({"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        {"type": "NetworkUnavailable", "status": "False"},
    ]});
    api.show_node(&metadata, &status);
    let shown = api.node().status;
    memory.note_written(Purpose::NodeStatus, Written { desired: shown, shown, at_ms: 7 });
    assert_eq!(at(&api, &desired, &memory, PRESENT, 7), Step::Rest);
    let later = reported_node(1, "2026-01-01T00:01:00Z");
    let wait = Step::Wait { until_ms: 7 + TIMES_MS };
    assert_eq!(at(&api, &later, &memory, PRESENT, 60_000), wait);
    assert_eq!(at(&api, &later, &memory, AWAY, 60_000), Step::Rest);
    let due = at(&api, &later, &memory, PRESENT, 7 + TIMES_MS);
    assert_eq!(due, Step::Call(Purpose::NodeStatus));
    status["conditions"][0]["status"] = "Unknown".into();
    api.show_node(&metadata, &status);
    let soon = at(&api, &later, &memory, PRESENT, 60_000);
    assert_eq!(soon, Step::Call(Purpose::NodeStatus));
}

/// What happens to a pod.
#[derive(Clone, Debug)]
enum Happening {
    /// Its node reports a status.
    Report(u8),
    /// Its node comes or goes.
    Presence(bool),
    /// Something else writes its status.
    Overwrite(u8),
    /// The sink acts; whether its request arrives, and whether its answer does.
    Act { arrives: bool, is_answered: bool },
    /// Another controller takes over.
    Takeover,
    /// Time passes, in seconds.
    Pass(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        any::<u8>().prop_map(Happening::Report),
        any::<bool>().prop_map(Happening::Presence),
        any::<u8>().prop_map(Happening::Overwrite),
        (any::<bool>(), any::<bool>()).prop_map(|(arrives, is_answered)| Happening::Act {
            arrives,
            is_answered: arrives && is_answered,
        }),
        Just(Happening::Takeover),
        (0_u64..20).prop_map(Happening::Pass),
    ]
}

/// The states of a pod, of which the last two are terminal.
fn state(number: u8) -> Value {
    match number % 8 {
        6 => phase("Succeeded", 6),
        7 => phase("Failed", 7),
        number => phase("Running", number),
    }
}

fn is_terminal(status: &Value) -> bool {
    status["phase"] == "Succeeded" || status["phase"] == "Failed"
}

/// A world of one pod.
struct PodWorld {
    api: Api,
    memory: ObjectMemory,
    reported: Option<Value>,
    presence: NodePresence,
    now_ms: u64,
}

impl PodWorld {
    fn next(&self) -> Step {
        let desired = pod(self.reported.as_ref(), false);
        let facts = Facts { presence: self.presence, memory: &self.memory, now_ms: self.now_ms };
        plan_pod(&desired, &self.api.pod(), OfflinePolicy::Keep, &facts)
    }

    fn act(&mut self, arrives: bool, is_answered: bool) {
        if self.next() != Step::Call(Purpose::PodStatus) {
            return;
        }
        let reported = self.reported.clone().expect("a status is written");
        assert!(self.presence.is_present, "nothing is written of a node that is away");
        let before = self.api.pod["status"].clone();
        assert!(!is_terminal(&before) || before["phase"] == reported["phase"]);
        if arrives {
            self.api.pod["status"] = reported.clone();
            self.api.show();
        }
        if is_answered {
            let desired = OwnedStatus::of(&reported).digest;
            let written = Written { desired, shown: desired, at_ms: self.now_ms };
            self.memory.note_written(Purpose::PodStatus, written);
        } else {
            self.memory.note_failure(self.now_ms);
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_the_api_shows_the_last_report_ten_seconds_after_it_is_quiet(
        happenings in proptest::collection::vec(happening(), 0..60),
    ) {
        let mut world = PodWorld {
            api: Api::new(json!({"status": {"phase": "Pending"}})),
            memory: ObjectMemory::default(),
            reported: None,
            presence: PRESENT,
            now_ms: 0,
        };
        for happening in happenings {
            match happening {
                // A node takes no terminal status back.
                Happening::Report(number) => match &world.reported {
                    Some(before) if is_terminal(before) => {}
                    _ => world.reported = Some(state(number)),
                },
                Happening::Presence(is_present) => {
                    world.presence = if is_present { PRESENT } else { AWAY };
                }
                Happening::Overwrite(number) => {
                    world.api.pod["status"] = state(number);
                    world.api.show();
                }
                Happening::Act { arrives, is_answered } => world.act(arrives, is_answered),
                Happening::Takeover => world.memory = ObjectMemory::default(),
                Happening::Pass(seconds) => world.now_ms += seconds * 1000,
            }
        }
        world.presence = PRESENT;
        let end_ms = world.now_ms + PUT_RIGHT_MS;
        loop {
            match world.next() {
                Step::Call(_) => world.act(true, true),
                Step::Wait { until_ms } => world.now_ms = until_ms,
                Step::Rest => break,
            }
        }
        prop_assert!(world.now_ms <= end_ms);
        if let Some(reported) = &world.reported {
            let shown = &world.api.pod["status"];
            let may_show = !is_terminal(shown) || shown["phase"] == reported["phase"];
            prop_assert!(!may_show || shown == reported, "{shown} is shown, {reported} was reported");
        }
    }
}
