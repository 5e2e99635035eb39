//! The report of a run: one HTML file that opens offline, charts as inline SVG.

mod chart;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::latency::{LatencyAt, Quantiles};
use crate::record::{Latencies, RecordError, Run};

use self::chart::{Chart, Line};

/// The name of the report in a run's folder.
pub const FILE: &str = "report.html";

/// Processes that are drawn one by one; of more edges than this the busiest are.
const PROCESSES_DRAWN_MAX: usize = 12;

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse}\
td,th{padding:.15em 1em .15em 0;text-align:right;font-variant-numeric:tabular-nums}\
td:first-child,th:first-child,td:nth-child(2):last-child,th:nth-child(2):last-child{text-align:left}th{border-bottom:1px solid #999}\
.wrong{background:#b00020;color:#fff;font-size:2em;font-weight:700;padding:.6em;text-align:center}\
.mark{background:#ffe8a3;padding:.4em .8em}.right{color:#0a6b2d;font-weight:600}\
svg{max-width:100%;height:auto}pre{white-space:pre-wrap;background:#f6f6f6;padding:1em}\
@media(prefers-color-scheme:dark){body{background:#fff}}";

/// Writes the report of `run` into `folder`; gives the file.
///
/// # Errors
/// When the file cannot be written.
pub fn write(run: &Run, folder: &Path) -> Result<PathBuf, RecordError> {
    let path = folder.join(FILE);
    match fs::write(&path, html(run)) {
        Ok(()) => Ok(path),
        Err(source) => Err(RecordError::File { path, source }),
    }
}

/// The report as text.
pub fn html(run: &Run) -> String {
    let title = format!("{} on {}", run.scenario.name, run.target);
    let mut page = Page(String::new());
    page.raw("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    page.text(&title);
    page.raw("</title><style>");
    page.raw(STYLE);
    page.raw("</style></head><body>");
    page.element("h1", &title);
    page.element("p", &run.scenario.about);
    page.head(run);
    if run.correctness.right {
        page.latencies(run);
    }
    page.rates(run);
    page.costs(run);
    page.settings(run);
    page.raw("</body></html>\n");
    page.0
}

struct Page(String);

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    fn text(&mut self, text: &str) {
        self.0.push_str(&escaped(text));
    }

    fn element(&mut self, name: &str, text: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "<{name}>{}</{name}>", escaped(text));
    }

    fn marked(&mut self, class: &str, text: &str) {
        let _ = write!(self.0, "<p class=\"{class}\">{}</p>", escaped(text));
    }

    fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        self.raw("<table><tr>");
        header.iter().for_each(|name| self.element("th", name));
        self.raw("</tr>");
        for row in rows {
            self.raw("<tr>");
            row.iter().for_each(|cell| self.element("td", cell));
            self.raw("</tr>");
        }
        self.raw("</table>");
    }

    fn chart(&mut self, chart: &Chart<'_>) {
        match chart.svg() {
            Ok(svg) => self.raw(&svg),
            Err(reason) => self.marked("mark", &format!("{}: {reason}", chart.title)),
        }
    }

    fn head(&mut self, run: &Run) {
        if !run.correctness.right {
            self.marked("wrong", "THE RUN WAS WRONG: IT HAS NO LATENCY FIGURES");
        }
        if let Some(void) = &run.void {
            self.marked("mark", &format!("VOID: {void}. These figures do not count."));
        }
        if let Some(saturated) = &run.saturated {
            self.marked("mark", &format!("SATURATED: {saturated}."));
        }
        let found = &run.correctness;
        let account = &found.account;
        let verdict = if found.right { "right" } else { "wrong" };
        self.element("h2", &format!("Correctness: {verdict}"));
        let rows = [
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
        let rows: Vec<_> =
            rows.iter().map(|(name, count)| vec![(*name).to_owned(), count.to_string()]).collect();
        self.table(&["what", "count"], &rows);
        for finding in &found.findings.first {
            self.marked("mark", finding);
        }
    }

    fn latencies(&mut self, run: &Run) {
        self.element("h2", "Latency, milliseconds");
        let ms = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.2}"));
        let row = |name: &str, of: &Quantiles| {
            let values = [of.min_ms, of.p50_ms, of.p90_ms, of.p99_ms, of.p999_ms, of.max_ms];
            let values = values.into_iter().map(ms);
            [name.to_owned(), of.count.to_string()].into_iter().chain(values).collect()
        };
        let kinds = [
            ("intended to visible at the edge", &run.propagation),
            ("intended to status at the cloud", &run.round_trip),
        ];
        let there: Vec<(&str, &Latencies)> =
            kinds.iter().filter_map(|(name, of)| Some((*name, of.as_ref()?))).collect();
        let mut rows: Vec<Vec<String>> =
            there.iter().map(|(name, of)| row(name, &of.quantiles)).collect();
        rows.push(row("the generator's own lag", &run.generator.lag.quantiles));
        self.table(&["", "N", "min", "p50", "p90", "p99", "p99.9", "max"], &rows);
        self.element(
            "p",
            "Latency counts from the intended moment of a change, whenever it was said. A quantile \
             that the samples do not carry is left out: p99 wants 1,000 of them, p99.9 wants \
             100,000.",
        );
        self.element("p", &format!("To be compared with: {}.", run.scenario.limit));
        for (name, of) in there {
            self.percentiles(name, of);
            self.over_time(name, of, run);
        }
    }

    fn percentiles(&mut self, name: &str, of: &Latencies) {
        // Each step halves what is left: the distance from 1, as its logarithm.
        let points = of.percentiles.iter().filter(|point| point.quantile < 1.0);
        let points = points.map(|point| (-(1.0 - point.quantile).log10(), point.ms));
        self.chart(&Chart {
            title: &format!("{name}: percentiles"),
            x: "percentile",
            y: "ms",
            x_label: &|nines| percentile(nines).unwrap_or_default(),
            marks: &[],
            lines: &[Line { name: String::new(), points: points.collect() }],
        });
    }

    fn over_time(&mut self, name: &str, of: &Latencies, run: &Run) {
        let line = |name: &str, value: fn(&Quantiles) -> Option<f64>| Line {
            name: name.to_owned(),
            points: points(&of.over_time, |at| value(&at.quantiles)),
        };
        self.chart(&Chart {
            title: &format!("{name}: second by second"),
            marks: &marks(run),
            lines: &[
                line("p50", |of| of.p50_ms),
                line("p90", |of| of.p90_ms),
                line("p99", |of| of.p99_ms),
                line("max", |of| of.max_ms),
            ],
            ..Chart::over_time("ms")
        });
    }

    fn rates(&mut self, run: &Run) {
        self.element("h2", "Throughput");
        let of = &run.throughput;
        let rest = of.at_rest_after_s.map_or("never".to_owned(), |s| format!("{s:.2} s"));
        self.table(
            &["what", "value"],
            &[
                vec!["changes intended a second".to_owned(), format!("{:.1}", of.intended_per_s)],
                vec!["changes visible a second".to_owned(), format!("{:.1}", of.visible_per_s)],
                vec!["set up in".to_owned(), format!("{:.1} s", of.set_up_s)],
                vec!["all edges at rest after the end".to_owned(), rest],
            ],
        );
        if let Some(latencies) = &run.propagation {
            let visible = points(&latencies.over_time, |at| Some(at.quantiles.count as f64));
            self.chart(&Chart {
                title: "changes visible, in each second",
                marks: &marks(run),
                lines: &[Line { name: String::new(), points: visible }],
                ..Chart::over_time("changes")
            });
        }
        if let Some(wire) = &run.wire {
            let line = |name: &str, value: fn(&crate::record::WireAt) -> f64| Line {
                name: name.to_owned(),
                points: wire.over_time.iter().map(|at| (at.at_s, value(at))).collect(),
            };
            self.chart(&Chart {
                title: &format!("bytes on the wire a second, at {}", wire.counted_at),
                marks: &marks(run),
                lines: &[
                    line("hub to edges", |at| at.down_per_s),
                    line("edges to hub", |at| at.up_per_s),
                ],
                ..Chart::over_time("bytes/s")
            });
            if wire.over_time.iter().any(|at| at.connects > 0) {
                self.chart(&Chart {
                    title: "connections made, in each second",
                    marks: &marks(run),
                    lines: &[line("", |at| at.connects as f64)],
                    ..Chart::over_time("connects")
                });
            }
        }
    }

    fn costs(&mut self, run: &Run) {
        self.element("h2", "What it cost");
        let mib = |bytes: Option<u64>| {
            bytes.map_or_else(
                || "–".to_owned(),
                |bytes| format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
            )
        };
        let mut processes: Vec<_> = run.costs.processes.iter().collect();
        processes.sort_by(|one, two| two.cpu_s.total_cmp(&one.cpu_s));
        let rows: Vec<_> = processes
            .iter()
            .map(|of| {
                let (cores, cpu) = (format!("{:.3}", of.cores_mean), format!("{:.2}", of.cpu_s));
                vec![of.name.clone(), cores, cpu, mib(of.pss_bytes_max), mib(of.pss_bytes_last)]
            })
            .collect();
        self.table(&["process", "cores", "CPU, s", "PSS, most", "PSS, last"], &rows);
        self.element("p", &run.costs.of_the_machine());
        let drawn = || processes.iter().take(PROCESSES_DRAWN_MAX);
        let cores = drawn().map(|of| Line {
            name: of.name.clone(),
            points: of.over_time.iter().map(|at| (at.at_s, at.cores)).collect(),
        });
        self.chart(&Chart {
            title: "cores kept busy",
            marks: &marks(run),
            lines: &cores.collect::<Vec<_>>(),
            ..Chart::over_time("cores")
        });
        let memory = drawn().map(|of| Line {
            name: of.name.clone(),
            points: of
                .over_time
                .iter()
                .filter_map(|at| Some((at.at_s, at.pss_bytes? as f64 / 1_048_576.0)))
                .collect(),
        });
        self.chart(&Chart {
            title: "memory (PSS)",
            marks: &marks(run),
            lines: &memory.collect::<Vec<_>>(),
            ..Chart::over_time("MiB")
        });
        let count = run.costs.cores_busy_mean.len();
        let cores = (0..count).map(|core| Line {
            name: format!("core {core}"),
            points: run
                .costs
                .cores_over_time
                .iter()
                .filter_map(|at| Some((at.at_s, 100.0 * at.busy.get(core)?)))
                .collect(),
        });
        self.chart(&Chart {
            title: "the machine's cores, whoever kept them busy",
            marks: &marks(run),
            lines: &cores.collect::<Vec<_>>(),
            ..Chart::over_time("% busy")
        });
    }

    fn settings(&mut self, run: &Run) {
        self.element("h2", "How it was run");
        let (machine, versions) = (&run.machine, &run.versions);
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        let rows = [
            ("started", run.started.clone()),
            ("edges", run.edges_are.clone()),
            ("seed", run.seed.to_string()),
            ("machine", format!("{} x {}, {gib:.1} GiB", machine.cores, machine.cpu)),
            ("kernel", machine.kernel.clone()),
            ("program", format!("{} ({} build)", versions.headwater, versions.build)),
            ("commit", versions.commit.clone().unwrap_or_else(|| "unknown".to_owned())),
        ];
        let rows: Vec<_> =
            rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        self.table(&["what", "value"], &rows);
        if !run.faults.is_empty() {
            let rows: Vec<_> = run
                .faults
                .iter()
                .map(|fault| {
                    let failed = fault.failed.clone().map(|why| format!("failed: {why}"));
                    let at = format!("{:.2} s", fault.at_s);
                    vec![fault.what.clone(), at, failed.unwrap_or_default()]
                })
                .collect();
            self.table(&["fault", "at", ""], &rows);
        }
        let settings = toml::to_string_pretty(&run.scenario);
        self.element("pre", &settings.unwrap_or_else(|error| error.to_string()));
    }
}

/// A second without a value interrupts the line, so that a stall stays visible.
fn points(over_time: &[LatencyAt], value: impl Fn(&LatencyAt) -> Option<f64>) -> Vec<(f64, f64)> {
    over_time.iter().map(|at| (at.at_s, value(at).unwrap_or(f64::NAN))).collect()
}

/// The percentile of so many nines, where they are whole: 0, 90, 99, 99.9.
fn percentile(nines: f64) -> Option<String> {
    let whole = nines.round();
    let is_whole = (nines - whole).abs() < 1e-6 && whole >= 0.0;
    let digits = (whole - 2.0).max(0.0) as usize;
    is_whole.then(|| format!("{:.digits$}", 100.0 * (1.0 - 10_f64.powf(-whole))))
}

/// What was done to the parts, where it is drawn.
fn marks(run: &Run) -> Vec<(f64, String)> {
    run.faults.iter().map(|fault| (fault.at_s, fault.what.clone())).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
