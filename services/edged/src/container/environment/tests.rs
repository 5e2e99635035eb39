//! What a container is started with.

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::container::variable_file::{FileVariables, VariableFile};

fn launch_of(container: Value, objects: &Objects) -> Result<LaunchSpec, WaitReason> {
    with_fields(&container, |container, fields| {
        let base = BTreeMap::from([("BASE".to_owned(), "b".to_owned())]);
        let file = VariableFile { volume: "v".to_owned(), path: "f".to_owned() };
        let files = BTreeMap::from([(file, FileVariables::parse(b"HOST='$(BASE)'"))]);
        launch(container, &base, VariableSources { fields, objects, files: Some(&files) })
    })
}

#[test]
fn a_variable_of_a_file_is_known_at_the_launch() {
    let container = |path: &str| {
        let reference = json!({"volumeName": "v", "path": path, "key": "HOST"});
        json!({"name": "c", "env": [{"name": "H", "valueFrom": {"fileKeyRef": reference}}]})
    };
    let env = launch_of(container("f"), &objects()).expect("valid").env;
    assert_eq!(env["H"], "$(BASE)", "it is not expanded");
    check_of(&container("other"), &objects()).expect("the file may be there by then");
    let why = launch_of(container("other"), &objects()).expect_err("no file").message;
    assert!(why.contains("file \"other\" of volume \"v\": it was not read"), "{why}");
}

fn check_of(container: &Value, objects: &Objects) -> Result<(), WaitReason> {
    with_fields(container, |container, fields| check(container, fields, objects))
}

