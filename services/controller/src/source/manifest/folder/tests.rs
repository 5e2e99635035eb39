//! One scan after another: the notices, what stays in place, and what stops the source.

mod accidents;
mod rollouts;
mod takeovers;

use headwater_object::payload::canonical;
use serde_json::json;

use super::*;
use crate::source::{PodReport, PublishedObject, ReportChanges};

/// What the nodes report: the UID and status of each pod.
#[derive(Clone, Debug, Default)]
struct Reports(BTreeMap<ResourceKey, (String, Value)>);

impl PodReports for Reports {
    fn report(&self, key: &ResourceKey, pod: &Value) -> Option<PodReport> {
        let (uid, status) = self.0.get(key)?;
        let report = PodReport { status: status.clone(), is_node_reachable: true };
        (pod["metadata"]["uid"] == **uid).then_some(report)
    }

    fn reported(
        &self,
        _: &str,
        _: &str,
        selects: &dyn Fn(&ResourceKey, &NodeName) -> bool,
    ) -> BTreeSet<ResourceKey> {
        let node = "a".parse().expect("ok");
        self.0.keys().filter(|key| selects(key, &node)).cloned().collect()
    }

    fn subscribe(&self) -> Box<dyn ReportChanges> {
        NoReports.subscribe()
    }
}

/// A folder whose files, nodes and past are written down, and identities counted.
struct Story {
    folder: Folder,
    scan: Vec<(&'static str, Result<String, String>)>,
    device: u64,
    mounts: BTreeMap<PathBuf, u64>,
    unreadable_folders: Vec<PathBuf>,
    nodes: BTreeSet<NodeName>,
    published: BTreeMap<ResourceKey, PublishedObject>,
    /// What the events of this folder make, without what another controller published.
    interest: BTreeMap<ResourceKey, PublishedObject>,
    identities: u64,
    reports: Reports,
    now: Timestamp,
    /// Whether the next look takes over from another controller.
    is_takeover: bool,
}

/// The events of a scan, as text, and its notices.
struct ScanOutcome {
    events: Vec<String>,
    notices: Vec<String>,
}

impl Story {
    fn new() -> Self {
        Self {
            folder: Folder::new("manifests", false),
            scan: Vec::new(),
            device: 1,
            mounts: BTreeMap::new(),
            unreadable_folders: Vec::new(),
            nodes: ["a", "b"].into_iter().map(|node| node.parse().expect("ok")).collect(),
            published: BTreeMap::new(),
            interest: BTreeMap::new(),
            identities: 0,
            reports: Reports::default(),
            now: Timestamp::UNIX_EPOCH,
            is_takeover: false,
        }
    }

    /// Takes over from another controller; what follows is published with what that one published.
    fn take_over(&mut self, writer: &Self) {
        self.published.clone_from(&writer.published);
        self.reports.clone_from(&writer.reports);
        self.is_takeover = true;
        self.update();
        self.is_takeover = false;
        // The comparison makes everything as the events of this folder have it, and adopts UIDs.
        let objects = self.interest.iter().map(|(key, object)| {
            let mut value = object.value();
            let known = writer.published.get(key).map(|known| known.uid.clone());
            let uid = known.unwrap_or_else(|| uid_of(&value));
            value["metadata"]["uid"] = json!(uid);
            let payload = canonical(&value);
            (key.clone(), PublishedObject::new(uid, String::new(), payload))
        });
        self.published = objects.collect();
    }

    /// Every pod reports itself with this status.
    fn report_all(&mut self, status: &Value) {
        let pods = self.published.iter().filter(|(key, _)| is_pod(key));
        let reports = pods.map(|(key, pod)| (key.clone(), (pod.uid.clone(), status.clone())));
        self.reports = Reports(reports.collect());
    }

