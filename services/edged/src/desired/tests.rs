//! The desired state after a sequence of events.

use serde_json::json;

use super::*;
use crate::pod::namespace;

fn event(kind: Kind, key: &str, object: Value) -> WatchEvent {
    let object = local::Object {
        key: key.to_owned(),
        uid: "fallback".to_owned(),
        resource_version: String::new(),
        object: object.to_string().into_bytes().into(),
    };
    WatchEvent { kind: kind.into(), object: Some(object), ..WatchEvent::default() }
}

fn pod(kind: Kind, name: &str, uid: &str, node: Option<&str>) -> WatchEvent {
    let object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": uid},
        "spec": {"nodeName": node, "containers": []},
    });
    event(kind, &format!("shop/pod/{name}"), object)
}

fn plain(kind: Kind, complete: bool) -> WatchEvent {
    WatchEvent { kind: kind.into(), complete, ..WatchEvent::default() }
}

fn desired() -> DesiredState {
    DesiredState::new("gw-1".parse().expect("a name"), Column::Process)
}

fn take(desired: &mut DesiredState, events: impl IntoIterator<Item = WatchEvent>) {
    for event in events {
        desired.apply(event).expect("well-formed");
    }
}

fn names(desired: &DesiredState) -> Vec<&str> {
    desired.pods().keys().map(ResourceKey::name).collect()
}

#[test]
fn what_a_listing_names_counts_at_once_and_absence_only_at_its_complete_end() {
    let mut desired = desired();
    take(
        &mut desired,
        [
            plain(Kind::Init, false),
            pod(Kind::InitApply, "a", "1", Some("gw-1")),
            pod(Kind::InitApply, "b", "2", Some("gw-1")),
        ],
    );
    assert_eq!(names(&desired), ["a", "b"]);
    assert!(!desired.completeness().view);
    take(&mut desired, [plain(Kind::InitDone, true)]);
    assert!(desired.completeness().view);

    // The watch ended and starts over: an unfinished listing removes nothing.
    take(&mut desired, [plain(Kind::Init, false), pod(Kind::InitApply, "b", "2", Some("gw-1"))]);
    assert_eq!(names(&desired), ["a", "b"]);
    take(&mut desired, [plain(Kind::Init, false), pod(Kind::InitApply, "b", "2", Some("gw-1"))]);
    take(&mut desired, [plain(Kind::InitDone, true)]);
    assert_eq!(names(&desired), ["b"]);
}

#[test]
fn of_a_status_only_the_conditions_of_readiness_gates_are_kept() {
    let conditions = |gates: Value| {
        let object = json!({
            "metadata": {"uid": "1"}, "spec": {"containers": [], "readinessGates": gates},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "False"}, {"type": "shop/traffic", "status": "True"}]},
        });
        let mut desired = desired();
        take(&mut desired, [event(Kind::Apply, "shop/pod/a", object)]);
        let pod = desired.pods().values().next().expect("the pod").pod.decode();
        serde_json::to_value(pod.status).expect("JSON")
    };
    assert_eq!(conditions(json!(null)), json!(null));
    let gate = json!([{"conditionType": "shop/traffic"}]);
    let kept = json!({"conditions": [{"type": "shop/traffic", "status": "True"}]});
    assert_eq!(conditions(gate), kept);
}

#[test]
fn the_end_of_an_incomplete_listing_removes_nothing() {
    let mut desired = desired();
    take(&mut desired, [pod(Kind::Apply, "a", "1", Some("gw-1"))]);
    take(&mut desired, [plain(Kind::Init, false), plain(Kind::InitDone, false)]);
    assert_eq!(names(&desired), ["a"]);
    assert!(!desired.completeness().view);
}

#[test]
fn pods_of_other_nodes_are_not_ours_and_those_of_none_are() {
    let mut desired = desired();
    take(
        &mut desired,
        [
            pod(Kind::Apply, "other", "1", Some("gw-2")),
            pod(Kind::Apply, "ours", "2", Some("gw-1")),
            pod(Kind::Apply, "unbound", "3", None),
        ],
    );
    assert_eq!(names(&desired), ["ours", "unbound"]);
}

#[test]
fn a_malformed_event_is_refused_and_a_named_pod_that_cannot_be_read_is_not_absent() {
    let mut desired = desired();
    take(&mut desired, [pod(Kind::Apply, "a", "1", Some("gw-1")), plain(Kind::Init, false)]);
    let bad = event(Kind::InitApply, "shop/pod/a", json!({"spec": 7}));
    assert!(matches!(desired.apply(bad), Err(DesiredError::Object { .. })));
    let bad = pod(Kind::Apply, "b", "../../etc", Some("gw-1"));
    assert!(matches!(desired.apply(bad), Err(DesiredError::Uid { .. })));
    assert!(matches!(desired.apply(plain(Kind::Apply, false)), Err(DesiredError::MissingField(_))));
    let bad = event(Kind::Apply, "no-key", json!({}));
    assert!(matches!(desired.apply(bad), Err(DesiredError::Key(_))));
    take(&mut desired, [plain(Kind::InitDone, true)]);
    assert_eq!(names(&desired), ["a"], "the former pod stays");
}

#[test]
fn a_pod_of_the_namespace_null_stays_in_it() {
    let mut desired = desired();
    let object = json!({
        "metadata": {"name": "web", "namespace": "null", "uid": "1"}, "spec": {"containers": []},
    });
    let secret = json!({"metadata": {"name": "s"}});
    take(
        &mut desired,
        [
            event(Kind::Apply, "null/pod/web", object),
            event(Kind::Apply, "default/secret/s", secret),
        ],
    );
    let pod = desired.pods()["null/pod/web"].pod.decode();
    assert_eq!(namespace(&pod), "null");
    assert!(desired.objects().secret(namespace(&pod), "s").is_none());
}

#[test]
fn objects_come_and_go_with_their_events() {
    let mut desired = desired();
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    take(&mut desired, [event(Kind::Apply, "shop/configmap/m", map)]);
    let before = desired.objects().clone();
    assert!(before.config_map("shop", "m").is_some());
    take(&mut desired, [event(Kind::Delete, "shop/configmap/m", json!({}))]);
    assert!(desired.objects().config_map("shop", "m").is_none());
    assert!(before.config_map("shop", "m").is_some(), "a copy stays as it was");
    assert!(!before.same(desired.objects()));
}

#[test]
fn the_status_of_other_writers_is_not_kept() {
    let mut desired = desired();
    let object = json!({
        "metadata": {"labels": {"app": "web"}, "managedFields": [{"manager": "kubectl"}]},
        "spec": {"containers": []},
        "status": {"phase": "Running"},
    });
    take(&mut desired, [event(Kind::Apply, "shop/pod/web", object)]);
    let pod = desired.pods().values().next().expect("the pod").pod.decode();
    assert!(pod.metadata.labels.is_some());
    assert_eq!((&pod.metadata.managed_fields, &pod.status), (&None, &None));
}
