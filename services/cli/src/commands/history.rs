//! `headwater history`: the events of a stream.

use std::io::Write;

use headwater_operator::client;
use headwater_proto::operator::{HistoryEvent, HistoryRequest};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::args::{History, HistoryOutput};
use crate::exit::{CommandResult, Outcome};
use crate::render::{self, plain};

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

pub(super) async fn run(args: History) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let request = HistoryRequest {
        stream: args.stream,
        from: args.from.unwrap_or_default(),
        to: args.to.unwrap_or_default(),
        follow: args.follow,
        show_secrets: args.show_secrets,
    };
    let mut events = operator.history(request).await?.into_inner();
    let mut stdout = std::io::stdout().lock();
    if args.output == HistoryOutput::Table && !args.no_headers {
        writeln!(stdout, "{:>6}  {:<24}  {:<28} {:>5}  KEY", "SEQ", "TIME", "KIND", "EPOCH")?;
    }
    while let Some(event) = events.message().await? {
        match args.output {
            HistoryOutput::Table => writeln!(
                stdout,
                "{:>6}  {:<24}  {:<28} {:>5}  {}",
                event.seq,
                render::time(event.time_ms),
                event.kind,
                event.writer_epoch,
                plain(&event.key)
            )?,
            HistoryOutput::Json => writeln!(stdout, "{}", json_line(&event)?)?,
        }
        stdout.flush()?;
    }
    Ok(Outcome::Done)
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

    #[test]
    fn a_line_has_the_documented_fields_and_the_objects_own_bytes() {
        let event = HistoryEvent {
            stream: "node/a".to_owned(),
            seq: 7,
            kind: "PodApplied".to_owned(),
            key: "default/pod/web".to_owned(),
            uid: "u".to_owned(),
            resource_version: String::new(),
            time_ms: 0,
            writer_epoch: 2,
            object: Some(br#"{"b":1,"a":2}"#.to_vec().into()),
            hash: String::new(),
        };
        assert_eq!(
            json_line(&event).expect("serializable"),
            r#"{"stream":"node/a","seq":7,"kind":"PodApplied","key":"default/pod/web","uid":"u","resource_version":"","time":"1970-01-01T00:00:00.000Z","writer_epoch":2,"object":{"b":1,"a":2}}"#
        );
    }
}
