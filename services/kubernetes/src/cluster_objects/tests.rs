//! What the controller gets, whatever the order of the watches, and where lists break.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// What the controller wants, as a test sets it.
#[derive(Clone, Default)]
struct TestUses(Rc<RefCell<BTreeSet<ResourceKey>>>);

impl Uses for TestUses {
    fn is_used(&self, key: &ResourceKey) -> bool {
        self.0.borrow().contains(key)
    }
}

fn key(text: &str) -> ResourceKey {
    text.parse().expect("a key")
}

/// An object with a UID of its own.
fn raw(name: &str, uid: &str, version: u64, more: Value) -> RawObject {
    let mut value = json!({"metadata": {
        "name": name, "namespace": "d", "uid": uid, "resourceVersion": version.to_string(),
    }});
    for (field, content) in more.as_object().expect("fields") {
        value[field] = content.clone();
    }
    RawObject::new(value)
}

fn node(name: &str) -> RawObject {
    raw(name, &format!("u-{name}"), 1, json!({}))
}

fn pod(name: &str, on: &str, config: &str, version: u64) -> RawObject {
    let volume = json!({"name": "c", "configMap": {"name": config}});
    let spec = json!({"nodeName": on, "volumes": [volume]});
    raw(name, &format!("u-{name}"), version, json!({ "spec": spec, "status": {"n": version} }))
}

fn config(name: &str, uid: &str, version: u64, data: &str) -> RawObject {
    raw(name, uid, version, json!({"data": {"k": data}}))
}

fn text(changes: Vec<Change>) -> Vec<String> {
    let one = |change| match change {
        Change::Apply(object) => format!("+{}", object.key()),
        Change::Delete { key, uid } => format!("-{key} {uid}"),
    };
    changes.into_iter().map(one).collect()
}

/// The core and what a controller does with its changes.
struct World {
    objects: ClusterObjects<TestUses>,
    wanted: TestUses,
    /// What the controller has: the UID of each key.
    has: BTreeMap<ResourceKey, String>,
}

impl World {
    fn new() -> Self {
        let wanted = TestUses::default();
        Self { objects: ClusterObjects::new(wanted.clone()), wanted, has: BTreeMap::new() }
    }

    /// A world after a first list with the node `gw`.
    fn following() -> Self {
        let mut world = Self::new();
        for kind in Kind::ALL {
            let listed = if kind == Kind::Node { vec![node("gw")] } else { Vec::new() };
            world.list(kind, listed);
        }
        assert!(world.objects.complete(|_| true));
        world.objects.end_first_list();
        world
    }

    fn take(&mut self, changes: Vec<Change>) -> Vec<String> {
        for change in &changes {
            match change {
                Change::Apply(object) => {
                    self.has.insert(object.key().clone(), object.uid().to_owned());
                }
                Change::Delete { key, uid } if self.has.get(key) == Some(uid) => {
                    self.has.remove(key);
                }
                Change::Delete { .. } => {}
            }
        }
        text(changes)
    }

    fn step(&mut self, kind: Kind, step: Step) -> Vec<String> {
        let changes = self.objects.step(kind, step);
        self.take(changes)
    }

    fn list(&mut self, kind: Kind, objects: Vec<RawObject>) -> Vec<String> {
        self.list_at(kind, objects, 100_000)
    }

    fn list_at(&mut self, kind: Kind, objects: Vec<RawObject>, order: u64) -> Vec<String> {
        let mut changes = self.step(kind, Step::Init);
        for object in objects {
            changes.extend(self.step(kind, Step::InitApply(object)));
        }
        changes.extend(self.step(kind, Step::InitDone { order: Some(order) }));
        changes
    }

    fn want(&mut self, keys: &[&str]) {
        *self.wanted.0.borrow_mut() = keys.iter().map(|text| key(text)).collect();
        let is_missing = |key: &&ResourceKey| !self.has.contains_key(*key);
        let wanted = self.wanted.0.borrow();
        let missing = wanted.iter().filter(is_missing).cloned().collect();
        drop(wanted);
        self.objects.look(missing);
    }

