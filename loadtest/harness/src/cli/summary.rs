//! What a record says, as a table for people.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use crate::compare::Comparison;
use crate::record::Run;
use crate::series::Series;
use crate::tables::{self, bytes, none};

/// The headline of a run that was wrong.
const WRONG: &str = "\
#######################################################
##   THE RUN WAS WRONG: IT HAS NO LATENCY FIGURES    ##
#######################################################
";

/// The headline of a run whose generator was late.
const VOID: &str = "VOID: these figures do not count.";

/// An empty table with these columns.
pub(super) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(columns);
    table
}

fn shown(of: tables::Table) -> String {
    let mut shown = table(&of.header);
    shown.add_rows(of.rows);
    format!("\n{shown}\n")
}

/// The record of a run.
pub(super) fn summary(run: &Run) -> String {
    let mut text = format!("\n{} on {}\n", run.scenario.name, run.target);
    text.push_str(&shown(tables::settings(run)));
    if let Some(void) = &run.void {
        text.push_str(&format!("\n{VOID} {void}\n"));
    }
    if let Some(saturated) = &run.saturated {
        text.push_str(&format!("\nSATURATED: {saturated}\n"));
    }
    text.push('\n');
    let found = &run.correctness;
    if !found.right {
        text.push_str(WRONG);
    }
    text.push_str(if found.right { "correctness: RIGHT\n" } else { "correctness: WRONG\n" });
    text.push_str(&shown(tables::correctness(run)));
    for finding in &found.findings.first {
        text.push_str(&format!("  - {finding}\n"));
    }
    let more = found.findings.count.saturating_sub(found.findings.first.len() as u64);
    if more > 0 {
        text.push_str(&format!("  - and {more} more\n"));
    }
    text.push_str(&shown(tables::latencies(run)));
    text.push_str(&format!("limit to compare with: {}\n", run.scenario.limit));
    text.push_str(&shown(tables::throughput(run)));
    if !run.faults.is_empty() {
        text.push_str(&shown(tables::faults(run)));
    }
    text.push_str(&shown(tables::processes(run)));
    text.push_str(&format!("{}\n", run.costs.of_the_machine()));
    text
}

/// Two runs side by side.
pub(super) fn comparison(compared: &Comparison) -> String {
    let mut shown = table(&["FIGURE", "BEFORE", "AFTER", "RATIO", "CONCLUSION"]);
    for row in &compared.rows {
        shown.add_row([
            row.figure.clone(),
            format!("{:.3}", row.before),
            format!("{:.3}", row.after),
            row.ratio.map_or_else(none, |ratio| format!("{ratio:.3}")),
            row.conclusion.to_string(),
        ]);
    }
    let mut text = format!("{shown}\n");
    for refusal in &compared.refusals {
        text.push_str(&format!("no conclusion: {refusal}\n"));
    }
    for note in &compared.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

/// A series of runs.
pub(super) fn series(series: &Series) -> String {
    let columns = ["P50, ms", "P99, ms", "HUB PSS", "HUB us/MESSAGE", "B/MESSAGE", ""];
    let columns: Vec<&str> = [series.key.as_str()].into_iter().chain(columns).collect();
    let mut shown = table(&columns);
    let number = |of: Option<f64>| of.map_or_else(none, |of| format!("{of:.2}"));
    for point in &series.points {
        let mark = match (point.right, point.void) {
            (false, _) => "WRONG",
            (true, true) => "void",
            (true, false) => "",
        };
        shown.add_row([
            point.value.to_string(),
            number(point.p50_ms),
            number(point.p99_ms),
            point.hub_pss_bytes.map_or_else(none, bytes),
            number(point.hub_us_per_message),
            number(point.wire_bytes_per_message),
            mark.to_owned(),
        ]);
    }
    let growth = &series.growth;
    format!(
        "\n{shown}\nexponent of the hub's memory above the first run: {}; of its time for a message: \
         {}; memory for each further one: {} B\n",
        number(growth.hub_pss),
        number(growth.hub_us_per_message),
        number(growth.hub_pss_bytes_each)
    )
}
