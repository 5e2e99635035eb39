//! The report of a run: one HTML file that opens offline, charts as inline SVG.

mod chart;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Attempt, Failure};
use crate::latency::{LatencyAt, Quantiles};
use crate::record::{Latencies, Run};
use crate::tables::{self, Table};

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
pub fn write(run: &Run, folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join(FILE);
    fs::write(&path, html(run)).tried(&path.display().to_string())?;
    Ok(path)
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

    fn table(&mut self, table: &Table) {
        self.raw("<table><tr>");
        table.header.iter().for_each(|name| self.element("th", name));
        self.raw("</tr>");
        for row in &table.rows {
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
        let verdict = if found.right { "right" } else { "wrong" };
        self.element("h2", &format!("Correctness: {verdict}"));
        self.table(&tables::correctness(run));
        for finding in &found.findings.first {
            self.marked("mark", finding);
        }
    }

    fn latencies(&mut self, run: &Run) {
        self.element("h2", "Latency, milliseconds");
        self.table(&tables::latencies(run));
        self.element(
            "p",
            "Latency counts from the intended moment of a change, whenever it was said. A quantile \
             that the samples do not carry is left out: p99 wants 1,000 of them, p99.9 wants \
             100,000.",
        );
        self.element("p", &format!("To be compared with: {}.", run.scenario.limit));
        for (name, of) in run.latencies() {
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
        self.table(&tables::throughput(run));
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
        self.table(&tables::processes(run));
        self.element("p", &run.costs.of_the_machine());
        let mut processes: Vec<_> = run.costs.processes.iter().collect();
        processes.sort_by(|one, two| two.cpu_s.total_cmp(&one.cpu_s));
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
        self.table(&tables::settings(run));
        if !run.faults.is_empty() {
            self.table(&tables::faults(run));
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