    fn fetches(&mut self) -> Vec<Fetch> {
        std::iter::from_fn(|| self.objects.next_fetch()).collect()
    }

    fn answer(&mut self, fetch: &Fetch, objects: Vec<RawObject>) -> Vec<String> {
        let changes = self.objects.fetched(fetch, FetchAnswer::Objects(objects));
        self.take(changes)
    }
}

fn of_config(name: &str) -> Fetch {
    Fetch::Object(Kind::ConfigMap, key(&format!("d/configmap/{name}")))
}

#[test]
fn the_first_list_has_the_pods_of_edges_and_what_they_name() {
    let mut world = World::new();
    world.list(Kind::Node, vec![node("gw")]);
    let pods = vec![pod("a", "gw", "c1", 5), pod("b", "cloud-1", "c2", 6)];
    assert_eq!(world.list(Kind::Pod, pods), ["+d/pod/a"]);
    let configs = vec![config("c1", "u1", 2, "x"), config("c2", "u2", 3, "x")];
    assert_eq!(world.list(Kind::ConfigMap, configs), ["+d/configmap/c1"]);
    assert!(!world.objects.complete(|_| true), "the service account of the pod is not there");
    let fetch = Fetch::Object(Kind::ServiceAccount, key("d/serviceaccount/default"));
    assert_eq!(world.fetches(), std::slice::from_ref(&fetch));
    assert!(!world.objects.complete(|_| true), "it is on its way");
    assert_eq!(world.answer(&fetch, Vec::new()), [""; 0]);
    assert!(world.objects.complete(|_| true), "it does not exist");
}

#[test]
fn a_list_that_breaks_in_its_middle_removes_nothing() {
    let mut world = World::following();
    let both = || vec![pod("a", "gw", "c", 5), pod("b", "gw", "c", 6)];
    assert_eq!(world.list(Kind::Pod, both()), ["+d/pod/a", "+d/pod/b"]);
    assert_eq!(world.step(Kind::Pod, Step::Init), [""; 0]);
    assert_eq!(world.step(Kind::Pod, Step::InitApply(pod("a", "gw", "c", 5))), [""; 0]);
    assert_eq!(world.list(Kind::Pod, both()), [""; 0], "the list began again");
    assert_eq!(world.list(Kind::Pod, vec![pod("b", "gw", "c", 6)]), ["-d/pod/a u-a"]);
}

#[test]
fn a_status_that_was_written_changes_nothing() {
    let mut world = World::following();
    let first = world.step(Kind::Pod, Step::Apply(pod("a", "gw", "c", 5)));
    assert_eq!(first, ["+d/pod/a"]);
    assert_eq!(world.step(Kind::Pod, Step::Apply(pod("a", "gw", "c", 9))), [""; 0]);
}

#[test]
fn a_node_that_gets_the_label_brings_its_pods_and_takes_them_with_it() {
    let mut world = World::following();
    assert_eq!(world.step(Kind::Pod, Step::Apply(pod("a", "gw-2", "c", 5))), [""; 0]);
    assert_eq!(world.step(Kind::Node, Step::Apply(node("gw-2"))), ["+null/node/gw-2"]);
    let pods = Fetch::PodsOf("gw-2".parse().expect("a name"));
    assert_eq!(world.fetches(), [pods.clone(), Fetch::Attachments]);
    assert_eq!(world.answer(&pods, vec![pod("a", "gw-2", "c", 5)]), ["+d/pod/a"]);
    let attachment = |name: &str, on: &str| raw(name, "u", 3, json!({"spec": {"nodeName": on}}));
    let attachments = vec![attachment("x", "gw-2"), attachment("y", "cloud-1")];
    assert_eq!(world.answer(&Fetch::Attachments, attachments), ["+null/volumeattachment/x"]);
    assert_eq!(
        world.step(Kind::Node, Step::Delete(node("gw-2"))),
        ["-d/pod/a u-a", "-null/volumeattachment/x u", "-null/node/gw-2 u-gw-2"]
    );
    assert_eq!(world.has.len(), 1, "the node gw: {:?}", world.has);
}

