//! `headwater history`: the events of a stream.

use std::io::Write;
use std::time::Duration;

use headwater_operator::client;
use headwater_proto::operator::{HistoryEvent, HistoryRequest};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::args::{EventOutput, History};
use crate::exit::{CommandResult, Outcome};
use crate::render;
use crate::table::{StreamedTable, Table};

/// One line of `history -o json`. Stable: fields are added, never renamed.
#[derive(Serialize)]
struct Line<'a> {
    stream: &'a str,
    seq: u64,
    kind: &'a str,
    key: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    time: String,
    writer_epoch: u64,
    object: Option<&'a RawValue>,
}

/// The most rows that are laid out together.
const ROWS_MAX: usize = 256;

/// How long a row waits for others to be laid out with.
const ROW_WAIT: Duration = Duration::from_millis(20);

/// The least widths of the columns: seqs of four digits, times, and the kinds of most events. So the
/// columns of a stream that is followed stay.
const WIDTHS: [usize; 4] = [4, "2026-11-21T12:00:00.000Z".len(), "ConfigMapApplied".len(), 5];

/// The digits of a hash that are shown: enough to distinguish two by eye.
const HASH_DIGITS: usize = 12;

pub(super) async fn run(args: History) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let request = HistoryRequest {
        stream: args.stream.clone(),
        from: args.from.unwrap_or_default(),
        to: args.to.unwrap_or_default(),
        follow: args.follow,
        show_secrets: args.show_secrets,
        tail: args.tail.unwrap_or_default(),
    };
    let events = operator.history(request).await?.into_inner();
    match args.output {
        EventOutput::Json => print_lines(events).await,
        EventOutput::Table | EventOutput::Wide => print_table(events, &args).await,
    }
}

async fn print_lines(mut events: Streaming<HistoryEvent>) -> CommandResult {
    let mut stdout = std::io::stdout().lock();
    while let Some(event) = events.message().await? {
        writeln!(stdout, "{}", json_line(&event)?)?;
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}

async fn print_table(mut events: Streaming<HistoryEvent>, args: &History) -> CommandResult {
    let mut stdout = std::io::stdout().lock();
    let mut streamed = StreamedTable::with_widths(WIDTHS);
    let is_wide = args.output == EventOutput::Wide;
    let mut is_first = true;
    loop {
        let (rows, is_over) = next_rows(&mut events).await?;
        if rows.is_empty() && !is_first {
            return Ok(Outcome::Done);
        }
        let mut table = Table::new(header(is_wide)).without_headers(args.no_headers);
        rows.iter().for_each(|event| table.row(cells(event, is_wide)));
        write!(stdout, "{}", streamed.continued(table))?;
        stdout.flush()?;
        if is_over {
            return Ok(Outcome::Done);
        }
        is_first = false;
    }
}

/// Returns the next events that arrive together, at least one, and whether the stream is over.
async fn next_rows(
    events: &mut Streaming<HistoryEvent>,
) -> Result<(Vec<HistoryEvent>, bool), Status> {
    let mut rows = Vec::new();
    let Some(first) = events.message().await? else { return Ok((rows, true)) };
    rows.push(first);
    while rows.len() < ROWS_MAX {
        match timeout(ROW_WAIT, events.message()).await {
            Ok(Ok(Some(event))) => rows.push(event),
            Ok(Ok(None)) => return Ok((rows, true)),
            Ok(Err(status)) => return Err(status),
            Err(_) => break,
        }
    }
    Ok((rows, false))
}

fn header(is_wide: bool) -> Vec<&'static str> {
    let mut header = vec!["SEQ", "TIME", "KIND", "EPOCH", "KEY"];
    if is_wide {
        header.extend(["UID", "VERSION", "SIZE", "HASH"]);
    }
    header
}

fn cells(event: &HistoryEvent, is_wide: bool) -> Vec<String> {
    let mut cells = vec![
        event.seq.to_string(),
        render::time(event.time_ms),
        event.kind.clone(),
        event.writer_epoch.to_string(),
        event.key.clone(),
    ];
    if is_wide {
        let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let size = event.object.as_ref().map(|object| render::bytes(object.len() as u64));
        cells.extend([
            or_none(&event.uid),
            or_none(&event.resource_version),
            or_none(&size.unwrap_or_default()),
            or_none(event.hash.get(..HASH_DIGITS).unwrap_or(&event.hash)),
        ]);
    }
    cells
}

fn json_line(event: &HistoryEvent) -> Result<String, serde_json::Error> {
    let object = event.object.as_deref().map(serde_json::from_slice::<&RawValue>).transpose()?;
    serde_json::to_string(&Line {
        stream: &event.stream,
        seq: event.seq,
        kind: &event.kind,
        key: &event.key,
        uid: &event.uid,
        resource_version: &event.resource_version,
        time: render::time(event.time_ms),
        writer_epoch: event.writer_epoch,
        object,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> HistoryEvent {
        HistoryEvent {
            stream: "node/a".to_owned(),
            seq: 7,
            kind: "PodApplied".to_owned(),
            key: "default/pod/web".to_owned(),
            uid: "u".to_owned(),
            resource_version: String::new(),
            time_ms: 0,
            writer_epoch: 2,
            object: Some(br#"{"b":1,"a":2}"#.to_vec().into()),
            hash: "0123456789abcdef".to_owned(),
        }
    }

    #[test]
    fn a_wide_row_has_the_uid_the_version_the_size_and_the_hash() {
        assert_eq!(header(false).len(), cells(&event(), false).len());
        assert_eq!(header(true).len(), cells(&event(), true).len());
        assert_eq!(cells(&event(), true)[4..], ["default/pod/web", "u", "-", "13", "0123456789ab"]);
    }

    #[test]
    fn a_line_has_the_documented_fields_and_the_objects_own_bytes() {
        assert_eq!(
            json_line(&event()).expect("serializable"),
            r#"{"stream":"node/a","seq":7,"kind":"PodApplied","key":"default/pod/web","uid":"u","resource_version":"","time":"1970-01-01T00:00:00.000Z","writer_epoch":2,"object":{"b":1,"a":2}}"#
        );
    }
}
