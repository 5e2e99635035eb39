//! A node: how it is, where it stands, and what runs on it.

use jiff::Timestamp;

use super::Told;
use super::sheet::Sheet;
use crate::command::render::bytes;
use crate::command::status::since;
use crate::table::Table;
use crate::table::columns::{cells, header, list, node_roles, node_status, pairs, text_or};

pub(super) fn write(sheet: &mut Sheet, told: &Told, now: Timestamp) {
    let node = &told.object;
    sheet.field("Roles", node_roles(node));
    sheet.field("Status", node_status(node));
    if let Some(standing) = &told.node {
        sheet.field(
            "Link",
            match standing.last_contact_ms {
                0 => standing.state.clone(),
                ms => format!("{}, last heard of {} ago", standing.state, since(ms, now)),
            },
        );
        sheet.field_if("Trouble", &standing.trouble);
        sheet.field(
            "Identity",
            format!(
                "incarnation {}, boot {}{}",
                standing.incarnation,
                standing.boot,
                if standing.state == "held" { ": held, another node has it too" } else { "" },
            ),
        );
        sheet.field("Outbox", format!("{} reports waiting", standing.outbox_depth));
        sheet.field(
            "Last MetaSync",
            match standing.last_meta_sync_ms {
                0 => "never".to_owned(),
                ms => format!("{} ago", since(ms, now)),
            },
        );
        if let Some(disk) = &standing.disk {
            let began = match disk.since_ms {
                0 => String::new(),
                ms => format!(" since {}", since(ms, now)),
            };
            sheet.field(
                "Disk",
                format!(
                    "{}{began}; databases take {}, {} are free",
                    disk.state,
                    bytes(disk.store_bytes),
                    bytes(disk.free_bytes)
                ),
            );
            sheet.field_if("  What To Do", &disk.advice);
        }
    }
    let mut conditions = Table::new(["TYPE", "STATUS", "REASON", "MESSAGE"]);
    for condition in list(node, "/status/conditions") {
        let of = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        conditions.row([of("type"), of("status"), of("reason"), of("message")]);
    }
    sheet.table("Conditions", &conditions);
    let addresses = list(node, "/status/addresses").iter();
    sheet.lines(
        "Addresses",
        addresses.map(|address| {
            format!("{}: {}", text_or(address, "/type", ""), text_or(address, "/address", ""))
        }),
    );
    sheet.lines("Capacity", pairs(node, "/status/capacity").split(',').map(str::to_owned));
    for (title, field) in [
        ("Kernel", "kernelVersion"),
        ("OS", "osImage"),
        ("Architecture", "architecture"),
        ("Runtime", "containerRuntimeVersion"),
        ("Version", "kubeletVersion"),
    ] {
        sheet.field_if(title, text_or(node, &format!("/status/nodeInfo/{field}"), ""));
    }
    let mut columns = header("pod", false);
    columns.insert(0, "NAMESPACE");
    let mut pods = Table::new(columns);
    for pod in &told.pods {
        let mut row = cells("pod", pod, false, now);
        row.insert(0, text_or(pod, "/metadata/namespace", "default"));
        pods.row(row);
    }
    sheet.table("Pods", &pods);
}