#[test]
fn the_pods_of_a_node_that_may_not_be_read_just_now_are_requested_again() {
    let mut world = World::following();
    world.step(Kind::Node, Step::Apply(node("gw-2")));
    let fetches = world.fetches();
    assert_eq!(fetches.len(), 2, "{fetches:?}");
    for _ in 0..2 {
        for fetch in &fetches {
            assert!(world.objects.fetched(fetch, FetchAnswer::Refused).is_empty());
        }
        assert_eq!(world.fetches(), [], "not at once");
        world.objects.forget_absent();
        assert_eq!(world.fetches(), fetches);
    }
    world.objects.fetched(&fetches[0], FetchAnswer::Refused);
    world.step(Kind::Node, Step::Delete(node("gw-2")));
    world.objects.forget_absent();
    assert_eq!(world.fetches(), [], "it is no edge node any more");
}

#[test]
fn a_request_that_is_refused_is_repeated_every_second_at_first_and_later_at_each_look() {
    let mut world = World::following();
    let wanted = ["d/configmap/c"];
    world.want(&wanted);
    let pods = Fetch::PodsOf("gw-2".parse().expect("a name"));
    world.step(Kind::Node, Step::Apply(node("gw-2")));
    for round in 0..=REFUSALS_MAX {
        let requested = world.fetches();
        assert_eq!(requested, [of_config("c"), pods.clone(), Fetch::Attachments], "{round}");
        for fetch in requested {
            world.objects.fetched(&fetch, FetchAnswer::Refused);
        }
        world.want(&wanted);
        assert_eq!(world.fetches(), [], "not at once");
        assert_eq!(world.objects.retry_refused(), round < REFUSALS_MAX);
        world.want(&wanted);
    }
    assert_eq!(world.fetches(), [], "it lasts");
    world.objects.forget_absent();
    world.want(&wanted);
    assert_eq!(world.fetches().len(), 3, "at each look");
    assert_eq!(world.answer(&of_config("c"), Vec::new()), [""; 0]);
    world.objects.fetched(&pods, FetchAnswer::Refused);
    assert!(!world.objects.retry_refused(), "that of pods lasts still");
    world.want(&[]);
    world.want(&wanted);
    assert_eq!(world.fetches(), [of_config("c")]);
    world.objects.fetched(&of_config("c"), FetchAnswer::Refused);
    assert!(world.objects.retry_refused(), "that of ConfigMaps is the first one again");
}

#[test]
fn a_secret_of_a_type_that_no_list_has_counts_as_absent_and_is_named_while_it_is_missing() {
    let mut world = World::following();
    let secret = |of_type: &str, version| raw("s", "u1", version, json!({"type": of_type}));
    let fetch = Fetch::Object(Kind::Secret, key("d/secret/s"));
    world.want(&["d/secret/s"]);
    assert_eq!(world.fetches(), std::slice::from_ref(&fetch));
    assert_eq!(world.answer(&fetch, vec![secret("helm.sh/release.v1", 5)]), [""; 0]);
    assert!(world.objects.take_unfit_change());
    let named: Vec<String> = world.objects.unfit().collect();
    assert!(named[0].starts_with("Secret d/s: ") && named[0].contains("helm.sh"), "{named:?}");
    assert_eq!(world.list(Kind::Secret, Vec::new()), [""; 0]);
    world.objects.forget_absent();
    world.want(&["d/secret/s"]);
    assert_eq!(world.fetches(), std::slice::from_ref(&fetch), "at each look");
    world.answer(&fetch, vec![secret("helm.sh/release.v1", 5)]);
    assert!(!world.objects.take_unfit_change() && world.objects.unfit().count() == 1);
    world.objects.forget_absent();
    world.want(&["d/secret/s"]);
    assert_eq!(world.fetches(), std::slice::from_ref(&fetch));
    assert_eq!(world.answer(&fetch, vec![secret("Opaque", 7)]), ["+d/secret/s"]);
    assert!(world.objects.take_unfit_change() && world.objects.unfit().count() == 0);
    world.step(Kind::Secret, Step::Delete(secret("Opaque", 8)));
    world.want(&["d/secret/s"]);
    assert_eq!(world.fetches(), std::slice::from_ref(&fetch));
    world.answer(&fetch, vec![secret("helm.sh/release.v1", 9)]);
    assert_eq!(world.objects.unfit().count(), 1);
    world.want(&[]);
    assert!(world.objects.unfit().count() == 0 && world.objects.take_unfit_change());
}

