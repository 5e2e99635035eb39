//! What a pod's author learns of fields that a runtime does not honour.

use serde_json::json;

use super::*;

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

/// A pod of one container with these fields.
fn with(fields: Value) -> Value {
    let mut container = json!({"name": "main", "command": ["true"]});
    for (name, value) in fields.as_object().expect("fields") {
        container[name] = value.clone();
    }
    pod(json!({"containers": [container]}))
}

fn refusal(column: Column, pod: &Value) -> Option<String> {
    inspect(column, pod).refusal("main").map(|reason| {
        assert_eq!(reason.reason, "CreateContainerConfigError");
        reason.message.clone()
    })
}

#[test]
fn a_refused_field_is_named_with_its_path_and_what_to_do() {
    let capabilities = json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}});
    assert_eq!(
        refusal(Column::Process, &with(capabilities)).as_deref(),
        Some(
            "spec.containers[0].securityContext.capabilities.add: a process of the host gets no \
             capabilities besides those of its user (leave it out)"
        )
    );
    let root = json!({"securityContext": {"readOnlyRootFilesystem": true}});
    assert_eq!(
        refusal(Column::Process, &with(root)).as_deref(),
        Some(
            "spec.containers[0].securityContext.readOnlyRootFilesystem: the root directory of a \
             container is writable (leave it out, or make it false)"
        )
    );
}

#[test]
fn every_field_that_safety_or_meaning_depends_on_is_refused_by_process() {
    let security = |context: Value| with(json!({"securityContext": context}));
    let of_pod =
        |name: &str, value: Value| pod(json!({name: value, "containers": [{"name": "main"}]}));
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = "v".into();
        of_pod("volumes", json!([volume]))
    };
    for (case, path) in [
        (security(json!({"privileged": true})), "privileged"),
        (security(json!({"procMount": "Unmasked"})), "procMount"),
        (security(json!({"seccompProfile": {"type": "RuntimeDefault"}})), "seccompProfile.type"),
        (security(json!({"appArmorProfile": {"type": "Localhost"}})), "appArmorProfile.type"),
        (security(json!({"seLinuxOptions": {"level": "s0"}})), "seLinuxOptions"),
        (with(json!({"ports": [{"containerPort": 80, "hostPort": 8080}]})), "ports[0].hostPort"),
        (with(json!({"ports": [{"containerPort": 80, "hostIP": "127.0.0.1"}]})), "ports[0].hostIP"),
        (with(json!({"volumeDevices": [{"name": "d"}]})), "volumeDevices"),
        (with(json!({"resources": {"claims": [{"name": "gpu"}]}})), "resources.claims"),
        (of_pod("runtimeClassName", json!("gvisor")), "spec.runtimeClassName"),
        (of_pod("hostUsers", json!(false)), "spec.hostUsers"),
        (of_pod("hostAliases", json!([{"ip": "10.0.0.1"}])), "spec.hostAliases"),
        (of_pod("dnsPolicy", json!("None")), "spec.dnsPolicy"),
        (of_pod("os", json!({"name": "windows"})), "spec.os.name"),
        (of_pod("schedulingGates", json!([{"name": "g"}])), "spec.schedulingGates"),
        (
            of_pod("securityContext", json!({"sysctls": [{"name": "a", "value": "b"}]})),
            "spec.securityContext.sysctls",
        ),
        (volume(json!({"csi": {"driver": "d"}})), "spec.volumes[0].csi"),
        (
            volume(json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}})),
            "spec.volumes[0].persistentVolumeClaim.readOnly",
        ),
    ] {
        let message = refusal(Column::Process, &case).unwrap_or_else(|| panic!("{path}: {case}"));
        assert!(message.contains(&format!("{path}: ")), "{path}: {message}");
        assert_eq!(inspect(Column::Hollow, &case).refusal("main").is_some(), {
            // What no runtime of this node can do is refused by each.
            ["volumeDevices", "resources.claims", "os.name", "schedulingGates"]
                .iter()
                .any(|everywhere| path.ends_with(everywhere))
        });
    }
}

