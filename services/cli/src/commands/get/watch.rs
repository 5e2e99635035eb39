//! `get -w`: the objects, then every change.

use std::io::Write;

use headwater_operator::client;
use headwater_proto::operator::get_event;
use serde_json::Value;

use super::{DELETED, TERMINATING, name_of, new_table, not_found, printable, request, row};
use crate::args::{Get, Output};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::moment::Moment;
use crate::object_selection::ObjectSelection;
use crate::render;
use crate::selector::Selector;
use crate::table::{StreamedTable, Table};

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
    let table = || match &args.output {
        Output::CustomColumns(columns) => {
            Table::new(columns.header()).without_headers(args.no_headers)
        }
        _ => new_table(&args, object_type),
    };
    let mut rows = table();
    let (mut listed, mut found) = (false, false);
    while let Some(event) = events.message().await? {
        if event.kind() == get_event::Kind::InitDone {
            if let (Some(name), false) = (name, found) {
                let missing = not_found(&mut operator, object_type, name, &args.scope).await;
                return Err(Failure::NotFound(vec![missing]));
            }
            listed = true;
        } else {
            let object: Value = serde_json::from_slice(&event.object)?;
            if !selector.matches(&object) {
                continue;
            }
            found = true;
            match &args.output {
                Output::Json => writeln!(stdout, "{object}")?,
                Output::Yaml => write!(stdout, "---\n{}", render::yaml(&object))?,
                Output::Name => writeln!(stdout, "{}/{}", object_type.name, name_of(&object))?,
                Output::JsonPath(template) => {
                    let text = template.text(&object);
                    writeln!(stdout, "{}", printable(text.trim_end_matches('\n')))?;
                }
                Output::CustomColumns(columns) => rows.row(columns.cells(&object)),
                Output::Table | Output::Wide => {
                    let cells = row(&args, object_type, &object, false, Moment::now());
                    if event.kind() == get_event::Kind::Delete {
                        let last = last_rows(object_type.name, cells, rows.header());
                        last.into_iter().for_each(|cells| rows.row(cells));
                    } else {
                        rows.row(cells);
                    }
                }
            }
        }
        if listed && !rows.is_empty() {
            let rows = std::mem::replace(&mut rows, table());
            write!(stdout, "{}", streamed.continued(rows))?;
        }
        stdout.flush()?;
    }
    Ok(Outcome::Done)
}

/// The last rows of a removed object, whose cells have the status of before. A pod is Terminating
/// until its node has ended it; one that ended between two looks at it was so, too.
fn last_rows(kind: &str, cells: Vec<String>, header: &[String]) -> Vec<Vec<String>> {
    let Some(status) = header.iter().position(|column| column == "STATUS") else {
        return vec![cells];
    };
    let with = |text: &str| {
        let mut cells = cells.clone();
        cells[status] = text.to_owned();
        cells
    };
    let mut rows = Vec::new();
    if kind == "pod" && cells[status] != TERMINATING {
        rows.push(with(TERMINATING));
    }
    rows.push(with(DELETED));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_pod_is_terminating_and_then_deleted() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let header = row(&["NAME", "READY", "STATUS"]);
        let (ended, deleted) = (["web", "1/1", "Terminating"], ["web", "1/1", "Deleted"]);
        let last = |kind, cells: &[&str]| last_rows(kind, row(cells), &header);
        assert_eq!(last("pod", &["web", "1/1", "Running"]), [row(&ended), row(&deleted)]);
        assert_eq!(last("pod", &ended), [row(&deleted)]);
        assert_eq!(last("persistentvolume", &["web", "1/1", "Bound"]), [row(&deleted)]);
        let cells = row(&["words", "2"]);
        assert_eq!(last_rows("configmap", cells.clone(), &row(&["NAME", "DATA"])), [cells]);
    }
}