#[test]
fn a_pod_that_is_deleted_while_the_pods_of_its_node_are_requested_stays_deleted() {
    let mut world = World::following();
    world.step(Kind::Node, Step::Apply(node("gw-2")));
    let pods = world.fetches().remove(0);
    assert_eq!(world.step(Kind::Pod, Step::Delete(pod("a", "gw-2", "c", 7))), [""; 0]);
    let answer = vec![pod("a", "gw-2", "c", 5), pod("b", "gw-2", "c", 6)];
    let newest: Vec<&str> = world.objects.newest(&pods, &answer).map(RawObject::name).collect();
    assert_eq!(newest, ["b"], "for the view of the sink, too");
    assert_eq!(world.answer(&pods, answer), ["+d/pod/b"]);
}

#[test]
fn a_config_map_is_requested_when_it_is_named_and_leaves_with_its_last_user() {
    let mut world = World::following();
    let seen = world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 5, "x")));
    assert_eq!(seen, [""; 0], "no edge names it");
    world.want(&["d/configmap/c"]);
    assert_eq!(world.fetches(), [of_config("c")]);
    assert_eq!(world.answer(&of_config("c"), vec![config("c", "u1", 5, "x")]), ["+d/configmap/c"]);
    world.objects.forget_unused();
    world.want(&[]);
    world.objects.forget_unused();
    assert_eq!(world.objects.kinds[&Kind::ConfigMap].len(), 0);
    let seen = world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 8, "y")));
    assert_eq!(seen, [""; 0], "no edge names it any more");
}

#[test]
fn a_config_map_that_is_made_after_its_pod_arrives_and_another_one_of_its_name_too() {
    let mut world = World::following();
    world.want(&["d/configmap/c"]);
    assert_eq!(world.fetches(), [of_config("c")]);
    assert_eq!(world.answer(&of_config("c"), Vec::new()), [""; 0]);
    world.want(&["d/configmap/c"]);
    assert_eq!(world.fetches(), [], "it does not exist");
    let mut apply =
        |uid, version| world.step(Kind::ConfigMap, Step::Apply(config("c", uid, version, "x")));
    assert_eq!(apply("u1", 5), ["+d/configmap/c"]);
    assert_eq!(apply("u2", 7), ["+d/configmap/c"], "made again");
    let delete = |uid, version| Step::Delete(config("c", uid, version, "x"));
    assert_eq!(world.step(Kind::ConfigMap, delete("u1", 6)), [""; 0], "the first one");
    assert_eq!(world.step(Kind::ConfigMap, delete("u2", 8)), ["-d/configmap/c u2"]);
}

#[test]
fn an_event_that_is_older_than_an_answer_does_not_bring_the_past_back() {
    let mut world = World::following();
    world.want(&["d/configmap/c"]);
    world.fetches();
    world.answer(&of_config("c"), vec![config("c", "u2", 9, "new")]);
    let old = |uid, version, data| config("c", uid, version, data);
    assert_eq!(world.step(Kind::ConfigMap, Step::Apply(old("u1", 5, "old"))), [""; 0]);
    assert_eq!(world.step(Kind::ConfigMap, Step::Delete(old("u1", 6, "old"))), [""; 0]);
    assert_eq!(world.step(Kind::ConfigMap, Step::Apply(old("u2", 9, "new"))), [""; 0]);
    let next = world.step(Kind::ConfigMap, Step::Apply(old("u2", 10, "newer")));
    assert_eq!(next, ["+d/configmap/c"]);
}

