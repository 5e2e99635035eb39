//! Which rights each kind of process gives, and which it refuses by name.

use serde_json::{Value, json};

use super::*;

const EDGE: u32 = 990;

fn own(user: u32, can_separate: bool) -> OwnRights {
    OwnRights { user, group: user, groups: vec![user, 7], can_separate }
}

fn policy(user: u32, can_separate: bool, allow_root: bool) -> RightsPolicy {
    RightsPolicy { own: own(user, can_separate), allow_root }
}

fn checked(policy: &RightsPolicy, pod: Value, container: Value) -> Result<(), String> {
    let mut spec = json!({"containers": [{"name": "c"}]});
    spec.as_object_mut().expect("an object").extend(pod.as_object().cloned().unwrap_or_default());
    let fields = spec["containers"][0].as_object_mut().expect("an object");
    fields.extend(container.as_object().cloned().unwrap_or_default());
    let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
    let container = &crate::pod::main_containers(&pod)[0];
    policy.check(&pod, container, Some(EDGE)).map_err(|reason| reason.message)
}

fn user(context: Value) -> Value {
    json!({"securityContext": context})
}

#[test]
fn root_runs_a_container_only_as_the_user_that_it_names() {
    let root = policy(0, true, false);
    checked(&root, user(json!({"runAsUser": 1000})), Value::Null).expect("another user");
    for (pod, why) in [
        (Value::Null, "it is missing"),
        (user(json!({"runAsUser": 0})), "0 is root"),
        (user(json!({"runAsUser": EDGE})), "the user of the edge"),
    ] {
        let message = checked(&root, pod.clone(), Value::Null).expect_err(why);
        assert!(message.starts_with("spec.containers[0].securityContext.runAsUser: "), "{message}");
        assert!(message.contains(why), "{message}");
        checked(&policy(0, true, true), pod, Value::Null).expect("root is allowed");
    }
}

#[test]
fn a_process_without_the_rights_of_root_runs_containers_as_itself_only() {
    for weak in [policy(1000, false, false), policy(0, false, true)] {
        let own = weak.own.user;
        checked(&weak, Value::Null, Value::Null).expect("as itself");
        checked(&weak, user(json!({"runAsUser": own, "runAsGroup": own})), Value::Null)
            .expect("itself");
        checked(&weak, user(json!({"fsGroup": 7, "supplementalGroups": [7]})), Value::Null)
            .expect("a group of its own");
        for (context, field) in [
            (json!({"runAsUser": 4242}), "runAsUser"),
            (json!({"runAsGroup": 4242}), "runAsGroup"),
            (json!({"fsGroup": 4242}), "fsGroup"),
            (json!({"supplementalGroups": [4242]}), "supplementalGroups"),
        ] {
            let message = checked(&weak, user(context), Value::Null).expect_err(field);
            assert!(message.contains(field) && message.contains("4242"), "{message}");
        }
        let why = weak.shared_rights().expect("no pod is kept apart");
        assert!(why.contains("with the rights of the edge"), "{why}");
    }
    assert_eq!(policy(0, true, false).shared_rights(), None);
    assert!(
        policy(0, true, true).shared_rights().is_some_and(|why| why.contains("without runAsUser"))
    );
}

#[test]
fn a_container_that_must_not_be_root_never_is() {
    let strict = user(json!({"runAsNonRoot": true}));
    let root = policy(0, true, true);
    let message = checked(&root, strict.clone(), Value::Null).expect_err("root");
    assert!(message.contains("runAsNonRoot"), "{message}");
    let other = json!({"securityContext": {"runAsUser": 1000}});
    checked(&root, strict.clone(), other).expect("another user");
    checked(&policy(1000, false, false), strict.clone(), Value::Null).expect("not root");
    let lenient = json!({"securityContext": {"runAsNonRoot": false}});
    checked(&root, strict, lenient).expect("the container's own context counts");
}

#[test]
fn the_identity_of_a_container_is_exactly_what_its_spec_names() {
    let wanted = Credentials {
        user: Some(4_000_001),
        fs_group: Some(20),
        supplemental_groups: vec![30],
        no_new_privileges: true,
        dropped: 5,
        ..Credentials::default()
    };
    let rights = policy(0, true, false).rights(&wanted).expect("root can");
    let identity = UserIdentity { user: 4_000_001, group: 4_000_001, groups: vec![30, 20] };
    let expected = LaunchRights { identity: Some(identity), no_new_privileges: true, dropped: 5 };
    assert_eq!(rights, expected, "and never root's group");
    let wanted = Credentials { group: Some(8), ..wanted };
    let rights = policy(0, true, false).rights(&wanted).expect("root can");
    assert_eq!(rights.identity.map(|identity| identity.group), Some(8));
    let none = policy(0, true, true).rights(&Credentials::default()).expect("as today");
    assert_eq!(none, LaunchRights::default());
}

#[test]
fn a_mount_is_read_only_or_its_container_waits() {
    let volumes = json!({
        "volumes": [
            {"name": "work", "emptyDir": {}},
            {"name": "keys", "secret": {"secretName": "keys"}},
        ],
        "securityContext": {"runAsUser": 1000},
    });
    let mounts = |mounts: Value| json!({"volumeMounts": mounts});
    let read_only = |name: &str| json!({"name": name, "mountPath": "/a", "readOnly": true});
    let (root, user) = (policy(0, true, false), policy(1000, false, false));
    for policy in [&root, &user] {
        checked(policy, volumes.clone(), mounts(json!([read_only("keys")]))).expect("by nature");
    }
    checked(&root, volumes.clone(), mounts(json!([read_only("work")]))).expect("mounted so");
    let message =
        checked(&user, volumes.clone(), mounts(json!([read_only("work")]))).expect_err("cannot");
    assert!(message.starts_with("spec.containers[0].volumeMounts[0]: readOnly"), "{message}");
    let twice = json!([{"name": "work", "mountPath": "/b"}, read_only("work")]);
    let message = checked(&root, volumes, mounts(twice)).expect_err("both");
    assert!(message.starts_with("spec.containers[0].volumeMounts[1]: "), "{message}");
}