fn with_fields<T>(container: &Value, work: impl FnOnce(&Container, &FieldSource<'_>) -> T) -> T {
    let metadata = json!({"name": "web", "namespace": "shop", "uid": "u1"});
    let pod = json!({"metadata": metadata, "spec": {
        "containers": [container], "volumes": [{"name": "v", "emptyDir": {}}],
    }});
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let fields = FieldSource::on_a_test_node(&pod);
    work(&crate::pod::main_containers(&pod)[0], &fields)
}

fn objects() -> Objects {
    let mut objects = Objects::default();
    let map = json!({"data": {"k": "v"}}).to_string();
    objects.insert(&"shop/configmap/m".parse().expect("a key"), "", map.as_bytes()).expect("a map");
    objects
}

#[test]
fn names_are_replaced_as_kubernetes_replaces_them() {
    let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
    for (text, wanted) in [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$", "$"),
        ("$(B)", "$(B)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("50$", "50$"),
    ] {
        assert_eq!(expand(text, &env, TEXT_BYTES_MAX).as_deref(), Ok(wanted), "{text}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let by_key = |kind: &str, name: &str, key: &str, optional: bool| {
        let reference = json!({"name": name, "key": key, "optional": optional});
        json!({"name": "c", "env": [{"name": "X", "valueFrom": {kind: reference}}]})
    };
    for (container, message) in [
        (by_key("configMapKeyRef", "absent", "k", false), "configmap \"absent\" not found"),
        (by_key("configMapKeyRef", "m", "z", false), "couldn't find key z in configmap \"m\""),
        (by_key("secretKeyRef", "absent", "k", false), "secret \"absent\" not found"),
        (
            json!({"name": "c", "envFrom": [{"secretRef": {"name": "absent"}}]}),
            "secret \"absent\" not found",
        ),
    ] {
        let checked = check_of(&container, &objects()).expect_err("something is missing");
        let waiting = launch_of(container, &objects()).expect_err("something is missing");
        assert_eq!(checked, waiting, "the check before a launch finds it, too");
        assert_eq!(
            (waiting.reason, waiting.message.as_str()),
            ("CreateContainerConfigError", message)
        );
    }
    let optional = launch_of(by_key("configMapKeyRef", "absent", "k", true), &objects());
    assert!(!optional.expect("optional").env.contains_key("X"));
}

#[test]
fn a_mount_or_directory_outside_the_root_is_refused() {
    let mount = |path: &str, sub_path: Value| {
        let mount = json!({"name": "v", "mountPath": path, "subPath": sub_path});
        json!({"name": "c", "volumeMounts": [mount]})
    };
    for bad in [
        mount("/../etc", Value::Null),
        mount("/", Value::Null),
        mount("/a", json!("../b")),
        json!({"name": "c", "workingDir": "/a/../../b"}),
        json!({"name": "../c"}),
        json!({"name": "c", "volumeMounts": [{"name": "../../etc", "mountPath": "/a"}]}),
        json!({"name": "c", "volumeMounts": [{"name": "/etc", "mountPath": "/a"}]}),
    ] {
        assert!(launch_of(bad.clone(), &objects()).is_err(), "{bad}");
        assert!(check_of(&bad, &objects()).is_err(), "{bad}");
    }
    let launch = launch_of(mount("/etc/app", json!("part")), &objects()).expect("inside");
    let wanted = Mount {
        volume: "v".to_owned(),
        path: "etc/app".into(),
        is_absolute: true,
        sub_path: Some("part".into()),
        ..Mount::default()
    };
    assert_eq!(launch.mounts, [wanted]);
}

#[test]
fn references_that_double_end_at_what_a_process_takes() {
    let mut env = vec![json!({"name": "V0", "value": "x".repeat(64)})];
    for number in 1..64 {
        let value = format!("$(V{})", number - 1).repeat(2);
        env.push(json!({"name": format!("V{number}"), "value": value}));
    }
    let waiting = launch_of(json!({"name": "c", "env": env}), &objects()).expect_err("too long");
    assert_eq!(waiting.reason, "CreateContainerConfigError");
    assert!(waiting.message.contains("\"V11\""), "{}", waiting.message);
    let args = json!({"name": "c", "command": ["echo"], "args": ["x".repeat(TEXT_BYTES_MAX)]});
    assert!(launch_of(args, &objects()).is_err());
}

#[test]
fn a_zero_byte_in_a_command_is_refused_by_its_place() {
    let container = json!({"name": "c", "command": ["echo"], "args": ["a\u{0}b"]});
    let waiting = launch_of(container, &objects()).expect_err("no process takes it");
    assert!(waiting.message.contains("word 1"), "{}", waiting.message);
}

#[test]
fn resources_are_in_units_of_their_divisor() {
    let resource = |name: &str, divisor: &str| {
        json!({
            "name": "c",
            "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}},
            "env": [{"name": "X", "valueFrom": {
                "resourceFieldRef": {"resource": name, "divisor": divisor}}}],
        })
    };
    for (name, divisor, wanted) in [
        ("limits.cpu", "1", "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "64"),
        ("limits.memory", "0", "67108864"),
        ("requests.cpu", "1", "2"),
    ] {
        let launch = launch_of(resource(name, divisor), &objects()).expect("a launch");
        assert_eq!(launch.env["X"], wanted, "{name} in {divisor}");
    }
}

#[test]
fn a_limit_that_is_not_set_is_what_the_node_has_and_a_request_zero() {
    for (name, divisor, wanted) in [
        ("limits.cpu", "1", "4"),
        ("limits.cpu", "1m", "4000"),
        ("limits.memory", "1Gi", "8"),
        ("limits.ephemeral-storage", "1Gi", "64"),
        ("limits.example.org/gpu", "1", "0"),
        ("requests.cpu", "1", "0"),
        ("requests.memory", "1", "0"),
    ] {
        let container = json!({"name": "c", "env": [{"name": "X", "valueFrom": {
            "resourceFieldRef": {"resource": name, "divisor": divisor}}}]});
        let launch = launch_of(container, &objects()).expect("a launch");
        assert_eq!(launch.env["X"], wanted, "{name} in {divisor}");
    }
}

#[test]
fn a_secret_that_is_no_text_is_refused_by_its_name_and_key() {
    let mut objects = Objects::default();
    // The byte 0xff.
    let secret = json!({"data": {"raw": "/w==", "text": "aHVzaA=="}}).to_string();
    objects
        .insert(&"shop/secret/s".parse().expect("a key"), "", secret.as_bytes())
        .expect("a secret");
    let by_key = |key: &str| {
        let reference = json!({"name": "s", "key": key});
        json!({"name": "c", "env": [{"name": "X", "valueFrom": {"secretKeyRef": reference}}]})
    };
    let whole = json!({"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]});
    for container in [by_key("raw"), whole] {
        let checked = check_of(&container, &objects).expect_err("no text");
        assert_eq!(checked, launch_of(container, &objects).expect_err("no text"));
        assert_eq!(
            (checked.reason, checked.message.as_str()),
            (
                "CreateContainerConfigError",
                "key raw in secret \"s\" is not UTF-8, and no variable can have it: mount the \
                 secret as a volume"
            )
        );
    }
    assert_eq!(launch_of(by_key("text"), &objects).expect("text").env["X"], "hush");
}

#[test]
fn variables_that_each_fit_are_bounded_in_sum_while_they_are_expanded() {
    // 0.1 MB of a manifest; expanded it would be 130 MB.
    let mut env = vec![json!({"name": "V0", "value": "x".repeat(1024)})];
    for number in 1..7 {
        let value = format!("$(V{})", number - 1).repeat(2);
        env.push(json!({"name": format!("V{number}"), "value": value}));
    }
    for number in 0..2000 {
        env.push(json!({"name": format!("W{number}"), "value": "$(V6)"}));
    }
    let container = json!({"name": "c", "env": env});
    assert_eq!(check_of(&container, &objects()), Ok(()), "the check expands nothing");
    let waiting = launch_of(container, &objects()).expect_err("too much");
    assert_eq!(waiting.reason, "CreateContainerConfigError");
    // 64 KiB each: the space ends after 30 of them.
    assert!(waiting.message.starts_with("environment variable \"W29\": "), "{}", waiting.message);
    assert!(waiting.message.contains("more than 2097152 bytes"), "{}", waiting.message);

    let args: Vec<String> = (0..40).map(|_| "$(V6)".to_owned()).collect();
    let env: Vec<Value> = (0..7)
        .map(|number| match number {
            0 => json!({"name": "V0", "value": "x".repeat(1024)}),
            _ => json!({"name": format!("V{number}"), "value": format!("$(V{})", number - 1).repeat(2)}),
        })
        .collect();
    let container = json!({"name": "c", "command": ["echo"], "args": args, "env": env});
    let waiting = launch_of(container, &objects()).expect_err("too much");
    assert!(waiting.message.starts_with("word 30 of the command: "), "{}", waiting.message);
}

#[test]
fn one_config_map_as_the_environment_a_thousand_times_is_bounded_work() {
    let mut objects = Objects::default();
    let data: BTreeMap<String, String> =
        (0..10_000).map(|key| (format!("K{key}"), "v".repeat(90))).collect();
    let map = json!({ "data": data }).to_string();
    objects.insert(&"shop/configmap/m".parse().expect("a key"), "", map.as_bytes()).expect("a map");
    let container = |times: usize| {
        let from: Vec<Value> = (0..times).map(|_| json!({"configMapRef": {"name": "m"}})).collect();
        json!({"name": "c", "envFrom": from})
    };
    assert_eq!(check_of(&container(2), &objects), Ok(()));
    assert_eq!(launch_of(container(2), &objects).expect("it fits").env.len(), 10_001);
    let refused = check_of(&container(1000), &objects).expect_err("too much");
    assert!(refused.message.contains("defined and replaced"), "{}", refused.message);
    assert_eq!(launch_of(container(1000), &objects), Err(refused));
}

proptest! {
    #[test]
    fn any_text_expands_and_text_without_a_dollar_stays(text in "[a-z$()A ]{0,40}") {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let expanded = expand(&text, &env, TEXT_BYTES_MAX).expect("it is short");
        if !text.contains('$') {
            prop_assert_eq!(expanded, text);
        }
    }
}

#[test]
fn command_and_args_stay_apart_and_are_expanded_in_their_order() {
    for (spec, command, args) in [
        (json!({"name": "c"}), &[][..], &[][..]),
        (json!({"name": "c", "args": ["$(A)"]}), &[], &["1"]),
        (json!({"name": "c", "command": ["a", "$(A)"]}), &["a", "1"], &[]),
        (
            json!({"name": "c", "command": ["$$(A)"], "args": ["b", "$(B)"]}),
            &["$(A)"],
            &["b", "$(B)"],
        ),
    ] {
        let mut spec = spec;
        spec["env"] = json!([{"name": "A", "value": "1"}]);
        let launch = launch_of(spec, &objects()).expect("valid");
        assert_eq!(
            (launch.command.as_slice(), launch.args.as_slice()),
            (
                &command.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..],
                &args.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..]
            )
        );
        assert_eq!(launch.argv().len(), command.len() + args.len());
    }
}

#[test]
fn a_mount_states_how_it_propagates_and_how_deep_it_is_read_only() {
    let mount = |fields: Value| {
        let mut mount = json!({"name": "v", "mountPath": "/a"});
        for (name, value) in fields.as_object().expect("fields") {
            mount[name] = value.clone();
        }
        let launch = launch_of(json!({"name": "c", "volumeMounts": [mount]}), &objects());
        launch.map(|launch| launch.mounts[0].clone())
    };
    let shared = mount(json!({"mountPropagation": "Bidirectional"})).expect("valid");
    assert_eq!(shared.propagation, Propagation::Bidirectional);
    let deep = mount(json!({"readOnly": true, "recursiveReadOnly": "Enabled"})).expect("valid");
    assert_eq!(deep.recursive_read_only, RecursiveReadOnly::Enabled);
    for bad in [
        json!({"mountPropagation": "Sideways"}),
        json!({"readOnly": true, "recursiveReadOnly": "Always"}),
        json!({"recursiveReadOnly": "Enabled"}),
        json!({"readOnly": true, "recursiveReadOnly": "IfPossible", "mountPropagation": "HostToContainer"}),
    ] {
        mount(bad.clone()).expect_err(&bad.to_string());
    }
}