    /// Looks again and again, while every pod becomes Ready, until nothing changes.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.report_all(&ready());
            if self.update().events.is_empty() {
                return;
            }
        }
        panic!("the folder does not settle");
    }

    fn pods(&self) -> BTreeMap<String, String> {
        let pods = self.published.iter().filter(|(key, _)| is_pod(key));
        pods.map(|(key, pod)| (key.name().to_owned(), pod.uid.clone())).collect()
    }

    fn write(&mut self, path: &'static str, text: impl Into<String>) {
        self.scan.retain(|(known, _)| *known != path);
        self.scan.push((path, Ok(text.into())));
    }

    fn delete(&mut self, path: &str) {
        self.scan.retain(|(known, _)| *known != path);
    }

    fn try_update(&mut self) -> Result<Vec<SourceEvent>, ManifestError> {
        let files = self.scan.iter().map(|(path, text)| (PathBuf::from(path), text.clone()));
        let scan = Scan {
            device: self.device,
            files: files.collect(),
            mounts: self.mounts.clone(),
            unreadable_folders: self.unreadable_folders.clone(),
            data_directories: Vec::new(),
            skipped: Vec::new(),
        };
        let identities = &mut self.identities;
        let around = Surroundings {
            nodes: &self.nodes,
            published: &self.published,
            is_takeover: self.is_takeover,
            reports: &self.reports,
            now: self.now,
        };
        let events = self.folder.look(scan, &around, &mut || {
            *identities += 1;
            ObjectIdentity { uid: format!("u{identities}"), time: Timestamp::UNIX_EPOCH }
        })?;
        for event in &events {
            match event {
                SourceEvent::InitApply(object) | SourceEvent::Apply(object, _) => {
                    let uid = object.uid().to_owned();
                    let payload = object.payload().clone();
                    self.interest.insert(
                        object.key().clone(),
                        PublishedObject::new(uid, String::new(), payload),
                    );
                }
                SourceEvent::Delete { key, .. } => {
                    self.interest.remove(key);
                }
                SourceEvent::Init => self.interest.clear(),
                SourceEvent::InitDone | SourceEvent::Notice(_) | SourceEvent::TakenOver { .. } => {}
            }
        }
        self.published.clone_from(&self.interest);
        Ok(events)
    }

    fn update(&mut self) -> ScanOutcome {
        let mut outcome = ScanOutcome { events: Vec::new(), notices: Vec::new() };
        for event in self.try_update().expect("no accident") {
            match event {
                SourceEvent::Notice(notice) => outcome.notices.push(notice.to_string()),
                SourceEvent::TakenOver { .. } => {}
                SourceEvent::Init => outcome.events.push("init".to_owned()),
                SourceEvent::InitDone => outcome.events.push("done".to_owned()),
                SourceEvent::InitApply(object) | SourceEvent::Apply(object, _) => {
                    outcome.events.push(format!("+{} {}", object.key(), object.uid()));
                }
                SourceEvent::Delete { key, uid, .. } => {
                    outcome.events.push(format!("-{key} {uid}"))
                }
            }
        }
        outcome
    }

    /// The next look is the first of another run.
    fn restart(&mut self) {
        self.folder = Folder::new("manifests", false);
    }

    fn object(&self, key: &str) -> Value {
        self.published[&key.parse::<ResourceKey>().expect("a key")].value()
    }

    fn node_of(&self, key: &str) -> String {
        self.object(key)["spec"]["nodeName"].as_str().expect("placed").to_owned()
    }
}

fn pod(name: &str, image: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
    .to_string()
}

fn config_map(name: &str, data: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: \"{data}\"}}\n"
    )
}

fn deployment(name: &str, replicas: u64, image: &str) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
    })
    .to_string()
}

const NOTHING: [&str; 0] = [];

