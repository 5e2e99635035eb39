//! Kubernetes' own end-to-end tests, against the nodes of a control plane.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use headwater_daemon::{DaemonError, Process, tail};
use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::control_plane::ControlPlane;

/// The seconds that the suite waits for nodes and for the pods of the system before its first case. The
/// caller has waited for the nodes, and the system has no pods.
const NODES_WITHIN: &str = "60s";

/// Runs cases one after the other.
#[derive(Clone, Copy, Debug)]
pub struct SuiteRun<'a> {
    /// The names of the cases.
    pub cases: &'a [&'a str],
    /// The time limit of all of them.
    pub within: Duration,
    /// The folder of the output and the report.
    pub folder: &'a Path,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// How it ended.
    pub outcome: CaseOutcome,
    /// How long it took.
    pub took: Duration,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    /// It passed.
    Passed,
    /// It did not run, for a reason of its own.
    Skipped(String),
    /// It failed; the suite's message.
    Failed(String),
}

/// The report of Ginkgo, as far as it is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    #[serde(default)]
    spec_reports: Option<Vec<SpecReport>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    /// Nanoseconds.
    run_time: u64,
    failure: Failure,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failure {
    message: String,
}

impl SuiteRun<'_> {
    /// Runs the cases as the administrator of `cluster`. Returns the result of each that is known by
    /// its name; a name that the suite does not have has none.
    ///
    /// # Errors
    /// The suite cannot be started, ends before its report, or takes longer than its limit.
    pub fn run(&self, cluster: &ControlPlane) -> Result<BTreeMap<String, CaseResult>, DaemonError> {
        let report = self.folder.join("report.json");
        let log = self.folder.join("suite.log");
        fs::create_dir_all(self.folder).map_err(DaemonError::file(self.folder))?;
        let mut command = cluster.program().suite();
        command.current_dir(self.folder).stdin(Stdio::null());
        command.arg("-kubeconfig").arg(cluster.kubeconfig());
        command.args(["-provider=skeleton", "-dump-logs-on-failure=false"]);
        command.args(["-disable-log-dump=true", "-prepull-images=false"]);
        command.arg(format!("-node-schedulable-timeout={NODES_WITHIN}"));
        command.args(["-minStartupPods=0", "-allowed-not-ready-nodes=-1"]);
        command.args(["-ginkgo.no-color", "-ginkgo.silence-skips", "-test.timeout=0"]);
        command.arg(format!("-ginkgo.timeout={}s", self.within.as_secs()));
        command.arg(format!("-ginkgo.focus={}", focus(self.cases)));
        command.arg("-ginkgo.json-report").arg(&report);
        let process = Process::start(&command, &log)?;
        // The suite stops by itself at its limit, and then cleans up.
        if process.ended_within(self.within + Duration::from_secs(60)).is_none() {
            let _ = process.signal(Signal::SIGKILL);
            let (what, seconds) = ("Kubernetes' own tests".to_owned(), self.within.as_secs());
            return Err(DaemonError::Late { what, seconds, output: tail(&log) });
        }
        let text = fs::read(&report).ok();
        let reports = text.and_then(|text| serde_json::from_slice::<Vec<Report>>(&text).ok());
        let Some(reports) = reports else {
            let (what, status) =
                ("Kubernetes' own tests".to_owned(), "without a report".to_owned());
            return Err(DaemonError::Failed { what, status, output: tail(&log) });
        };
        let specs = reports.into_iter().flat_map(|report| report.spec_reports.unwrap_or_default());
        Ok(specs.filter_map(SpecReport::result).collect())
    }
}

impl SpecReport {
    /// The name and the result of a case that was selected.
    fn result(self) -> Option<(String, CaseResult)> {
        let outcome = match self.state.as_str() {
            "passed" => CaseOutcome::Passed,
            // Not selected.
            "skipped" if self.failure.message.is_empty() => return None,
            "skipped" => CaseOutcome::Skipped(self.failure.message),
            _ => CaseOutcome::Failed(self.failure.message),
        };
        if self.leaf_node_type != "It" {
            return match &outcome {
                CaseOutcome::Failed(_) => {
                    Some((self.leaf_node_type, CaseResult { outcome, took: Duration::ZERO }))
                }
                _ => None,
            };
        }
        let texts = self.container_hierarchy_texts.unwrap_or_default().into_iter();
        let name = texts.chain([self.leaf_node_text]).collect::<Vec<_>>().join(" ");
        Some((name, CaseResult { outcome, took: Duration::from_nanos(self.run_time) }))
    }
}

/// The regular expression that selects exactly these cases.
fn focus(cases: &[&str]) -> String {
    let names: Vec<String> = cases.iter().map(|name| quoted(name)).collect();
    format!("^({})$", names.join("|"))
}

/// `name` as a part of a regular expression.
fn quoted(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len());
    for letter in name.chars() {
        if !(letter.is_alphanumeric() || letter == ' ') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_was_selected_and_how_it_ended() {
        let json = r#"[{"SpecReports": [
            {"ContainerHierarchyTexts": ["[sig-apps] Deployment", "x"], "LeafNodeType": "It",
             "LeafNodeText": "rolls", "State": "passed", "RunTime": 1500000000},
            {"ContainerHierarchyTexts": null, "LeafNodeType": "It", "LeafNodeText": "other",
             "State": "skipped"},
            {"LeafNodeType": "It", "LeafNodeText": "asks", "State": "skipped",
             "Failure": {"Message": "needs two nodes"}},
            {"LeafNodeType": "It", "LeafNodeText": "breaks", "State": "timedout",
             "Failure": {"Message": "late"}},
            {"LeafNodeType": "SynchronizedBeforeSuite", "State": "failed",
             "Failure": {"Message": "no nodes"}},
            {"LeafNodeType": "ReportAfterSuite", "State": "passed"}
        ]}]"#;
        let reports: Vec<Report> = serde_json::from_str(json).expect("a report");
        let specs = reports.into_iter().flat_map(|report| report.spec_reports.expect("there"));
        let results: BTreeMap<_, _> = specs.filter_map(SpecReport::result).collect();
        let passed = &results["[sig-apps] Deployment x rolls"];
        assert_eq!(passed.outcome, CaseOutcome::Passed);
        assert_eq!(passed.took, Duration::from_millis(1_500));
        assert_eq!(results["asks"].outcome, CaseOutcome::Skipped("needs two nodes".to_owned()));
        assert_eq!(results["breaks"].outcome, CaseOutcome::Failed("late".to_owned()));
        let before = &results["SynchronizedBeforeSuite"].outcome;
        assert_eq!(*before, CaseOutcome::Failed("no nodes".to_owned()));
        assert_eq!(results.len(), 4);
    }

    #[test]
    fn a_focus_selects_the_names_and_nothing_else() {
        assert_eq!(focus(&["[a] B (c)", "d"]), r"^(\[a\] B \(c\)|d)$");
    }
}