#[test]
fn a_list_that_is_older_than_an_answer_does_not_remove_it() {
    let mut world = World::following();
    world.step(Kind::ConfigMap, Step::Init);
    world.want(&["d/configmap/c"]);
    world.fetches();
    world.answer(&of_config("c"), vec![config("c", "u1", 9, "x")]);
    assert_eq!(world.step(Kind::ConfigMap, Step::InitDone { order: Some(8) }), [""; 0]);
    assert_eq!(world.list_at(Kind::ConfigMap, Vec::new(), 9), ["-d/configmap/c u1"]);
}

#[test]
fn an_answer_that_is_older_than_a_list_does_not_bring_an_object_back() {
    let mut world = World::following();
    world.want(&["d/configmap/c"]);
    world.fetches();
    assert_eq!(world.list(Kind::ConfigMap, Vec::new()), [""; 0]);
    let late = world.answer(&of_config("c"), vec![config("c", "u1", 5, "x")]);
    assert_eq!(late, [""; 0]);
    assert_eq!(world.fetches(), [of_config("c")], "it is requested again");
}

#[test]
fn what_the_controller_forgot_and_needs_again_is_sent_again() {
    let mut world = World::following();
    world.want(&["d/configmap/c"]);
    world.fetches();
    world.answer(&of_config("c"), vec![config("c", "u1", 9, "x")]);
    // The last pod left and another one came before this side looked.
    world.has.clear();
    world.want(&["d/configmap/c"]);
    assert_eq!(world.fetches(), [], "it may still be on its way");
    assert!(world.objects.awaits_delivery());
    world.objects.set_now(DELIVERY_MS);
    world.want(&["d/configmap/c"]);
    assert_eq!(world.fetches(), [of_config("c")]);
    assert_eq!(world.answer(&of_config("c"), vec![config("c", "u1", 9, "x")]), ["+d/configmap/c"]);
}

#[test]
fn an_object_that_cannot_be_carried_is_named_and_what_was_sent_stays() {
    let mut world = World::following();
    let huge = "x".repeat(headwater_object::OBJECT_BYTES_MAX);
    world.want(&["d/configmap/c"]);
    world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 5, "x")));
    let changed = world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 6, &huge)));
    assert_eq!(changed, [""; 0]);
    let named: Vec<String> = world.objects.unfit().collect();
    assert!(named[0].starts_with("ConfigMap d/c: d/configmap/c: the object has "), "{named:?}");
    assert_eq!(world.list(Kind::ConfigMap, vec![config("c", "u1", 6, &huge)]), [""; 0]);
    assert_eq!(world.objects.unfit().count(), 1);
    assert_eq!(world.list(Kind::ConfigMap, vec![config("c", "u1", 7, "y")]), ["+d/configmap/c"]);
    assert_eq!(world.objects.unfit().count(), 0);
    world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 8, &huge)));
    assert_eq!(world.list(Kind::ConfigMap, Vec::new()), ["-d/configmap/c u1"]);
    assert_eq!(world.objects.unfit().count(), 0);
}

#[test]
fn the_objects_that_cannot_be_carried_are_named_again_only_when_they_change() {
    let mut world = World::following();
    let huge = "x".repeat(headwater_object::OBJECT_BYTES_MAX);
    world.want(&["d/configmap/c"]);
    assert!(!world.objects.take_unfit_change(), "there is none");
    world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 5, &huge)));
    assert!(world.objects.take_unfit_change());
    world.step(Kind::Pod, Step::Apply(pod("a", "gw", "c", 6)));
    world.step(Kind::Pod, Step::Delete(pod("a", "gw", "c", 7)));
    assert!(!world.objects.take_unfit_change(), "other objects change nothing of it");
    world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 8, "x")));
    assert!(world.objects.take_unfit_change(), "it can be carried now");
    world.step(Kind::ConfigMap, Step::Apply(config("c", "u1", 9, &huge)));
    assert!(world.objects.take_unfit_change());
    world.list(Kind::ConfigMap, Vec::new());
    assert!(world.objects.take_unfit_change(), "the list does not have it");
}

