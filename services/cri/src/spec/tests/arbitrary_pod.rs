//! Whatever a pod holds, it is refused by a field or asked for, and nothing panics.

use proptest::prelude::*;

use super::*;

/// A value that a field may have although no API server would let it.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(vec![-1_i64, 0, 1, 65_536, i64::MIN, i64::MAX]).prop_map(Value::from),
        "\\PC{0,80}".prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "/",
            "../..",
            "a/../../b",
            "\0",
            "net/ipv4/x.y",
            "Localhost",
            "Enabled",
            "ALL",
            "9e999",
            "-9e999",
            "NaN",
            "0x10",
            "1e-30Ki",
            "hugepages-",
            "Bidirectional",
            "Strict",
            "Unmasked",
        ])
        .prop_map(Value::from),
    ]
}

/// The fields by which requests are decided.
const FIELDS: [&str; 53] = [
    "/spec/hostname",
    "/spec/hostnameOverride",
    "/spec/subdomain",
    "/spec/hostNetwork",
    "/spec/hostPID",
    "/spec/hostIPC",
    "/spec/hostUsers",
    "/spec/dnsPolicy",
    "/spec/runtimeClassName",
    "/spec/priority",
    "/spec/priorityClassName",
    "/spec/setHostnameAsFQDN",
    "/spec/shareProcessNamespace",
    "/spec/terminationGracePeriodSeconds",
    "/spec/dnsConfig/nameservers/0",
    "/spec/dnsConfig/searches/0",
    "/spec/dnsConfig/options/0/name",
    "/spec/dnsConfig/options/0/value",
    "/spec/hostAliases/0/ip",
    "/spec/hostAliases/0/hostnames/0",
    "/spec/volumes/0/hostPath/path",
    "/spec/securityContext/runAsUser",
    "/spec/securityContext/runAsGroup",
    "/spec/securityContext/fsGroup",
    "/spec/securityContext/supplementalGroups/0",
    "/spec/securityContext/supplementalGroupsPolicy",
    "/spec/securityContext/runAsNonRoot",
    "/spec/securityContext/seLinuxOptions/level",
    "/spec/securityContext/sysctls/0/name",
    "/spec/securityContext/sysctls/0/value",
    "/spec/containers/0/securityContext/runAsUser",
    "/spec/containers/0/securityContext/runAsNonRoot",
    "/spec/containers/0/securityContext/privileged",
    "/spec/containers/0/securityContext/procMount",
    "/spec/containers/0/securityContext/seccompProfile/type",
    "/spec/containers/0/securityContext/seccompProfile/localhostProfile",
    "/spec/containers/0/securityContext/appArmorProfile/type",
    "/spec/containers/0/securityContext/capabilities/add/0",
    "/spec/containers/0/securityContext/capabilities/drop/0",
    "/spec/containers/0/ports/0/containerPort",
    "/spec/containers/0/ports/0/hostPort",
    "/spec/containers/0/ports/0/hostIP",
    "/spec/containers/0/ports/0/protocol",
    "/spec/containers/0/resources/limits/cpu",
    "/spec/containers/0/resources/limits/memory",
    "/spec/containers/0/resources/limits/hugepages-2Mi",
    "/spec/containers/0/resources/requests/cpu",
    "/spec/containers/0/resources/requests/memory",
    "/spec/containers/0/volumeMounts/0/mountPropagation",
    "/spec/containers/0/volumeMounts/0/recursiveReadOnly",
    "/spec/containers/0/lifecycle/stopSignal",
    "/spec/containers/0/workingDir",
    "/spec/containers/0/restartPolicy",
];