#[test]
fn a_value_that_asks_for_what_happens_anyway_refuses_nothing() {
    let security = json!({
        "allowPrivilegeEscalation": true, "privileged": false, "procMount": "Default",
        "readOnlyRootFilesystem": false, "runAsUser": 1000, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"], "add": []}, "seccompProfile": {"type": "Unconfined"},
    });
    let container = json!({
        "name": "main", "command": ["true"], "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "stdin": false, "tty": false, "volumeDevices": [], "securityContext": security,
        "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "0.0.0.0"}],
        "resources": {"requests": {"cpu": "1"}},
    });
    let mut spec = json!({
        "hostNetwork": true, "hostPID": true, "hostIPC": true, "hostUsers": true,
        "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority", "schedulerName": "default-scheduler",
        "serviceAccount": "default", "serviceAccountName": "default", "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30, "nodeName": "gw-1", "nodeSelector": {"a": "b"},
        "automountServiceAccountToken": false, "os": {"name": "linux"}, "runtimeClassName": "",
        "securityContext": {}, "hostAliases": [], "imagePullSecrets": null,
    });
    spec["tolerations"] = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
        "effect": "NoExecute", "tolerationSeconds": 300}]);
    spec["containers"] = json!([container]);
    assert_eq!(inspect(Column::Process, &pod(spec)), PodFindings::default());
}

#[test]
fn noted_fields_are_named_once_with_one_reason() {
    let container = |name: &str| json!({"name": name, "resources": {"limits": {"cpu": "1"}}});
    let spec = json!({
        "containers": [container("a"), container("b")], "priorityClassName": "high",
        "comand": ["x"],
    });
    let findings = inspect(Column::Process, &pod(spec));
    assert_eq!(findings.refusal("a"), None);
    let notes = findings.notes().expect("notes");
    assert_eq!(
        notes.lines().collect::<Vec<_>>(),
        [
            "spec.comand: unknown to this version",
            "spec.containers[0].resources.limits, spec.containers[1].resources.limits: no limit \
             of a container is enforced: the edge's own unit bounds all pods together",
            "spec.priorityClassName: the node does not rank pods: none is evicted for another",
        ]
    );
}

#[test]
fn a_field_of_one_container_keeps_only_this_container_waiting() {
    let spec = json!({
        "initContainers": [{"name": "first", "securityContext": {"privileged": true}}],
        "containers": [{"name": "main"}],
    });
    let findings = inspect(Column::Process, &pod(spec));
    assert!(findings.refusal("first").expect("it waits").message.contains("initContainers[0]"));
    assert_eq!((findings.refusal("main"), findings.refuses_pod()), (None, false));
}

#[test]
fn findings_are_bounded_whatever_the_pod_has() {
    let unknown: Map<String, Value> =
        (0..1000).map(|at| (format!("{at:0>4000}"), json!(1))).collect();
    let devices: Vec<Value> =
        (0..1000).map(|_| json!({"containerPort": 1, "hostPort": 2})).collect();
    let mut case = with(json!({"ports": devices}));
    case["spec"]["containers"][0]["x"] = json!({"deep": {"deeper": 1}});
    case["spec"].as_object_mut().expect("a map").extend(unknown);
    let findings = inspect(Column::Process, &case);
    let notes = findings.notes().expect("notes");
    assert!(notes.len() < NOTES_SHOWN_MAX * (PATH_BYTES_MAX + 50), "{} bytes", notes.len());
    assert!(notes.ends_with("and 977 more fields"), "{notes}");
    let message = &findings.refusal("main").expect("it waits").message;
    assert!(message.ends_with("; and 992 more fields"), "{message}");
}

#[test]
fn what_is_no_pod_has_no_findings() {
    for odd in [json!(null), json!([]), json!({"spec": 5})] {
        let findings = inspect(Column::Process, &odd);
        assert_eq!(findings.notes(), None, "{odd}");
    }
    let odd = json!({"spec": {"containers": [5, {"name": 7, "securityContext": "x"}]}});
    assert_eq!(inspect(Column::Process, &odd).notes(), None);
}