#[test]
fn config_maps_and_secrets_that_no_edge_names_leave_no_trace() {
    let mut world = World::following();
    for kind in [Kind::ConfigMap, Kind::Secret] {
        world.step(kind, Step::Init);
        for n in 0..20_000 {
            let listed = config(&format!("c{n}"), "u", n, "x");
            assert_eq!(world.step(kind, Step::InitApply(listed)), [""; 0]);
        }
        world.step(kind, Step::InitDone { order: None });
        let changed = config("c1", "u", 20_001, "y");
        assert_eq!(world.step(kind, Step::Apply(changed)), [""; 0]);
        assert_eq!(world.objects.kinds[&kind].len(), 0);
    }
    let ClusterObjects { fetches, refused, unfit, .. } = &world.objects;
    assert!(fetches.is_empty() && refused.is_empty() && unfit.is_empty());
}

#[test]
fn a_kind_that_cannot_be_listed_keeps_what_was_published_until_it_can() {
    let mut world = World::new();
    world.list(Kind::Node, vec![node("gw")]);
    let published = config("c", "u1", 1, "x").into_object(Kind::ConfigMap).expect("an object");
    let change = world.objects.carry_over(Kind::ConfigMap, published).expect("it stays");
    assert_eq!(text(vec![change]), ["+d/configmap/c"]);
    assert!(world.objects.complete(|kind| kind != Kind::ConfigMap));
    world.objects.end_first_list();
    let listed = vec![config("c", "u1", 4, "x")];
    assert_eq!(world.list(Kind::ConfigMap, listed), [""; 0]);
    assert_eq!(world.list(Kind::ConfigMap, Vec::new()), ["-d/configmap/c u1"]);
}

/// What happens in a cluster, and to its watch.
#[derive(Clone, Debug)]
enum Happening {
    /// A config map is made, changed or made again.
    Write {
        name: u8,
        again: bool,
    },
    Remove {
        name: u8,
    },
    /// The watch delivers its next events.
    Deliver(u8),
    /// The watch is too far behind: the kind is listed, after a list that broke in its middle.
    Relist {
        broken_after: u8,
    },
    /// The edges name other config maps.
    Name(u8),
    /// A request is answered, with the state of now.
    Answer,
}

fn happening() -> impl Strategy<Value = Happening> {
    let name = 0..4_u8;
    prop_oneof![
        4 => (name.clone(), any::<bool>()).prop_map(|(name, again)| Happening::Write { name, again }),
        2 => name.prop_map(|name| Happening::Remove { name }),
        4 => (1..4_u8).prop_map(Happening::Deliver),
        1 => (0..4_u8).prop_map(|broken_after| Happening::Relist { broken_after }),
        2 => (0..16_u8).prop_map(Happening::Name),
        3 => Just(Happening::Answer),
    ]
}

/// A cluster of config maps, its watch, and requests that are answered late.
struct Cluster {
    world: World,
    now: BTreeMap<u8, (u64, u64)>,
    version: u64,
    uid: u64,
    /// Events that the watch has not delivered.
    behind: Vec<Step>,
    /// Requests that were sent, with the answers that the server made then.
    answers: Vec<(Fetch, Vec<RawObject>)>,
}

impl Cluster {
    fn object(name: u8, uid: u64, version: u64) -> RawObject {
        config(&format!("c{name}"), &format!("u{uid}"), version, &version.to_string())
    }

    fn state(&self) -> Vec<RawObject> {
        self.now.iter().map(|(name, (uid, version))| Self::object(*name, *uid, *version)).collect()
    }