/// A pod that has every field.
fn full() -> Value {
    let container = json!({
        "name": "app",
        "securityContext": {
            "seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Unconfined"},
            "capabilities": {"add": ["CHOWN"], "drop": ["ALL"]},
        },
        "ports": [{"containerPort": 80}], "resources": {"limits": {}, "requests": {}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "lifecycle": {},
    });
    json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {
        "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a"], "options": [{}]},
        "hostAliases": [{"ip": "1.1.1.1", "hostnames": ["a"]}],
        "volumes": [{"name": "v", "hostPath": {"path": "/v"}}],
        "securityContext": {
            "supplementalGroups": [1], "seLinuxOptions": {},
            "sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
        },
        "containers": [container],
    }})
}

/// A pod with these values. One that contradicts the type of its field does not reach a runtime.
fn pod_with(values: Vec<(&str, Value)>) -> Pod {
    let mut object = full();
    let mut pod = serde_json::from_value(object.clone()).expect("a pod");
    for (field, value) in values {
        let mut changed = object.clone();
        let (parent, name) = field.rsplit_once('/').expect("a field");
        match changed.pointer_mut(parent).expect("it has every field") {
            Value::Array(items) => items[0] = value,
            fields => fields[name] = value,
        }
        if let Ok(found) = serde_json::from_value(changed.clone()) {
            (pod, object) = (found, changed);
        }
    }
    pod
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let field = prop::sample::select(FIELDS.to_vec());
    prop::collection::vec((field, value()), 0..12).prop_map(pod_with)
}

proptest! {
    #[test]
    fn every_pod_is_asked_for_or_refused(pod in any_pod(), size in any::<i64>(), user in any::<Option<i64>>()) {
        let node = NodeFacts { memory_bytes: size, ..node() };
        let container = all_containers(&pod).next().expect("a container");
        let image = ImageFacts { user_id: user, ..ImageFacts::default() };
        let _ = check(&pod, container, &FakeMachine::default(), &node);
        let _ = hosts_file(&pod, &record(), &[], "", &node);
        let sandbox = sandbox(&pod, &node);
        let container = container_with(&pod, &[], &image, &node);
        if let Ok(sandbox) = sandbox {
            prop_assert!(sandbox.hostname.len() <= 64);
            let dns = sandbox.dns_config.expect("a resolver");
            prop_assert!(dns.servers.len() <= 3 && dns.searches.len() <= 32);
        }
        if let Ok(container) = container {
            let resources = container.linux.and_then(|linux| linux.resources).expect("resources");
            prop_assert!((-997..=1000).contains(&resources.oom_score_adj));
            prop_assert!((2..=262_144).contains(&resources.cpu_shares));
            prop_assert!(resources.cpu_quota == 0 || resources.cpu_quota >= 1000);
            prop_assert!(resources.memory_limit_in_bytes >= 0);
        }
    }
}

#[test]
fn a_thousand_mounts_and_a_large_environment_are_asked_for() {
    let mounts: Vec<(Mount, &str)> = (0..1000)
        .map(|at| {
            let path = format!("m/{at}").into();
            (Mount { volume: "v".to_owned(), path, ..Mount::default() }, "/h/v")
        })
        .collect();
    let pod = pod(json!({}), json!({}));
    let config = container_with(&pod, &mounts, &ImageFacts::default(), &node());
    assert_eq!(config.expect("it can be had").mounts.len(), 1002);
    let launch = LaunchSpec {
        env: (0..16).map(|at| (format!("V{at}"), "x".repeat(64 << 10))).collect(),
        ..launch(all_containers(&pod).next().expect("a container"))
    };
    let (record, image) = (record(), ImageFacts::default());
    let request = ContainerRequest {
        pod: &pod,
        record: &record,
        container: all_containers(&pod).next().expect("a container"),
        launch: &launch,
        attempt: 0,
        image: &image,
        mounts: &[],
        block_devices: &[],
        hosts_file: None,
        termination_file: None,
        target: None,
    };
    let config = container_config(&request, &node()).expect("it can be had");
    assert_eq!(config.envs.iter().map(|it| it.value.len()).sum::<usize>(), 1 << 20);
}
