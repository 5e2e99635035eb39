//! A node: its state, its positions, its pods.

use super::super::status::since;
use super::Description;
use super::field_writer::FieldWriter;
use crate::moment::Moment;
use crate::render::bytes;
use crate::table::Table;
use crate::table::columns::{cells, header, list, node_roles, node_status, pairs, text_or};

pub(super) fn write(writer: &mut FieldWriter, description: &Description, moment: Moment) {
    let now = moment.time;
    let node = &description.object;
    writer.field("Roles", node_roles(node));
    writer.field("Status", node_status(node));
    if let Some(status) = &description.node {
        writer.field(
            "Link",
            match status.last_contact_ms {
                0 => status.state.clone(),
                ms => format!("{}, last contact {} ago", status.state, since(ms, now)),
            },
        );
        writer.field_if("Trouble", &status.trouble);
        writer.field(
            "Identity",
            format!(
                "incarnation {}, boot {}{}",
                status.incarnation,
                status.boot,
                if status.state == "held" { ": held, because another node has it too" } else { "" },
            ),
        );
        writer.field("Outbox", format!("{} reports waiting", status.outbox_depth));
        writer.field(
            "Last MetaSync",
            match status.last_meta_sync_ms {
                0 => "never".to_owned(),
                ms => format!("{} ago", since(ms, now)),
            },
        );
        if let Some(disk) = &status.disk {
            let began = match disk.since_ms {
                0 => String::new(),
                ms => format!(" since {}", since(ms, now)),
            };
            writer.field(
                "Disk",
                format!(
                    "{}{began}; databases take {}, {} are free",
                    disk.state,
                    bytes(disk.store_bytes),
                    bytes(disk.free_bytes)
                ),
            );
            writer.field_if("  What To Do", &disk.advice);
        }
    }
    let mut conditions = Table::new(["TYPE", "STATUS", "REASON", "MESSAGE"]);
    for condition in list(node, "/status/conditions") {
        let of = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        conditions.row([of("type"), of("status"), of("reason"), of("message")]);
    }
    writer.table("Conditions", &conditions);
    let addresses = list(node, "/status/addresses").iter();
    writer.lines(
        "Addresses",
        addresses.map(|address| {
            format!("{}: {}", text_or(address, "/type", ""), text_or(address, "/address", ""))
        }),
    );
    writer.lines("Capacity", pairs(node, "/status/capacity").split(',').map(str::to_owned));
    for (title, field) in [
        ("Kernel", "kernelVersion"),
        ("OS", "osImage"),
        ("Architecture", "architecture"),
        ("Runtime", "containerRuntimeVersion"),
        ("Version", "kubeletVersion"),
    ] {
        writer.field_if(title, text_or(node, &format!("/status/nodeInfo/{field}"), ""));
    }
    let mut columns = header("pod", false);
    columns.insert(0, "NAMESPACE");
    let mut pods = Table::new(columns);
    for pod in &description.pods {
        let mut row = cells("pod", pod, false, moment);
        row.insert(0, text_or(pod, "/metadata/namespace", "default"));
        pods.row(row);
    }
    writer.table("Pods", &pods);
}
