//! `headwater describe`: one object in full, and the events that brought it here.

use std::io::Write;

use headwater_proto::operator::{HistoryEvent, HistoryRequest};
use jiff::Timestamp;
use serde_json::Value;

use super::{get, render};
use crate::cli::Describe;
use crate::client;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::table::{Table, columns};

/// How many of an object's events are shown, the newest.
const EVENTS_SHOWN_MAX: usize = 10;

pub(super) async fn run(args: Describe) -> CommandResult {
    let (types, name) = get::asked(&args.kind, args.name.as_deref())?;
    let ([object_type], Some(name)) = (types.as_slice(), name) else {
        return Err(Failure::Usage("name one object: TYPE NAME, or TYPE/NAME".to_owned()));
    };
    let mut operator = client::connect(&args.target.data).await?;
    let request = get::request(object_type, Some(name), &args.scope);
    let answer = operator.get(request).await?.into_inner();
    let Some(bytes) = answer.objects.first() else {
        return Err(get::not_found(object_type, name));
    };
    let object: Value = serde_json::from_slice(bytes)?;
    let mut stdout = std::io::stdout().lock();
    let header = columns::header(object_type.name, true);
    let cells = columns::cells(object_type.name, &object, true, Timestamp::now());
    for (name, cell) in header.iter().zip(cells) {
        writeln!(stdout, "{:<16} {cell}", format!("{}:", title(name)))?;
    }
    write!(stdout, "\n{}", render::yaml(&object))?;

    let stream = stream_of(object_type.name, &object);
    let key = key_of(object_type.name, object_type.namespaced, &object);
    let Some(stream) = stream else { return Ok(Outcome::Done) };
    let request = HistoryRequest { stream: stream.clone(), ..HistoryRequest::default() };
    let mut history = operator.history(request).await?.into_inner();
    let mut events: Vec<HistoryEvent> = Vec::new();
    while let Some(event) = history.message().await? {
        if event.key == key {
            events.push(event);
        }
    }
    let skipped = events.len().saturating_sub(EVENTS_SHOWN_MAX);
    let mut table = Table::new(["SEQ", "TIME", "KIND", "EPOCH"]);
    for event in events.iter().skip(skipped) {
        table.row([
            event.seq.to_string(),
            render::time(event.time_ms),
            event.kind.clone(),
            event.writer_epoch.to_string(),
        ]);
    }
    writeln!(stdout, "\nEvents in {stream}:")?;
    if table.is_empty() {
        writeln!(stdout, "<none>")?;
    } else {
        write!(stdout, "{table}")?;
    }
    Ok(Outcome::Done)
}

/// The stream that carries an object, where the object itself tells.
fn stream_of(kind: &str, object: &Value) -> Option<String> {
    match kind {
        "pod" => object
            .pointer("/spec/nodeName")
            .and_then(Value::as_str)
            .map(|node| format!("node/{node}")),
        "service" | "endpoints" | "endpointslice" => Some("cluster".to_owned()),
        _ => None,
    }
}

fn key_of(kind: &str, namespaced: bool, object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let namespace =
        if namespaced { text("/metadata/namespace").unwrap_or("default") } else { "null" };
    format!("{namespace}/{kind}/{}", text("/metadata/name").unwrap_or_default())
}

/// `LAST CONTACT` as `Last Contact`; what is spoken letter by letter stays as it is.
fn title(column: &str) -> String {
    if matches!(column, "IP" | "OS") {
        return column.to_owned();
    }
    let mut title = String::with_capacity(column.len());
    let mut start = true;
    for letter in column.chars() {
        title.push(if start { letter } else { letter.to_ascii_lowercase() });
        start = !letter.is_alphabetic();
    }
    title
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_tells_its_stream_and_key() {
        let pod =
            json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": "n"}});
        assert_eq!(stream_of("pod", &pod).as_deref(), Some("node/n"));
        assert_eq!(key_of("pod", true, &pod), "shop/pod/web");
        assert_eq!(stream_of("configmap", &pod), None);
        assert_eq!((title("LAST CONTACT"), title("IP")), ("Last Contact".into(), "IP".into()));
    }
}
