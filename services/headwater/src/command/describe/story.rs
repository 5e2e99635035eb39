//! How an object came to be as it is: events, reports, and where its streams stand.

use jiff::Timestamp;

use super::Told;
use super::sheet::Sheet;
use crate::command::render;
use crate::command::status;
use crate::table::Table;

pub(super) fn write(sheet: &mut Sheet, told: &Told, now: Timestamp) {
    let story = &told.story;
    if story.stream.is_empty() {
        return;
    }
    let mut events = Table::new(["SEQ", "TIME", "KIND", "EPOCH", "KEY", "CHANGED"]);
    for event in &story.events {
        events.row([
            event.seq.to_string(),
            render::time(event.time_ms),
            event.kind.clone(),
            event.writer_epoch.to_string(),
            event.key.clone(),
            event.change.clone(),
        ]);
    }
    sheet.table(&titled("Events in", &story.stream, story.earlier_events), &events);
    if told.object_type.name == "pod" {
        let mut reports = Table::new(["TIME", "NODE", "BOOT", "SEQ", "STATUS"]);
        for report in &story.reports {
            reports.row([
                render::time(report.time_ms),
                report.node.clone(),
                report.boot.to_string(),
                report.seq.to_string(),
                report.summary.clone(),
            ]);
        }
        sheet.table(&titled("Reported by", "its node", story.earlier_reports), &reports);
    }
    if let Some(node) = &told.node {
        let table = status::table(std::slice::from_ref(node), true, now);
        sheet.table(&format!("Streams of {}", node.name), &table);
    }
}

fn titled(title: &str, of: &str, earlier: u64) -> String {
    match earlier {
        0 => format!("{title} {of}"),
        earlier => format!("{title} {of} ({earlier} earlier ones are not shown)"),
    }
}
