//! Which logins a pull has.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(secrets: &[&str]) -> Pod {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    let metadata = json!({"name": "web", "namespace": "shop"});
    let spec = json!({"imagePullSecrets": secrets, "containers": []});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn with_secret(objects: &mut Objects, name: &str, kind: &str, key: &str, content: &[u8]) {
    let object = json!({"type": kind, "data": {key: STANDARD.encode(content)}}).to_string();
    let key = format!("shop/secret/{name}").parse().expect("a key");
    objects.insert(&key, "", object.as_bytes()).expect("a secret");
}

/// Objects with one Secret `s` of these servers; each login is named after its server.
fn logins(servers: &[&str]) -> Objects {
    let auths: serde_json::Map<String, Value> = servers
        .iter()
        .map(|server| ((*server).to_owned(), json!({"username": server, "password": "p"})))
        .collect();
    let mut objects = Objects::default();
    let config = json!({"auths": auths}).to_string();
    with_secret(&mut objects, "s", CONFIG_JSON.0, CONFIG_JSON.1, config.as_bytes());
    objects
}

fn users(objects: &Objects, image: &str) -> Vec<String> {
    let found = PullCredentials::of(&pod(&["s"]), objects, None, image);
    assert_eq!(found.problems, [""; 0]);
    found.logins.into_iter().map(|login| login.username).collect()
}

/// Cases of `pkg/credentialprovider/keyring_test.go` of Kubernetes 1.36.
#[test]
fn an_entry_is_for_the_images_that_a_kubelet_takes_it_for() {
    for (server, image, is_match) in [
        ("prefix.kubernetes.io", "prefix.kubernetes.io/org/app:1", true),
        ("*.kubernetes.io", "prefix.kubernetes.io/app", true),
        ("prefix.*.io", "prefix.kubernetes.io/app", true),
        ("prefix.kubernetes.*", "prefix.kubernetes.io/app", true),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io/app", true),
        ("???.kubernetes.io", "abc.kubernetes.io/app", true),
        ("*.kubernetes.io", "kubernetes.io/app", false),
        ("*", "kubernetes.io/app", false),
        ("*.kubernetes.io", "prefix.example.io/app", false),
        ("kubernetes.io", "prefix.kubernetes.io/app", false),
        ("prefix.kubernetes.io/org", "prefix.kubernetes.io/org/app@sha256:00", true),
        ("prefix.kubernetes.io/org", "prefix.kubernetes.io/other/app", false),
        ("localhost:5000", "localhost:5000/app:1", true),
        ("*.kubernetes.io:8888", "prefix.kubernetes.io:8888/app", true),
        ("*.kubernetes.io", "prefix.kubernetes.io:8888/app", false),
        ("*.kubernetes.io:8888", "prefix.kubernetes.io:6969/app", false),
        ("https://quay.io", "quay.io/org/app", true),
        ("http://quay.io/v1/", "quay.io/org/app", true),
        ("https://quay.io/v2/org", "quay.io/org/app", true),
        ("https://quay.io/v2/org", "quay.io/app", false),
        // The registry of names without one, under all of its names.
        ("https://index.docker.io/v1/", "busybox", true),
        ("index.docker.io", "team/app:1", true),
        ("docker.io", "index.docker.io/team/app", true),
        ("docker.io/library", "busybox:latest", true),
        ("docker.io/library", "team/app", false),
        ("index.docker.io", "quay.io/app", false),
    ] {
        let found = users(&logins(&[server]), image);
        assert_eq!(found.len(), usize::from(is_match), "{server} for {image}: {found:?}");
    }
}

#[test]
fn the_longest_path_is_tried_first_and_the_node_last() {
    let objects = logins(&["quay.io", "quay.io/org/app", "quay.io/org", "else.io"]);
    let order = ["quay.io/org/app", "quay.io/org", "quay.io"];
    assert_eq!(users(&objects, "quay.io/org/app:1"), order);
    let node = json!({"auths": {"quay.io": {"auth": STANDARD.encode("node:secret")}}}).to_string();
    let found =
        PullCredentials::of(&pod(&["s"]), &objects, Some(node.as_bytes()), "quay.io/org/app:1");
    let names: Vec<&str> = found.logins.iter().map(|login| login.username.as_str()).collect();
    assert_eq!(names, ["quay.io/org/app", "quay.io/org", "quay.io", "node"]);
    assert!(!format!("{found:?}").contains("secret"), "a password is not shown");
}

#[test]
fn both_types_of_a_secret_and_both_forms_of_a_login_are_read() {
    let mut objects = Objects::default();
    let auth = STANDARD.encode("edge:s3:cret\0\0");
    let new = json!({"auths": {"quay.io": {"username": "other", "auth": auth}}}).to_string();
    with_secret(&mut objects, "new", CONFIG_JSON.0, CONFIG_JSON.1, new.as_bytes());
    let old = json!({"quay.io": {"auth": STANDARD_NO_PAD.encode("old:pw")}}).to_string();
    with_secret(&mut objects, "old", CONFIG_OLD.0, CONFIG_OLD.1, old.as_bytes());
    let found = PullCredentials::of(&pod(&["new", "old"]), &objects, None, "quay.io/app");
    let login = |username: &str, password: &str| RegistryCredentials {
        username: username.to_owned(),
        password: password.to_owned(),
    };
    assert_eq!(found.logins, [login("edge", "s3:cret"), login("old", "pw")]);
    assert_eq!(found.problems, [""; 0]);
}

