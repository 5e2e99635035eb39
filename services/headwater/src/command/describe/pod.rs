//! A pod: where it is, what its containers do, and what it waits for.

use jiff::Timestamp;
use serde_json::Value;

use super::Told;
use super::sheet::Sheet;
use crate::table::Table;
use crate::table::columns::{list, pod_status, ready_containers, text_or};

pub(super) fn write(sheet: &mut Sheet, told: &Told, now: Timestamp) {
    let pod = &told.object;
    sheet.field("Node", node(told));
    sheet.field_if("Start Time", text_or(pod, "/status/startTime", ""));
    let (ready, all) = ready_containers(pod);
    sheet.field("Status", format!("{}, {ready} of {all} ready", pod_status(pod)));
    sheet.field_if("Reason", text_or(pod, "/status/reason", ""));
    sheet.field_if("Message", text_or(pod, "/status/message", ""));
    sheet.field_if("Deleted At", text_or(pod, "/metadata/deletionTimestamp", ""));
    sheet.field("IP", text_or(pod, "/status/podIP", "<none>"));
    sheet.lines("Waits For", waits(told, now));
    for (title, spec, status) in [
        ("Init Containers", "/spec/initContainers", "/status/initContainerStatuses"),
        ("Containers", "/spec/containers", "/status/containerStatuses"),
    ] {
        let (containers, statuses) = (list(pod, spec), list(pod, status));
        if containers.is_empty() {
            continue;
        }
        sheet.part(title, |sheet| {
            for container in containers {
                let status = statuses.iter().find(|status| status["name"] == container["name"]);
                self::container(sheet, container, status.unwrap_or(&Value::Null));
            }
        });
    }
    let mut conditions = Table::new(["TYPE", "STATUS", "REASON", "SINCE"]);
    for condition in list(pod, "/status/conditions") {
        let of = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        conditions.row([of("type"), of("status"), of("reason"), of("lastTransitionTime")]);
    }
    sheet.table("Conditions", &conditions);
    let mut volumes = Table::new(["NAME", "TYPE"]);
    for volume in list(pod, "/spec/volumes") {
        let name = volume["name"].as_str().unwrap_or_default().to_owned();
        let fields = volume.as_object().into_iter().flatten();
        let kinds: Vec<&str> =
            fields.map(|(field, _)| field.as_str()).filter(|field| *field != "name").collect();
        volumes.row([name, kinds.join(", ")]);
    }
    sheet.table("Volumes", &volumes);
}

fn node(told: &Told) -> String {
    match (&told.node, text_or(&told.object, "/spec/nodeName", "").as_str()) {
        (_, "") => "<none>: no node takes it yet".to_owned(),
        (Some(node), name) => format!("{name} ({})", node.state),
        (None, name) => name.to_owned(),
    }
}

fn container(sheet: &mut Sheet, spec: &Value, status: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |field: &str| {
        let words: Vec<String> = spec[field].as_array().into_iter().flatten().map(text).collect();
        words.join(" ")
    };
    sheet.part(&text(&spec["name"]), |sheet| {
        sheet.field("Image", text(&spec["image"]));
        sheet.field_if("Command", words("command"));
        sheet.field_if("Args", words("args"));
        state(sheet, "State", &status["state"]);
        if status["lastState"].as_object().is_some_and(|last| !last.is_empty()) {
            state(sheet, "Last State", &status["lastState"]);
        }
        sheet.field("Ready", if status["ready"] == true { "True" } else { "False" });
        sheet.field("Restart Count", status["restartCount"].as_i64().unwrap_or(0).to_string());
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let kinds = spec[probe].as_object().into_iter().flatten();
            let kind = kinds
                .map(|(field, _)| field.as_str())
                .find(|field| matches!(*field, "exec" | "httpGet" | "tcpSocket" | "grpc"));
            sheet.field_if(probe, kind.unwrap_or_default());
        }
        let mounts = list(spec, "/volumeMounts").iter();
        let mounts: Vec<String> = mounts
            .map(|mount| format!("{} from {}", text(&mount["mountPath"]), text(&mount["name"])))
            .collect();
        if !mounts.is_empty() {
            sheet.lines("Mounts", mounts);
        }
    });
}

/// `Running`, `Waiting` or `Terminated`, with what is known of it.
fn state(sheet: &mut Sheet, title: &str, state: &Value) {
    let states = state.as_object().into_iter().flatten();
    let Some((name, detail)) = states.into_iter().next() else {
        return sheet.field(title, "Unknown");
    };
    let mut name = name.clone();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    sheet.field(title, name);
    for (title, field) in [
        ("  Reason", "reason"),
        ("  Message", "message"),
        ("  Exit Code", "exitCode"),
        ("  Signal", "signal"),
        ("  Started", "startedAt"),
        ("  Finished", "finishedAt"),
    ] {
        sheet.field_if(title, text_or(detail, &format!("/{field}"), ""));
    }
}

/// What the pod waits for, one a line; nothing where it runs.
pub(super) fn waits(told: &Told, now: Timestamp) -> Vec<String> {
    let pod = &told.object;
    let mut waits = Vec::new();
    if text_or(pod, "/spec/nodeName", "").is_empty() {
        waits.push("a node that takes it".to_owned());
    }
    if let Some(node) = told.node.as_ref().filter(|node| node.state != "in step") {
        waits.push(format!("its node, which is {}{}", node.state, because(&node.trouble)));
    }
    for reference in told.story.references.iter().filter(|one| one.required && !one.present) {
        waits.push(format!("{}, which is not there", reference.key));
    }
    for statuses in ["/status/initContainerStatuses", "/status/containerStatuses"] {
        for container in list(pod, statuses) {
            let Some(waiting) = container["state"].get("waiting") else { continue };
            let text = |field: &str| waiting[field].as_str().unwrap_or_default();
            waits.push(format!(
                "container {}: {}{}{}",
                container["name"].as_str().unwrap_or_default(),
                text("reason"),
                because(text("message")),
                until(text("message"), container, now),
            ));
        }
    }
    waits
}

fn because(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// When a back-off is over: it began when the last run ended.
fn until(message: &str, container: &Value, now: Timestamp) -> String {
    let wait = message.strip_prefix("back-off ").and_then(|rest| rest.split(' ').next());
    let wait = wait.and_then(|wait| humantime::parse_duration(wait).ok());
    let ended = container.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str);
    let ended = ended.and_then(|ended| ended.parse::<Timestamp>().ok());
    let (Some(wait), Some(ended)) = (wait, ended) else { return String::new() };
    let Ok(end) = ended.checked_add(wait) else { return String::new() };
    let left = end.duration_since(now).as_secs();
    if left > 0 {
        format!(" (until {end:.0}, in {left}s)")
    } else {
        format!(" (until {end:.0}, which is now)")
    }
}
