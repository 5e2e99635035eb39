//! `get -w`: the objects, then every change.

use std::io::Write;

use headwater_operator::client;
use headwater_proto::operator::get_event;
use jiff::Timestamp;
use serde_json::Value;

use super::{name_of, new_table, request, row};
use crate::args::{Get, Output};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::object_selection::ObjectSelection;
use crate::render;
use crate::selector::Selector;
use crate::table::StreamedTable;

pub(super) async fn run(
    args: Get,
    selections: &[ObjectSelection],
    selector: &Selector,
) -> CommandResult {
    let [ObjectSelection { object_type, names }] = selections else {
        return Err(Failure::Usage("--watch takes one TYPE".to_owned()));
    };
    if names.len() > 1 {
        return Err(Failure::Usage("--watch takes one NAME, or none for all".to_owned()));
    }
    let name = names.first().map(String::as_str);
    let mut operator = client::connect(&args.target.data).await?;
    let mut events = operator.watch(request(object_type, name, &args.scope)).await?.into_inner();
    let mut stdout = std::io::stdout().lock();
    let mut streamed = StreamedTable::default();
    // The first rows are laid out together; later rows one by one.
    let mut rows = new_table(&args, object_type);
    let (mut listed, mut found) = (false, false);
    while let Some(event) = events.message().await? {
        let tabular = matches!(args.output, Output::Table | Output::Wide);
        if event.kind() == get_event::Kind::InitDone {
            if let (Some(name), false) = (name, found) {
                return Err(Failure::not_found(object_type.plural, name));
            }
            listed = true;
        } else {
            let object: Value = serde_json::from_slice(&event.object)?;
            if !selector.matches(&object) {
                continue;
            }
            found = true;
            match args.output {
                Output::Json => writeln!(stdout, "{object}")?,
                Output::Yaml => write!(stdout, "---\n{}", render::yaml(&object))?,
                Output::Name => writeln!(stdout, "{}/{}", object_type.name, name_of(&object))?,
                Output::Table | Output::Wide => {
                    rows.row(row(&args, object_type, &object, false, Timestamp::now()));
                }
            }
        }
        if tabular && listed && !rows.is_empty() {
            let rows = std::mem::replace(&mut rows, new_table(&args, object_type));
            write!(stdout, "{}", streamed.continued(rows))?;
        }
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}
