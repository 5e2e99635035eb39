//! What is special about pods: their defaults, what may change of them, and how they end.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::resource::Resource;

/// The pause that a pod has to end by itself, if nothing else is given.
const GRACE_SECONDS: i64 = 30;

/// How long a pod stays on a node that is away, if nothing else is given.
const AWAY_SECONDS: i64 = 300;

/// Fills in what a pod's writer left out.
pub(crate) fn set_defaults(pod: &mut Value) {
    let Some(spec) = pod["spec"].as_object_mut() else { return };
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(GRACE_SECONDS)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
    ] {
        spec.entry(field).or_insert(value);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            for (field, value) in [
                ("resources", json!({})),
                ("terminationMessagePath", json!("/dev/termination-log")),
                ("terminationMessagePolicy", json!("File")),
                ("imagePullPolicy", json!("Always")),
            ] {
                container.entry(field).or_insert(value);
            }
        }
    }
}

/// What admission adds to a new pod: it stays for a while on a node that is away.
pub(crate) fn admit(pod: &mut Value) {
    let Some(spec) = pod["spec"].as_object_mut() else { return };
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_tolerated = tolerations.iter().any(|one| {
            (one["key"] == key || text(&one["key"]).is_empty())
                && (one["effect"] == "NoExecute" || text(&one["effect"]).is_empty())
        });
        if !is_tolerated {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": AWAY_SECONDS,
            }));
        }
    }
}

/// The status of a new pod.
pub(crate) fn first_status(pod: &Value) -> Value {
    let containers = pod["spec"]["containers"].as_array();
    let has_resources = |container: &Value| {
        ["requests", "limits"].iter().any(|which| !container["resources"][which].is_null())
    };
    let is_burstable = containers.is_some_and(|containers| containers.iter().any(has_resources));
    let class = if is_burstable { "Burstable" } else { "BestEffort" };
    json!({"phase": "Pending", "qosClass": class})
}

/// The seconds that a delete leaves a pod; 0: it goes at once.
pub(crate) fn grace_seconds(pod: &Value, requested: Option<i64>) -> i64 {
    let of_pod = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    let seconds = requested.or(of_pod).unwrap_or(GRACE_SECONDS);
    let is_bound = !text(&pod["spec"]["nodeName"]).is_empty();
    let has_ended = matches!(text(&pod["status"]["phase"]), "Failed" | "Succeeded");
    match seconds {
        _ if !is_bound || has_ended => 0,
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

/// Checks a change of a pod's spec: only images, deadlines and tolerations change.
pub(crate) fn check_spec(
    resource: &Resource,
    name: &str,
    before: &Value,
    after: &Value,
) -> Result<(), Failure> {
    check_tolerations(resource, name, before, after)?;
    let mut mended = after["spec"].clone();
    for field in ["activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations"] {
        mended[field] = before["spec"][field].clone();
    }
    for list in ["containers", "initContainers"] {
        let old = before["spec"][list].as_array();
        let new = mended[list].as_array_mut();
        for (old, new) in old.into_iter().flatten().zip(new.into_iter().flatten()) {
            new["image"] = old["image"].clone();
        }
    }
    let mut old = before["spec"].clone();
    crate::object::drop_nulls(&mut mended);
    crate::object::drop_nulls(&mut old);
    if mended == old {
        return Ok(());
    }
    let why = "Forbidden: pod updates may not change fields other than \
               `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
               `spec.tolerations` (only additions to existing tolerations),\
               `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
               negative)";
    Err(Failure::invalid(resource, name, "spec", "FieldValueForbidden", why))
}

/// A toleration may come, and its seconds may change; none may go.
fn check_tolerations(
    resource: &Resource,
    name: &str,
    before: &Value,
    after: &Value,
) -> Result<(), Failure> {
    let list = |pod: &Value| -> Vec<Value> {
        let items = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let without_seconds = |mut one: Value| {
            if let Some(fields) = one.as_object_mut() {
                fields.remove("tolerationSeconds");
            }
            one
        };
        items.into_iter().map(without_seconds).collect()
    };
    let now = list(after);
    if list(before).iter().all(|old| now.contains(old)) {
        return Ok(());
    }
    let why = "Forbidden: existing toleration can not be modified except its tolerationSeconds";
    Err(Failure::invalid(resource, name, "spec.tolerations", "FieldValueForbidden", why))
}

/// Brings the two fields of a pod's address together: the single one counts.
pub(crate) fn join_ips(pod: &mut Value) {
    let Some(status) = pod["status"].as_object_mut() else { return };
    for (one, list) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let single = status.get(one).and_then(Value::as_str).map(ToOwned::to_owned);
        let first = status.get(list).and_then(|list| list[0]["ip"].as_str()).map(ToOwned::to_owned);
        if one == "podIP" {
            match (single, first) {
                (Some(single), first) if first.as_ref() != Some(&single) => {
                    status.insert(list.to_owned(), json!([{"ip": single}]));
                }
                (None, Some(first)) => {
                    status.insert(one.to_owned(), first.into());
                }
                _ => {}
            }
        }
    }
}

/// Checks a change of a pod's status.
pub(crate) fn check_status(
    resource: &Resource,
    name: &str,
    before: &Value,
    after: &Value,
) -> Result<(), Failure> {
    let (old, new) = (&before["status"], &after["status"]);
    if !text(&old["qosClass"]).is_empty() && new["qosClass"] != old["qosClass"] {
        let value = text(&new["qosClass"]);
        return Err(Failure::immutable(resource, name, "status.qosClass", value));
    }
    for list in ["podIPs", "hostIPs"] {
        let ips = new[list].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_six = ips.iter().filter(|ip| text(&ip["ip"]).contains(':')).count();
        if of_six > 1 || ips.len() - of_six > 1 {
            let why = format!(
                "Invalid value: {}: may specify no more than one IP for each IP family",
                new[list]
            );
            let field = format!("status.{list}");
            return Err(Failure::invalid(resource, name, &field, "FieldValueInvalid", &why));
        }
    }
    check_containers(resource, name, before, after)
}

/// A container that must not run again stays terminated.
fn check_containers(
    resource: &Resource,
    name: &str,
    before: &Value,
    after: &Value,
) -> Result<(), Failure> {
    let policy = text(&before["spec"]["restartPolicy"]);
    if policy == "Always" {
        return Ok(());
    }
    let statuses = |pod: &Value| -> Vec<Value> {
        pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default()
    };
    let new = statuses(after);
    for old in statuses(before) {
        let ended = &old["state"]["terminated"];
        if ended.is_null() || (policy == "OnFailure" && ended["exitCode"] != 0) {
            continue;
        }
        let at = new.iter().position(|one| one["name"] == old["name"]);
        if let Some(at) = at.filter(|at| new[*at]["state"]["terminated"].is_null()) {
            let field = format!("status.containerStatuses[{at}].state");
            let why = "Forbidden: may not be transitioned to non-terminated state";
            return Err(Failure::invalid(resource, name, &field, "FieldValueForbidden", why));
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
