//! A report of a run that was right, and of one that was not.

use super::*;
use crate::compare::tests::run;
use crate::record::FaultDone;

#[test]
fn a_report_is_one_file_that_asks_for_nothing_else() {
    let mut run = run(&[5.0, 7.0, 6.0]);
    run.faults.push(FaultDone { at_s: 1.5, what: "kill <hub>".to_owned(), failed: None });
    let html = html(&run);
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(html.matches("<svg").count() >= 2, "latency and throughput over time");
    assert!(html.contains("kill &lt;hub&gt;") && !html.contains("<hub>"));
    for outside in ["src=", "href=", "@import", "<script", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("propagation on embedded") && html.contains("rate = 200.0"));
}

#[test]
fn an_axis_is_labelled_in_few_characters() {
    let labels = [0.0, 1.0, 2.0, 3.0, 4.0].map(percentile);
    let said = ["0", "90", "99", "99.9", "99.99"].map(|label| Some(label.to_owned()));
    assert_eq!(labels, said);
    assert_eq!(percentile(0.5), None);
    let amounts = [0.0, 0.1 + 0.2, 250.0, 20_000.0, 1_500_000.0, 2e9].map(chart::amount);
    assert_eq!(amounts, ["0", "0.3", "250", "20k", "1.5M", "2G"]);
}

#[test]
fn a_second_in_which_nothing_came_breaks_the_line_off() {
    let drawn = |points: &[(f64, f64)]| {
        let lines = [Line { name: "p50".to_owned(), points: points.to_vec() }];
        let svg = Chart { lines: &lines, ..Chart::over_time("ms") }.svg().expect("drawn");
        svg.matches("<polyline").count()
    };
    let whole = drawn(&[(0.0, 1.0), (1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (4.0, 1.0)]);
    let broken = drawn(&[(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 2.0), (4.0, 1.0)]);
    assert_eq!(broken, whole + 1);
}

#[test]
fn a_wrong_run_has_no_latency_in_its_report() {
    let mut run = run(&[5.0, 7.0, 6.0]);
    run.correctness.right = false;
    run.correctness.findings.note(|| "node-1 lost something".to_owned());
    run.propagation = None;
    let html = html(&run);
    assert!(html.contains("THE RUN WAS WRONG") && html.contains("node-1 lost something"));
    assert!(!html.contains("Latency, milliseconds"));
}