#[test]
fn the_first_scan_is_a_list_and_the_next_has_the_changes() {
    let mut story = Story::new();
    story.write("p.json", pod("p", "i"));
    story.write("c.yaml", config_map("c", "1"));
    assert_eq!(
        story.update().events,
        ["init", "+default/configmap/c u1", "+default/pod/p u2", "done"]
    );
    assert_eq!(story.update().events, NOTHING);
    story.write("c.yaml", format!("# touched\n{}", config_map("c", "1")));
    assert_eq!(story.update().events, NOTHING, "touched, but equal");
    story.write("c.yaml", config_map("c", "2"));
    assert_eq!(story.update().events, ["+default/configmap/c u1"]);
    story.write("d.yaml", config_map("d", "1"));
    story.delete("p.json");
    assert_eq!(story.update().events, ["-default/pod/p u2", "+default/configmap/d u3"]);
}

#[test]
fn a_restart_changes_nothing() {
    let mut story = Story::new();
    story.write("d.json", deployment("d", 5, "i"));
    story.write("c.yaml", config_map("c", "1"));
    story.write("s.yaml", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\n\
        spec: {replicas: 2, template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: c}]}}}\n");
    story.settle();
    let before = story.published.clone();
    story.restart();
    let outcome = story.update();
    assert_eq!(outcome.events.len(), 2 + 8);
    assert_eq!(story.published, before);
    assert_eq!(story.identities, 8, "no object gets another identity");
}

#[test]
fn a_pod_changed_where_kubernetes_allows_it_stays_and_elsewhere_is_another() {
    let mut story = Story::new();
    story.write("p.json", pod("p", "i:1"));
    story.update();
    story.write("p.json", pod("p", "i:2"));
    assert_eq!(story.update().events, ["+default/pod/p u1"]);
    story.write("p.json", pod("p", "i:2").replace("\"name\":\"c\"", "\"name\":\"d\""));
    assert_eq!(story.update().events, ["-default/pod/p u1", "+default/pod/p u2"]);
    story.restart();
    story.write("p.json", pod("p", "i:2"));
    assert_eq!(story.update().events, ["init", "+default/pod/p u3", "done"], "also over a restart");
}

#[test]
fn a_name_that_comes_back_is_another_object() {
    let mut story = Story::new();
    story.write("c.yaml", config_map("c", "1"));
    story.write("d.yaml", config_map("d", "1"));
    story.update();
    story.delete("c.yaml");
    assert_eq!(story.update().events, ["-default/configmap/c u1"]);
    story.write("c.yaml", config_map("c", "1"));
    assert_eq!(story.update().events, ["+default/configmap/c u3"]);
}

#[test]
fn a_changed_template_replaces_the_pods_of_a_deployment() {
    let mut story = Story::new();
    story.write("d.json", deployment("d", 2, "i:1"));
    story.update();
    let old: BTreeSet<ResourceKey> = story.published.keys().cloned().collect();
    story.write("d.json", deployment("d", 2, "i:2"));
    let outcome = story.update();
    assert_eq!(outcome.events.iter().map(|event| &event[..1]).collect::<String>(), "+");
    story.settle();
    assert_eq!(story.published.len(), 2);
    assert!(story.published.keys().all(|key| !old.contains(key)));
    story.write("d.json", deployment("d", 3, "i:2"));
    assert_eq!(story.update().events.len(), 1, "one more");
}

#[test]
fn a_changed_template_gives_the_pods_of_a_stateful_set_new_uids_under_the_old_names() {
    let set = |image: &str| deployment("s", 1, image).replace("Deployment", "StatefulSet");
    let mut story = Story::new();
    story.write("s.json", set("i:1"));
    story.update();
    let node = story.node_of("default/pod/s-0");
    story.report_all(&ready());
    story.write("s.json", set("i:2"));
    assert_eq!(story.update().events, ["-default/pod/s-0 u1", "+default/pod/s-0 u2"]);
    assert_eq!(story.node_of("default/pod/s-0"), node, "and it stays where it was");
}

fn ready() -> Value {
    json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}],
    })
}

