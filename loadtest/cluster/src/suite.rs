//! Kubernetes' own end-to-end tests, against the nodes of a control plane.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use headwater_daemon::{DaemonError, Process, tail};
use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::control_plane::ControlPlane;
use crate::program::Program;

/// What the failures of this module call it.
const WHAT: &str = "Kubernetes' own tests";

/// The seconds that the suite waits for nodes and for the pods of the system before its first case. The
/// caller has waited for the nodes, and the system has no pods.
const NODES_WITHIN: &str = "60s";

/// The time in which the suite cleans up and writes its report after its limit.
const REPORT_WITHIN: Duration = Duration::from_secs(60);

/// The name of the suite, which Ginkgo puts before the name of a case that it compares.
const SUITE: &str = "Kubernetes e2e suite";

/// The mark of a case that runs alone.
const SERIAL: &str = "[Serial]";

/// Runs cases. Those that may run beside others do so, each process of the suite one after the other;
/// then those that run alone.
#[derive(Clone, Copy, Debug)]
pub struct SuiteRun<'a> {
    /// The names of the cases.
    pub cases: &'a [&'a str],
    /// The number of cases that run at once.
    pub at_once: NonZeroUsize,
    /// The time limit of all of them.
    pub within: Duration,
    /// The folder of the outputs and the reports.
    pub folder: &'a Path,
}

/// A case of the suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuiteCase {
    /// The file of its source in Kubernetes, such as `test/e2e/apps/deployment.go`.
    pub file: String,
    /// Its name, with those of its groups and its marks.
    pub name: String,
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

/// A process of the suite.
struct SuiteProcess {
    process: Process,
    report: PathBuf,
    log: PathBuf,
}

impl SuiteRun<'_> {
    /// Runs the cases as the administrator of `cluster`. Returns the result of each that is known by
    /// its name; a name that the suite does not have has none.
    ///
    /// # Errors
    /// The suite cannot be started, ends before its report, or takes longer than its limit.
    pub fn run(&self, cluster: &ControlPlane) -> Result<BTreeMap<String, CaseResult>, DaemonError> {
        let started = Instant::now();
        let (alone, beside): (Vec<&str>, Vec<&str>) =
            self.cases.iter().partition(|name| name.contains(SERIAL));
        let processes: Result<Vec<_>, _> = shares(&beside, self.at_once)
            .iter()
            .enumerate()
            .map(|(index, cases)| {
                self.start(cluster, &format!("beside-{index}"), cases, self.within)
            })
            .collect();
        let mut results = BTreeMap::new();
        for process in processes? {
            results.extend(process.results(self.within.saturating_sub(started.elapsed()))?);
        }
        if !alone.is_empty() {
            let within = self.within.saturating_sub(started.elapsed());
            results.extend(self.start(cluster, "alone", &alone, within)?.results(within)?);
        }
        Ok(results)
    }

    /// Starts a process that runs `cases` one after the other.
    fn start(
        &self,
        cluster: &ControlPlane,
        name: &str,
        cases: &[&str],
        within: Duration,
    ) -> Result<SuiteProcess, DaemonError> {
        let folder = self.folder.join(name);
        let (report, log) = (folder.join("report.json"), folder.join("suite.log"));
        fs::create_dir_all(&folder).map_err(DaemonError::file(&folder))?;
        let mut command = cluster.program().suite();
        command.current_dir(&folder).stdin(Stdio::null());
        command.arg("-kubeconfig").arg(cluster.kubeconfig());
        command.arg("-kubectl-path").arg(cluster.program().kubectl_path());
        command.args(["-provider=skeleton", "-dump-logs-on-failure=false"]);
        command.args(["-disable-log-dump=true", "-prepull-images=false"]);
        command.arg(format!("-node-schedulable-timeout={NODES_WITHIN}"));
        command.args(["-minStartupPods=0", "-allowed-not-ready-nodes=-1"]);
        command.args(["-ginkgo.no-color", "-ginkgo.silence-skips", "-test.timeout=0"]);
        command.arg(format!("-ginkgo.timeout={}s", within.as_secs().max(1)));
        command.arg(format!("-ginkgo.focus={}", focus(cases)));
        command.arg("-ginkgo.json-report").arg(&report);
        let process = Process::start(&command, &log)?;
        Ok(SuiteProcess { process, report, log })
    }
}

