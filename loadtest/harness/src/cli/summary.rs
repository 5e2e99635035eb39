//! What a record says, as a table for people.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use crate::compare::Comparison;
use crate::latency::Quantiles;
use crate::record::{Latencies, Run};
use crate::series::Series;

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

/// The record of a run.
pub(super) fn summary(run: &Run) -> String {
    let mut text = String::new();
    let scenario = &run.scenario;
    text.push_str(&format!(
        "\n{} on {}, {}, seed {}\n",
        scenario.name, run.target, run.edges_are, run.seed
    ));
    let (machine, versions) = (&run.machine, &run.versions);
    text.push_str(&format!(
        "{} x {}, Linux {}; {} ({} build), commit {}\n",
        machine.cores,
        machine.cpu,
        machine.kernel,
        versions.headwater,
        versions.build,
        versions.commit.as_deref().unwrap_or("unknown")
    ));
    if let Some(void) = &run.void {
        text.push_str(&format!("\n{VOID} {void}\n"));
    }
    if let Some(saturated) = &run.saturated {
        text.push_str(&format!("\nSATURATED: {saturated}\n"));
    }
    text.push_str(&correctness(run));
    text.push_str(&latencies(run));
    text.push_str(&throughput(run));
    text.push_str(&costs(run));
    text
}

fn correctness(run: &Run) -> String {
    let found = &run.correctness;
    let mut text = String::from("\n");
    if !found.right {
        text.push_str(WRONG);
    }
    let account = &found.account;
    let verdict = if found.right { "RIGHT" } else { "WRONG" };
    text.push_str(&format!(
        "correctness: {verdict}. {} replicas of {} edges equal the fold of {} events; {} statuses \
         newest at the cloud; of {} changes {} seen, {} overwritten by a newer one, {} missing\n",
        found.replicas,
        found.edges,
        found.events,
        found.statuses,
        account.intended,
        account.seen,
        account.overwritten,
        account.missing
    ));
    for finding in &found.findings.first {
        text.push_str(&format!("  - {finding}\n"));
    }
    let more = found.findings.count.saturating_sub(found.findings.first.len() as u64);
    if more > 0 {
        text.push_str(&format!("  - and {more} more\n"));
    }
    text
}

fn latencies(run: &Run) -> String {
    let mut shown = table(&["LATENCY, ms", "N", "MIN", "P50", "P90", "P99", "P99.9", "MAX"]);
    let mut row = |name: &str, of: &Quantiles| {
        let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
        shown.add_row([
            name.to_owned(),
            of.count.to_string(),
            ms(of.min_ms),
            ms(of.p50_ms),
            ms(of.p90_ms),
            ms(of.p99_ms),
            ms(of.p999_ms),
            ms(of.max_ms),
        ]);
    };
    let mut measured = |name: &str, latencies: &Option<Latencies>| {
        if let Some(latencies) = latencies {
            row(name, &latencies.quantiles);
        }
    };
    measured("intended to visible", &run.propagation);
    measured("intended to status at cloud", &run.round_trip);
    row("generator's own lag", &run.generator.lag.quantiles);
    format!("\n{shown}\nlimit to compare with: {}\n", run.scenario.limit)
}

fn throughput(run: &Run) -> String {
    let of = &run.throughput;
    let rest = of.at_rest_after_s.map_or_else(
        || "the edges never came to rest".to_owned(),
        |seconds| format!("all edges at rest {seconds:.2} s after the end"),
    );
    let mut text = format!(
        "\n{:.0} changes/s intended, {:.0} visible/s; set up in {:.1} s; {rest}\n",
        of.intended_per_s, of.visible_per_s, of.set_up_s
    );
    if let Some(wire) = &run.wire {
        let visible = (of.visible_per_s * run.scenario.duration.as_secs_f64()).max(1.0);
        text.push_str(&format!(
            "wire at {}: {} down, {} up, {:.0} B down a visible change, {} connects\n",
            wire.counted_at,
            bytes(wire.down_bytes),
            bytes(wire.up_bytes),
            wire.down_bytes as f64 / visible,
            wire.connects
        ));
    }
    for fault in &run.faults {
        let failed = fault.failed.as_ref().map(|why| format!(" FAILED: {why}"));
        text.push_str(&format!(
            "{:>8.2} s  {}{}\n",
            fault.at_s,
            fault.what,
            failed.unwrap_or_default()
        ));
    }
    text
}

fn costs(run: &Run) -> String {
    let mut shown = table(&["PROCESS", "CORES", "CPU, s", "PSS MAX", "PSS LAST"]);
    for process in &run.costs.processes {
        let memory = |of: Option<u64>| of.map_or_else(|| "-".to_owned(), bytes);
        shown.add_row([
            process.name.clone(),
            format!("{:.3}", process.cores_mean),
            format!("{:.2}", process.cpu_s),
            memory(process.pss_bytes_max),
            memory(process.pss_bytes_last),
        ]);
    }
    format!("\n{shown}\n{}\n", run.costs.of_the_machine())
}

/// Two runs side by side.
pub(super) fn comparison(compared: &Comparison) -> String {
    let mut shown = table(&["FIGURE", "BEFORE", "AFTER", "RATIO", "CONCLUSION"]);
    for row in &compared.rows {
        shown.add_row([
            row.figure.clone(),
            format!("{:.3}", row.before),
            format!("{:.3}", row.after),
            row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
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
    let number = |of: Option<f64>| of.map_or_else(|| "-".to_owned(), |of| format!("{of:.2}"));
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
            point.hub_pss_bytes.map_or_else(|| "-".to_owned(), bytes),
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

fn bytes(of: u64) -> String {
    match of {
        0..1_024 => format!("{of} B"),
        1_024..1_048_576 => format!("{:.1} KiB", of as f64 / 1_024.0),
        _ => format!("{:.1} MiB", of as f64 / 1_048_576.0),
    }
}