#[test]
fn placement_changes_only_when_a_node_leaves() {
    let mut story = Story::new();
    story.write("d.json", deployment("d", 6, "i"));
    story.update();
    story.nodes.insert("c".parse().expect("ok"));
    assert_eq!(story.update().events, NOTHING, "a node that joins moves nothing");
    story.nodes.remove(&"a".parse::<NodeName>().expect("ok"));
    let outcome = story.update();
    assert_eq!(outcome.events.len(), 6, "three pods move, as other pods: {:?}", outcome.events);
    let on_c = story.published.values().filter(|pod| pod.node().expect("placed").as_str() == "c");
    assert_eq!(on_c.count(), 3);
}

#[test]
fn a_daemon_set_follows_the_nodes() {
    let mut story = Story::new();
    story.write("d.json", deployment("d", 1, "i").replace("Deployment", "DaemonSet"));
    assert_eq!(story.update().events.len(), 2 + 2);
    story.nodes.insert("c".parse().expect("ok"));
    assert_eq!(story.update().events.len(), 1);
    story.nodes.remove(&"a".parse::<NodeName>().expect("ok"));
    let outcome = story.update();
    assert!(
        outcome.events.len() == 1 && outcome.events[0].starts_with('-'),
        "{:?}",
        outcome.events
    );
}

#[test]
fn a_broken_file_leaves_what_it_described_in_place_and_is_named_once() {
    let mut story = Story::new();
    story.write("f.yaml", format!("{}---\n{}", config_map("a", "1"), config_map("b", "1")));
    story.write("g.yaml", config_map("g", "1"));
    story.update();
    story.write("f.yaml", format!("{}---\nb: [\n", config_map("a", "2")));
    story.write("g.yaml", config_map("g", "2"));
    let outcome = story.update();
    assert_eq!(
        outcome.events,
        ["+default/configmap/a u1", "+default/configmap/g u3"],
        "the rest goes on"
    );
    assert_eq!(outcome.notices.len(), 1);
    assert!(outcome.notices[0].starts_with("f.yaml:"), "{:?}", outcome.notices);
    assert!(outcome.notices[0].ends_with("stays in place"), "{:?}", outcome.notices);
    let again = story.update();
    assert!(again.events.is_empty() && again.notices.is_empty(), "once");
    story.write("f.yaml", config_map("a", "2"));
    assert_eq!(story.update().events, ["-default/configmap/b u2"], "now it is meant");
}

#[test]
fn an_invalid_object_leaves_the_one_before_in_place() {
    let mut story = Story::new();
    story.write("p.json", pod("p", "i"));
    story.update();
    for broken in
        [pod("p", "i").replace("\"i\"", "7"), pod("P!", "i"), "a: 1".to_owned(), String::new()]
    {
        story.write("p.json", broken);
        let outcome = story.update();
        assert!(outcome.events.is_empty(), "{:?}", outcome.events);
        // Another trouble in its place means that the one before is repaired.
        let troubles = outcome.notices.iter().filter(|notice| !notice.contains(": repaired: "));
        assert_eq!(troubles.count(), 1, "{:?}", outcome.notices);
    }
    story.scan = vec![("p.json", Err("cannot be read".to_owned()))];
    assert_eq!(story.update().events, NOTHING);
}

#[test]
fn a_file_found_broken_at_a_restart_keeps_what_an_earlier_run_published_from_it() {
    let mut story = Story::new();
    story.write("f.yaml", config_map("a", "1"));
    story.write("d.json", deployment("d", 2, "i"));
    story.write("g.yaml", config_map("g", "1"));
    story.update();
    let before = story.published.clone();
    story.restart();
    story.write("f.yaml", "a: [");
    story.write("d.json", "{");
    story.delete("g.yaml");
    let outcome = story.update();
    let kept: Vec<_> = before.iter().filter(|(key, _)| key.name() != "g").collect();
    assert_eq!(story.published.iter().collect::<Vec<_>>(), kept);
    assert_eq!(outcome.notices.len(), 2);
    story.write("d.json", deployment("d", 2, "i"));
    assert_eq!(story.update().events, NOTHING);
}