impl SuiteProcess {
    /// Waits for its end, and returns the result of each case.
    fn results(self, within: Duration) -> Result<Vec<(String, CaseResult)>, DaemonError> {
        let what = WHAT.to_owned();
        // The suite stops by itself at its limit, and then cleans up.
        if self.process.ended_within(within + REPORT_WITHIN).is_none() {
            let _ = self.process.signal(Signal::SIGKILL);
            let seconds = within.as_secs();
            return Err(DaemonError::Late { what, seconds, output: tail(&self.log) });
        }
        let text = fs::read(&self.report).ok();
        let reports = text.and_then(|text| serde_json::from_slice::<Vec<Report>>(&text).ok());
        let Some(reports) = reports else {
            let status = "without a report".to_owned();
            return Err(DaemonError::Failed { what, status, output: tail(&self.log) });
        };
        let specs = reports.into_iter().flat_map(|report| report.spec_reports.unwrap_or_default());
        Ok(specs.filter_map(SpecReport::result).collect())
    }
}

impl SuiteCase {
    /// Every case that the suite of `program` has.
    ///
    /// # Errors
    /// The suite cannot be started, or fails.
    pub fn all(program: &Program) -> Result<Vec<Self>, DaemonError> {
        let mut command = program.suite();
        command.arg("-list-tests").stdin(Stdio::null());
        let output = command.output().map_err(|source| {
            let program = command.get_program().display().to_string();
            DaemonError::Program { program, source }
        })?;
        if !output.status.success() {
            let (what, status) = (WHAT.to_owned(), output.status.to_string());
            let output = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(DaemonError::Failed { what, status, output });
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(Self::parse).collect())
    }

    /// A line of the list, `    MODULE@VERSION/FILE:LINE: NAME`, if it is one.
    fn parse(line: &str) -> Option<Self> {
        let (place, name) = line.trim_start().split_once(": ")?;
        let (_, file) = place.split_once('@')?.1.split_once('/')?;
        let (file, _line) = file.rsplit_once(':')?;
        Some(Self { file: file.to_owned(), name: name.to_owned() })
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

/// Deals the cases out, one after the other, to as many processes as there are cases for.
fn shares<'a>(cases: &[&'a str], at_once: NonZeroUsize) -> Vec<Vec<&'a str>> {
    let mut shares = vec![Vec::new(); at_once.get().min(cases.len())];
    let count = shares.len();
    for (index, case) in cases.iter().enumerate() {
        shares[index % count].push(*case);
    }
    shares
}

/// The regular expression that selects exactly these cases.
fn focus(cases: &[&str]) -> String {
    let names: Vec<String> = cases.iter().map(|name| quoted(name)).collect();
    format!("^{SUITE} ({})$", names.join("|"))
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
        assert_eq!(focus(&["[a] B (c)", "d"]), r"^Kubernetes e2e suite (\[a\] B \(c\)|d)$");
    }

    #[test]
    fn cases_are_dealt_out_to_as_many_processes_as_have_one() {
        let three = NonZeroUsize::new(3).expect("not zero");
        assert_eq!(shares(&["a", "b", "c", "d"], three), [vec!["a", "d"], vec!["b"], vec!["c"]]);
        assert_eq!(shares(&["a"], three), [vec!["a"]]);
        assert_eq!(shares(&[], three), [[""; 0]; 0]);
    }

    #[test]
    fn a_line_of_the_list_has_a_file_and_a_name() {
        let line = "    k8s.io/kubernetes@v1.36.3/test/e2e/apps/rc.go:107: [sig-apps] R: a [Slow]";
        let case =
            SuiteCase { file: "test/e2e/apps/rc.go".into(), name: "[sig-apps] R: a [Slow]".into() };
        assert_eq!(SuiteCase::parse(line), Some(case));
        assert_eq!(SuiteCase::parse("All the tests:"), None);
    }
}
