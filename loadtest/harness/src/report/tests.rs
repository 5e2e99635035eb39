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
fn a_wrong_run_has_no_latency_in_its_report() {
    let mut run = run(&[5.0, 7.0, 6.0]);
    run.correctness.right = false;
    run.correctness.findings.note(|| "node-1 lost something".to_owned());
    run.propagation = None;
    let html = html(&run);
    assert!(html.contains("THE RUN WAS WRONG") && html.contains("node-1 lost something"));
    assert!(!html.contains("Latency, milliseconds"));
}