#[test]
fn of_the_same_object_in_two_files_the_first_by_path_stays() {
    let mut story = Story::new();
    story.write("b.yaml", config_map("c", "b"));
    story.update();
    story.write("a.yaml", config_map("c", "a"));
    let outcome = story.update();
    assert_eq!(outcome.events, ["+default/configmap/c u1"]);
    assert_eq!(
        outcome.notices,
        [
            "b.yaml:1: ConfigMap default/c is described already in a.yaml:1, which stays; this one is left out"
        ]
    );
    story.delete("a.yaml");
    assert_eq!(story.update().events, ["+default/configmap/c u1"]);
    assert_eq!(story.object("default/configmap/c")["data"]["k"], "b");
}

#[test]
fn a_pod_that_a_workload_would_make_too_stays() {
    let mut story = Story::new();
    story.write("s.json", deployment("s", 1, "i").replace("Deployment", "StatefulSet"));
    story.write("p.json", pod("s-0", "other"));
    let outcome = story.update();
    assert_eq!(outcome.events.len(), 3);
    assert!(outcome.notices[0].contains("StatefulSet default/s is described already in p.json:1"));
}

#[test]
fn a_trouble_holds_until_its_repair_which_is_reported_once() {
    let mut story = Story::new();
    let broken = "apiVersion: v1\nkind: Pod\n";
    story.write("p.yaml", broken);
    assert_eq!(story.update().notices, ["p.yaml:1: Pod without metadata.name"]);
    story.write("p.yaml", format!("# moved\n{broken}"));
    assert_eq!(story.update().notices, ["p.yaml:2: Pod without metadata.name"], "no repair");
    story.write("c.yaml", config_map("c", "1"));
    assert_eq!(story.update().notices, NOTHING);
    assert_eq!(story.folder.notices().count(), 1);
    story.write("p.yaml", pod("p", "i"));
    assert_eq!(story.update().notices, ["p.yaml:2: repaired: Pod without metadata.name"]);
    assert_eq!(story.folder.notices().count(), 0);
    assert_eq!(story.update().notices, NOTHING);
}

#[test]
fn under_strict_a_document_with_an_unknown_field_leaves_what_its_file_described_before() {
    let mut story = Story::new();
    story.folder = Folder::new("manifests", false).with_strict(true);
    story.write("c.yaml", config_map("c", "1"));
    story.update();
    story.write("c.yaml", config_map("c", "2").replace("\ndata:", "\ndta: {}\ndata:"));
    let outcome = story.update();
    assert_eq!(outcome.events, NOTHING);
    assert_eq!(
        outcome.notices,
        ["c.yaml:4: ConfigMap default/c: unknown field dta; did you mean data? (refused under \
          --strict); what the file described before stays in place"]
    );
    story.folder = Folder::new("manifests", false);
    let outcome = story.update();
    assert_eq!(outcome.events, ["init", "+default/configmap/c u1", "done"]);
    assert_eq!(
        outcome.notices,
        ["c.yaml:4: ConfigMap default/c: unknown field dta; did you mean data?"]
    );
    assert_eq!(story.object("default/configmap/c")["data"]["k"], "2");
}

#[test]
fn an_empty_folder_is_a_fine_start() {
    let mut story = Story::new();
    let outcome = story.update();
    assert_eq!(outcome.events, ["init", "done"]);
    assert_eq!(outcome.notices, ["no file under manifests ends in .yaml, .yml or .json"]);
}

