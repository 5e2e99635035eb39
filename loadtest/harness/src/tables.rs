//! What a record says, as tables: the same on a screen and in a report.

use crate::latency::Quantiles;
use crate::record::Run;

/// A table of texts.
pub(crate) struct Table {
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// How a run was made.
pub(crate) fn settings(run: &Run) -> Table {
    let (machine, versions) = (&run.machine, &run.versions);
    let program = format!("{} ({} build)", versions.headwater, versions.build);
    let memory = bytes(machine.memory_bytes);
    facts(&[
        ("started", run.started.clone()),
        ("edges", run.edges_are.clone()),
        ("seed", run.seed.to_string()),
        ("machine", format!("{} x {}, {memory}", machine.cores, machine.cpu)),
        ("kernel", machine.kernel.clone()),
        ("program", program),
        ("commit", versions.commit.clone().unwrap_or_else(|| "unknown".to_owned())),
    ])
}

/// What the correctness box counted.
pub(crate) fn correctness(run: &Run) -> Table {
    let (found, account) = (&run.correctness, &run.correctness.account);
    let counts = [
        ("edges whose databases were read", found.edges),
        ("replicas compared with the fold of their stream", found.replicas),
        ("events of the log folded for it", found.events),
        ("statuses compared with the cloud's picture", found.statuses),
        ("changes intended, over all edges", account.intended),
        ("of these, seen", account.seen),
        ("overwritten by a newer one before they were seen", account.overwritten),
        ("missing", account.missing),
        ("lines refused", found.refused),
    ];
    facts(&counts.map(|(name, count)| (name, count.to_string())))
}

/// Latencies, where the run has some, and the generator's lag.
pub(crate) fn latencies(run: &Run) -> Table {
    let row = |name: &str, of: &Quantiles| {
        let values = [of.min_ms, of.p50_ms, of.p90_ms, of.p99_ms, of.p999_ms, of.max_ms];
        let values = values.map(|ms| ms.map_or_else(none, |ms| format!("{ms:.2}")));
        [name.to_owned(), of.count.to_string()].into_iter().chain(values).collect()
    };
    let there = run.latencies().into_iter().map(|(name, of)| row(name, &of.quantiles));
    let lag = row("the generator's own lag", &run.generator.lag.quantiles);
    Table {
        header: vec!["latency, ms", "N", "min", "p50", "p90", "p99", "p99.9", "max"],
        rows: there.chain([lag]).collect(),
    }
}

/// How much there was, and what passed over the wire for it.
pub(crate) fn throughput(run: &Run) -> Table {
    let of = &run.throughput;
    let rest = of.at_rest_after_s.map_or("never".to_owned(), |s| format!("{s:.2} s"));
    let mut table = facts(&[
        ("changes intended a second", format!("{:.1}", of.intended_per_s)),
        ("changes visible a second", format!("{:.1}", of.visible_per_s)),
        ("set up in", format!("{:.1} s", of.set_up_s)),
        ("all edges at rest after the end", rest),
    ]);
    if let Some(wire) = &run.wire {
        let visible = (of.visible_per_s * run.scenario.duration.as_secs_f64()).max(1.0);
        let each = format!("{:.0} B", wire.down_bytes as f64 / visible);
        table.rows.extend(
            facts(&[
                ("wire counted at", wire.counted_at.clone()),
                ("wire down", bytes(wire.down_bytes)),
                ("wire up", bytes(wire.up_bytes)),
                ("wire down, a visible change", each),
                ("connects", wire.connects.to_string()),
            ])
            .rows,
        );
    }
    table
}

/// What each process cost, the busiest first.
pub(crate) fn processes(run: &Run) -> Table {
    let mut processes: Vec<_> = run.costs.processes.iter().collect();
    processes.sort_by(|one, two| two.cpu_s.total_cmp(&one.cpu_s));
    let rows = processes.into_iter().map(|of| {
        let (cores, cpu) = (format!("{:.3}", of.cores_mean), format!("{:.2}", of.cpu_s));
        let memory = [of.pss_bytes_max, of.pss_bytes_last].map(|of| of.map_or_else(none, bytes));
        [of.name.clone(), cores, cpu].into_iter().chain(memory).collect()
    });
    let header = vec!["process", "cores", "CPU, s", "PSS, most", "PSS, last"];
    Table { header, rows: rows.collect() }
}

/// What was done to the parts.
pub(crate) fn faults(run: &Run) -> Table {
    let row = |fault: &crate::record::FaultDone| {
        let failed = fault.failed.as_ref().map(|why| format!("FAILED: {why}"));
        vec![fault.what.clone(), format!("{:.2} s", fault.at_s), failed.unwrap_or_default()]
    };
    Table { header: vec!["fault", "at", ""], rows: run.faults.iter().map(row).collect() }
}

fn facts(facts: &[(&str, String)]) -> Table {
    let rows = facts.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]);
    Table { header: vec!["what", "value"], rows: rows.collect() }
}

/// The text of a value that there is not.
pub(crate) fn none() -> String {
    "-".to_owned()
}

/// A size.
pub(crate) fn bytes(of: u64) -> String {
    match of {
        0..1_024 => format!("{of} B"),
        1_024..1_048_576 => format!("{:.1} KiB", of as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", of as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", of as f64 / 1_073_741_824.0),
    }
}
