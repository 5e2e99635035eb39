//! A pod: its node, its containers, and the causes of its waiting.

use jiff::Timestamp;
use serde_json::Value;

use super::Description;
use super::field_writer::FieldWriter;
use crate::moment::Moment;
use crate::table::Table;
use crate::table::columns::{UNKNOWN, known, list, ready_containers, status, text_or};

pub(super) fn write(writer: &mut FieldWriter, description: &Description, moment: Moment) {
    let pod = &description.object;
    writer.field("Node", node(description));
    writer.field_if("Start Time", text_or(pod, "/status/startTime", ""));
    let (ready, all) = ready_containers(pod);
    let status = status(pod, moment);
    writer.field(
        "Status",
        if moment.has_statuses { format!("{status}, {ready} of {all} ready") } else { status },
    );
    writer.field_if("Reason", text_or(pod, "/status/reason", ""));
    writer.field_if("Message", text_or(pod, "/status/message", ""));
    writer.field_if("Deleted At", text_or(pod, "/metadata/deletionTimestamp", ""));
    writer.field("IP", known(moment, || text_or(pod, "/status/podIP", "<none>")));
    if moment.has_statuses {
        writer.lines("Waits For", waits(description, moment.time));
    }
    // The fields of the spec that the pod's runtime does not honour, a reason a line.
    let ignored = condition_message(pod, "headwater/SpecHonoured", "False").lines();
    let ignored: Vec<String> = ignored.map(str::to_owned).collect();
    if !ignored.is_empty() {
        writer.lines("Ignored Fields", ignored);
    }
    for (title, spec, status) in [
        ("Init Containers", "/spec/initContainers", "/status/initContainerStatuses"),
        ("Containers", "/spec/containers", "/status/containerStatuses"),
    ] {
        let (containers, statuses) = (list(pod, spec), list(pod, status));
        if containers.is_empty() {
            continue;
        }
        writer.part(title, |writer| {
            for container in containers {
                let status = statuses.iter().find(|status| status["name"] == container["name"]);
                self::container(writer, container, status.unwrap_or(&Value::Null), moment);
            }
        });
    }
    let mut conditions = Table::new(["TYPE", "STATUS", "REASON", "SINCE"]);
    for condition in list(pod, "/status/conditions") {
        let of = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        conditions.row([of("type"), of("status"), of("reason"), of("lastTransitionTime")]);
    }
    writer.table("Conditions", &conditions);
    let mut volumes = Table::new(["NAME", "TYPE"]);
    for volume in list(pod, "/spec/volumes") {
        let name = volume["name"].as_str().unwrap_or_default().to_owned();
        let fields = volume.as_object().into_iter().flatten();
        let kinds: Vec<&str> =
            fields.map(|(field, _)| field.as_str()).filter(|field| *field != "name").collect();
        volumes.row([name, kinds.join(", ")]);
    }
    writer.table("Volumes", &volumes);
}

fn node(description: &Description) -> String {
    match (&description.node, text_or(&description.object, "/spec/nodeName", "").as_str()) {
        (_, "") => "<none>: it has no node yet".to_owned(),
        (Some(node), name) => format!("{name} ({})", node.state),
        (None, name) => name.to_owned(),
    }
}

/// The message of a condition that has this status; empty if the pod has none.
fn condition_message<'p>(pod: &'p Value, kind: &str, status: &str) -> &'p str {
    let mut conditions = list(pod, "/status/conditions").iter();
    let condition = conditions.find(|one| one["type"] == kind && one["status"] == status);
    condition.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}

fn container(writer: &mut FieldWriter, spec: &Value, status: &Value, moment: Moment) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |field: &str| {
        let words: Vec<String> = spec[field].as_array().into_iter().flatten().map(text).collect();
        words.join(" ")
    };
    writer.part(&text(&spec["name"]), |writer| {
        writer.field("Image", image(spec, status));
        writer.field_if("Command", words("command"));
        writer.field_if("Args", words("args"));
        match moment.has_statuses {
            true => state(writer, "State", &status["state"]),
            false => writer.field("State", UNKNOWN),
        }
        if status["lastState"].as_object().is_some_and(|last| !last.is_empty()) {
            state(writer, "Last State", &status["lastState"]);
        }
        let ready = if status["ready"] == true { "True" } else { "False" };
        writer.field("Ready", known(moment, || ready.to_owned()));
        let restarts = status["restartCount"].as_i64().unwrap_or(0);
        writer.field("Restart Count", known(moment, || restarts.to_string()));
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let kinds = spec[probe].as_object().into_iter().flatten();
            let kind = kinds
                .map(|(field, _)| field.as_str())
                .find(|field| matches!(*field, "exec" | "httpGet" | "tcpSocket" | "grpc"));
            writer.field_if(probe, kind.unwrap_or_default());
        }
        let mounts = list(spec, "/volumeMounts").iter();
        let mounts: Vec<String> = mounts
            .map(|mount| format!("{} from {}", text(&mount["mountPath"]), text(&mount["name"])))
            .collect();
        if !mounts.is_empty() {
            writer.lines("Mounts", mounts);
        }
    });
}

/// The image of the spec, and the one that runs instead until the next start.
fn image(spec: &Value, status: &Value) -> String {
    let text = |object: &Value| object["image"].as_str().unwrap_or_default().to_owned();
    let (image, runs) = (text(spec), text(status));
    if runs.is_empty() || runs == image || status["state"]["running"].is_null() {
        return image;
    }
    format!("{image} (needs a restart: {runs} runs)")
}

/// Writes `Running`, `Waiting` or `Terminated`, with the details.
fn state(writer: &mut FieldWriter, title: &str, state: &Value) {
    let states = state.as_object().into_iter().flatten();
    let Some((name, detail)) = states.into_iter().next() else {
        return writer.field(title, "Unknown");
    };
    let mut name = name.clone();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    writer.field(title, name);
    for (title, field) in [
        ("  Reason", "reason"),
        ("  Message", "message"),
        ("  Exit Code", "exitCode"),
        ("  Signal", "signal"),
        ("  Started", "startedAt"),
        ("  Finished", "finishedAt"),
    ] {
        writer.field_if(title, text_or(detail, &format!("/{field}"), ""));
    }
}

/// Returns the causes of waiting, one a line; empty if the pod runs.
pub(super) fn waits(description: &Description, now: Timestamp) -> Vec<String> {
    let pod = &description.object;
    let mut waits = Vec::new();
    let node_name = text_or(pod, "/spec/nodeName", "");
    match &description.node {
        _ if node_name.is_empty() => waits.push("a node".to_owned()),
        None if description.is_past => {}
        None => waits.push(format!("node {node_name}, which does not exist")),
        Some(node) if node.state != "in step" => {
            waits.push(format!("its node, which is {}{}", node.state, because(&node.trouble)));
        }
        Some(_) => {}
    }
    for reference in
        description.history.references.iter().filter(|one| one.required && !one.present)
    {
        waits.push(format!("{}, which does not exist", reference.key));
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
    let failing_probes = condition_message(pod, "headwater/ProbeFailing", "True").lines();
    waits.extend(failing_probes.map(str::to_owned));
    waits
}

fn because(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// The end of a back-off, which began at the end of the last run.
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