#[test]
fn another_device_under_the_folder_changes_nothing_until_the_former_is_back() {
    let mut story = Story::new();
    story.write("c.yaml", config_map("c", "1"));
    story.update();
    story.device = 2;
    story.write("c.yaml", config_map("c", "2"));
    assert!(matches!(story.try_update(), Err(ManifestError::OtherDevice { .. })));
    assert_eq!(story.object("default/configmap/c")["data"]["k"], "1");
    story.device = 1;
    assert_eq!(story.update().events, ["+default/configmap/c u1"]);
}

#[test]
fn what_lies_in_a_folder_that_cannot_be_entered_stays() {
    let mut story = Story::new();
    story.write("locked/c.yaml", config_map("c", "1"));
    story.update();
    story.delete("locked/c.yaml");
    story.unreadable_folders = vec!["locked".into()];
    assert_eq!(story.update().events, NOTHING);
}

#[test]
fn a_restart_before_a_folder_that_cannot_be_entered_keeps_what_was_published_from_it() {
    let mut story = Story::new();
    story.write("locked/d.json", deployment("d", 2, "i"));
    story.write("locked/c.yaml", config_map("c", "1"));
    story.write("open.yaml", config_map("open", "1"));
    story.update();
    let before = story.published.clone();
    story.delete("locked/d.json");
    story.delete("locked/c.yaml");
    story.unreadable_folders = vec!["locked".into()];
    story.restart();
    story.update();
    assert_eq!(story.published, before, "the list is whole, with the same UIDs");
    // A look later it is as it was, and what really went then goes.
    story.unreadable_folders.clear();
    story.write("locked/c.yaml", config_map("c", "1"));
    let events = story.update().events;
    assert_eq!(events.len(), 2, "both pods: {events:?}");
    assert!(events.iter().all(|event| event.starts_with("-default/pod/d-")), "{events:?}");
}

#[test]
fn a_folder_that_was_a_mount_and_is_none_after_a_restart_changes_nothing() {
    let mut story = Story::new();
    story.mounts.insert(PathBuf::new(), 7);
    story.write("c.yaml", config_map("c", "1"));
    story.update();
    story.restart();
    // The mount comes late: what lies below it is there meanwhile.
    story.mounts.clear();
    story.delete("c.yaml");
    story.write("example.yaml", config_map("example", "1"));
    for _ in 0..2 {
        assert!(matches!(story.try_update(), Err(ManifestError::Unmounted { .. })));
    }
    story.device = 8;
    story.mounts.insert(PathBuf::new(), 8);
    story.delete("example.yaml");
    story.write("c.yaml", config_map("c", "2"));
    assert_eq!(story.update().events, ["init", "+default/configmap/c u1", "done"]);
    // The same files in another place.
    story.restart();
    story.mounts.clear();
    story.update();
    let annotations = &story.object("default/configmap/c")["metadata"]["annotations"];
    assert_eq!(annotations[MOUNT_ANNOTATION], Value::Null);
}

#[test]
fn a_mount_that_goes_is_no_removal_neither_in_a_run_nor_over_a_restart() {
    let mut story = Story::new();
    story.write("usb/c.yaml", config_map("c", "1"));
    story.write("c2.yaml", config_map("c2", "1"));
    story.mounts.insert("usb".into(), 7);
    story.update();
    assert_eq!(
        story.object("default/configmap/c")["metadata"]["annotations"][MOUNT_ANNOTATION],
        "usb"
    );
    let before = story.published.clone();
    // What lies below the mount point now comes to light.
    story.mounts.clear();
    story.write("usb/c.yaml", config_map("c", "other"));
    story.write("usb/hidden.yaml", config_map("hidden", "1"));
    let outcome = story.update();
    assert_eq!(outcome.events, NOTHING);
    assert_eq!(outcome.notices.len(), 1, "{:?}", outcome.notices);
    assert!(outcome.notices[0].starts_with("usb: was a mount"), "{:?}", outcome.notices);
    assert_eq!(story.update().notices, NOTHING, "named once");
    story.delete("usb/c.yaml");
    story.delete("usb/hidden.yaml");
    assert_eq!(story.update().events, NOTHING, "the mount point is gone, too");
    story.restart();
    assert_eq!(story.update().notices.len(), 1);
    assert_eq!(story.published, before);
    // An older copy, which the mount had hidden.
    story.restart();
    story.write("usb/c.yaml", config_map("c", "older"));
    assert_eq!(story.update().notices.len(), 1);
    assert_eq!(story.published, before);
    story.delete("usb/c.yaml");
    story.update();
    // Something else, and empty, is mounted there; and then the right one, under another number.
    story.mounts.insert("usb".into(), 8);
    assert_eq!(story.update().events, NOTHING);
    story.mounts.insert("usb".into(), 9);
    story.write("usb/c.yaml", config_map("c", "1"));
    assert_eq!(story.update().events, NOTHING);
    story.delete("usb/c.yaml");
    assert_eq!(story.update().events, ["-default/configmap/c u1"], "a deletion in a mount");
}