#[test]
fn a_pod_that_names_no_secrets_has_those_of_its_service_account() {
    let mut objects = logins(&["quay.io"]);
    let auth = STANDARD.encode("robot:pw");
    let new = json!({"auths": {"quay.io": {"auth": auth}}}).to_string();
    with_secret(&mut objects, "new", CONFIG_JSON.0, CONFIG_JSON.1, new.as_bytes());
    let old = json!({"quay.io": {"auth": STANDARD.encode("old:pw")}}).to_string();
    with_secret(&mut objects, "old", CONFIG_OLD.0, CONFIG_OLD.1, old.as_bytes());
    for (account, secrets) in [
        ("builder", json!([{"name": "new"}, {"name": ""}, {"name": "old"}])),
        ("default", json!([{"name": "old"}])),
    ] {
        let key = format!("shop/serviceaccount/{account}").parse().expect("a key");
        let object = json!({"imagePullSecrets": secrets}).to_string();
        objects.insert(&key, "", object.as_bytes()).expect("an account");
    }
    let users_from = |source: &str, spec: Value| -> Vec<String> {
        let annotations = json!({"kubernetes.io/config.source": source});
        let metadata = json!({"name": "web", "namespace": "shop", "annotations": annotations});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec}));
        let found = PullCredentials::of(&pod.expect("a pod"), &objects, None, "quay.io/app");
        assert_eq!(found.problems, [""; 0]);
        found.logins.into_iter().map(|login| login.username).collect()
    };
    let users = |spec: Value| users_from("api", spec);
    let spec = |account: Option<&str>, secrets: Value| {
        let containers = json!([]);
        json!({"serviceAccountName": account, "imagePullSecrets": secrets, "containers": containers})
    };
    assert_eq!(users(spec(Some("builder"), Value::Null)), ["robot", "old"]);
    assert_eq!(users(spec(None, json!([]))), ["old"]);
    assert_eq!(users(spec(Some("builder"), json!([{"name": "s"}]))), ["quay.io"]);
    assert_eq!(users(spec(Some("none"), Value::Null)), [""; 0]);
    assert_eq!(users_from("file", spec(None, Value::Null)), [""; 0], "a static pod has no account");
}

#[test]
fn what_is_no_docker_config_is_named_without_its_content_and_the_others_count() {
    let mut objects = logins(&["quay.io"]);
    let config = CONFIG_JSON;
    with_secret(
        &mut objects,
        "torn",
        config.0,
        config.1,
        br#"{"auths": {"quay.io": {"auth": "hunter2"#,
    );
    with_secret(&mut objects, "opaque", "Opaque", config.1, b"{}");
    with_secret(&mut objects, "empty", config.0, "other", b"{}");
    let partly = json!({"auths": {
        "a.io": {"auth": "%%%hunter2"}, "b.io": {"auth": STANDARD.encode("hunter2")},
        "quay.io": {"username": "partly"}, "c.io": 7, "": {"username": "nameless"},
    }});
    let partly = partly.to_string();
    with_secret(&mut objects, "partly", config.0, config.1, partly.as_bytes());
    let large = vec![b' '; CONFIG_BYTES_MAX + 1];
    let names = ["absent", "torn", "opaque", "empty", "partly", "s"];
    let found = PullCredentials::of(&pod(&names), &objects, Some(&large), "quay.io/app");
    let users: Vec<&str> = found.logins.iter().map(|login| login.username.as_str()).collect();
    assert_eq!(users, ["partly", "quay.io"]);
    let problems = found.problems.join("\n");
    for name in [
        "\"absent\" not found",
        "\"torn\": it is no docker config",
        "\"Opaque\"",
        "no key \".dockerconfigjson\"",
        "\"a.io\": its auth is not base64",
        "\"b.io\": its auth",
        "\"c.io\": it is no object",
        "the node's docker config",
    ] {
        assert!(problems.contains(name), "{name}: {problems}");
    }
    assert!(!problems.contains("hunter2"), "{problems}");
}

#[test]
fn another_login_has_another_fingerprint() {
    let of = |server: &str| {
        PullCredentials::of(&pod(&["s"]), &logins(&[server]), None, "quay.io/app").fingerprint()
    };
    assert_eq!(of("quay.io"), of("quay.io"));
    assert_ne!(of("quay.io"), of("quay.io/app"));
    assert_ne!(of("quay.io"), PullCredentials::default().fingerprint());
}

proptest! {
    #[test]
    fn no_config_and_no_name_panics(
        config in prop::collection::vec(any::<u8>(), 0..300),
        server in "[a-z*?./:@\\PC]{0,40}",
        image in "[a-z./:@\\PC]{0,40}",
    ) {
        let objects = logins(&[&server]);
        PullCredentials::of(&pod(&["s"]), &objects, Some(&config), &image);
        let auths = json!({"auths": {&server: {"auth": &image}}}).to_string();
        PullCredentials::of(&pod(&[]), &objects, Some(auths.as_bytes()), &server);
    }
}
