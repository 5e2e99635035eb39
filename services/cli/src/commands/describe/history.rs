//! The events and reports of an object, and the positions of its streams.

use jiff::Timestamp;

use super::super::status;
use super::Description;
use super::field_writer::FieldWriter;
use crate::render;
use crate::table::Table;

pub(super) fn write(writer: &mut FieldWriter, description: &Description, now: Timestamp) {
    let story = &description.history;
    if story.streams.is_empty() {
        return;
    }
    for stream in &story.streams {
        let mut events = Table::new(["SEQ", "TIME", "KIND", "EPOCH", "KEY", "CHANGED"]);
        for event in &stream.events {
            events.row([
                event.seq.to_string(),
                render::time(event.time_ms),
                event.kind.clone(),
                event.writer_epoch.to_string(),
                event.key.clone(),
                event.change.clone(),
            ]);
        }
        writer.table(&titled("Events in", &stream.stream, stream.earlier_events), &events);
    }
    match story.more_streams {
        0 => {}
        1 => writer.field("More", "1 more stream has it: name its node with --node"),
        more => {
            writer.field("More", format!("{more} more streams have it: name a node with --node"));
        }
    }
    if description.object_type.name == "pod" {
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
        writer.table(&titled("Reported by", "its node", story.earlier_reports), &reports);
    }
    if let Some(node) = &description.node {
        let table = status::table(std::slice::from_ref(node), true, now);
        writer.table(&format!("Streams of {}", node.name), &table);
    }
}

fn titled(title: &str, of: &str, earlier: u64) -> String {
    match earlier {
        0 => format!("{title} {of}"),
        earlier => format!("{title} {of} ({earlier} earlier ones are not shown)"),
    }
}