#[test]
fn a_mount_that_is_gone_for_good_is_given_up_with_allow_empty() {
    let mut story = Story::new();
    story.write("usb/c.yaml", config_map("c", "1"));
    story.write("c2.yaml", config_map("c2", "1"));
    story.mounts.insert("usb".into(), 7);
    story.update();
    story.mounts.clear();
    story.delete("usb/c.yaml");
    story.folder = Folder::new("manifests", true);
    story.update();
    assert_eq!(story.published.len(), 1);
}

#[test]
fn objects_carry_where_they_come_from_and_when_they_came() {
    let mut story = Story::new();
    let exported = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  uid: copied\n  \
        resourceVersion: '7'\n  creationTimestamp: 2001-01-01T00:00:00Z\n  annotations: {a: b}\n";
    story.write("web/c.yaml", exported);
    assert_eq!(story.update().events[1], "+default/configmap/c u1");
    let metadata = story.object("default/configmap/c")["metadata"].clone();
    assert_eq!(metadata["annotations"], json!({"a": "b", MANIFEST_ANNOTATION: "web/c.yaml"}));
    assert_eq!(metadata["creationTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!(metadata["resourceVersion"], Value::Null, "copied history means nothing here");
}

#[test]
fn pods_that_no_node_fits_are_named_once_and_placed_when_one_does() {
    let mut story = Story::new();
    let picky = deployment("d", 2, "i").replace(
        "\"containers\"",
        "\"nodeSelector\":{\"kubernetes.io/hostname\":\"c\"},\"containers\"",
    );
    story.write("d.json", picky);
    let outcome = story.update();
    assert_eq!(outcome.notices.len(), 1);
    assert!(
        outcome.notices[0].contains("and 1 more wait: none of 2 nodes fits, asking for"),
        "{:?}",
        outcome.notices
    );
    assert!(story.update().notices.is_empty());
    story.nodes.insert("c".parse().expect("ok"));
    story.update();
    assert!(story.published.values().all(|pod| pod.node().expect("placed").as_str() == "c"));
}

#[test]
fn without_given_nodes_those_described_are_used() {
    let mut story = Story::new();
    story.nodes.clear();
    story.write("p.json", pod("p", "i"));
    assert!(story.update().notices[0].contains("there is no node"));
    story.write("n.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: gw-7}\n");
    story.update();
    assert_eq!(story.node_of("default/pod/p"), "gw-7");
}

#[test]
fn kinds_that_are_not_replicated_are_counted_and_named_once() {
    let mut story = Story::new();
    let class = |name| {
        format!("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}}}\n")
    };
    story.write("s.yaml", format!("{}---\n{}", class("a"), class("b")));
    let notices = story.update().notices;
    assert_eq!(notices, ["s.yaml:1: StorageClass of storage.k8s.io is not replicated (2 found)"]);
    story.write("t.yaml", class("c"));
    assert!(story.update().notices.is_empty());
}