    /// The server makes the answers to the requests that were sent.
    fn serve(&mut self) {
        for fetch in self.world.fetches() {
            let Fetch::Object(_, key) = &fetch else { unreachable!("there are no nodes") };
            let of_key = |raw: &RawObject| raw.key(Kind::ConfigMap).as_ref() == Ok(key);
            let answer = self.state().into_iter().filter(of_key).collect();
            self.answers.push((fetch, answer));
        }
    }

    fn look(&mut self) {
        let wanted: Vec<ResourceKey> = self.world.wanted.0.borrow().iter().cloned().collect();
        self.world.has.retain(|key, _| key.kind() != "configmap" || wanted.contains(key));
        let missing = wanted.into_iter().filter(|key| !self.world.has.contains_key(key)).collect();
        self.world.objects.set_now(self.world.objects.now_ms + DELIVERY_MS);
        self.world.objects.look(missing);
        self.world.objects.forget_unused();
        self.serve();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Write { name, again } => {
                self.version += 1;
                if let Some((uid, _)) = self.now.get(&name).copied().filter(|_| again) {
                    self.behind.push(Step::Delete(Self::object(name, uid, self.version)));
                    self.now.remove(&name);
                    self.version += 1;
                }
                self.uid += 1;
                let new = self.uid;
                let entry = self.now.entry(name).or_insert((new, 0));
                entry.1 = self.version;
                self.behind.push(Step::Apply(Self::object(name, entry.0, entry.1)));
            }
            Happening::Remove { name } => {
                self.version += 1;
                if let Some((uid, _)) = self.now.remove(&name) {
                    self.behind.push(Step::Delete(Self::object(name, uid, self.version)));
                }
            }
            Happening::Deliver(count) => {
                for _ in 0..count {
                    if !self.behind.is_empty() {
                        let step = self.behind.remove(0);
                        self.world.step(Kind::ConfigMap, step);
                    }
                }
            }
            Happening::Relist { broken_after } => {
                self.behind.clear();
                self.world.step(Kind::ConfigMap, Step::Init);
                for raw in self.state().into_iter().take(usize::from(broken_after)) {
                    self.world.step(Kind::ConfigMap, Step::InitApply(raw));
                }
                let (state, version) = (self.state(), self.version);
                self.world.list_at(Kind::ConfigMap, state, version);
            }
            Happening::Name(names) => {
                let named = (0..4).filter(|name| names & (1 << name) != 0);
                *self.world.wanted.0.borrow_mut() =
                    named.map(|name| key(&format!("d/configmap/c{name}"))).collect();
            }
            Happening::Answer => {
                if !self.answers.is_empty() {
                    let (fetch, answer) = self.answers.remove(0);
                    self.world.answer(&fetch, answer);
                }
            }
        }
        self.look();
    }
}

proptest! {
    /// Whatever the order of events, lists and answers: in the end the controller has what the edges
    /// name, as the cluster has it, and a UID that was deleted does not come back.
    #[test]
    fn the_controller_has_what_is_named_when_it_is_quiet(
        happenings in proptest::collection::vec(happening(), 1..60),
        names in 0..16_u8,
    ) {
        let mut cluster = Cluster {
            world: World::following(),
            now: BTreeMap::new(),
            version: 1,
            uid: 0,
            behind: Vec::new(),
            answers: Vec::new(),
        };
        for happening in happenings {
            cluster.happen(happening);
        }
        cluster.happen(Happening::Name(names));
        for _ in 0..200 {
            cluster.happen(Happening::Deliver(1));
            cluster.happen(Happening::Answer);
        }
        let has: BTreeMap<String, String> = cluster
            .world
            .has
            .iter()
            .filter(|(key, _)| key.kind() == "configmap")
            .map(|(key, uid)| (key.name().to_owned(), uid.clone()))
            .collect();
        let expected: BTreeMap<String, String> = cluster
            .now
            .iter()
            .filter(|(name, _)| names & (1 << **name) != 0)
            .map(|(name, (uid, _))| (format!("c{name}"), format!("u{uid}")))
            .collect();
        prop_assert_eq!(has, expected);
    }
}
