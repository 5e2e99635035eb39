//! A list of cases of Kubernetes' own tests: which pass, and why the others cannot.

use std::collections::{BTreeMap, BTreeSet};

use headwater_cluster::{CaseOutcome, CaseResult, SuiteCase};
use serde::Deserialize;

/// The cases of the suite that are about nodes and what is scheduled to them.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct CaseList {
    files: Vec<CaseFile>,
}

/// The cases of one file of Kubernetes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    file: String,
    /// The mark of the cases that are listed, if it is not that of the list.
    mark: Option<String>,
    /// The cases that pass, and run in every check.
    #[serde(default)]
    every_check: Vec<String>,
    /// The cases that pass, and run in the long form.
    #[serde(default)]
    long_form: Vec<String>,
    /// The cases that do not pass.
    #[serde(default)]
    excluded: Vec<ExcludedCase>,
}

/// A case that does not pass.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExcludedCase {
    case: String,
    reason: String,
}

impl CaseList {
    /// A list of the repository.
    pub(crate) fn parse(list: &str) -> Self {
        serde_saphyr::from_str(list).expect("a list of cases")
    }

    /// The cases of every check, or of a whole round; those with these words in their names.
    pub(crate) fn selected(&self, is_round: bool, words: &str) -> Vec<&str> {
        let names = self.files.iter().flat_map(|file| {
            let more = if is_round { &file.long_form[..] } else { &[] };
            file.every_check.iter().chain(more).map(String::as_str)
        });
        names.filter(|name| name.contains(words)).collect()
    }

    /// The differences between the list and the cases that the suite has, a line each. The list must have every case
    /// of its files with this mark, or with that of the file.
    pub(crate) fn differences(&self, suite: &[SuiteCase], mark: &str) -> Vec<String> {
        let mut differences = Vec::new();
        for file in &self.files {
            let of_file = suite.iter().filter(|case| case.file == file.file);
            let names: BTreeSet<&str> = of_file.map(|case| case.name.as_str()).collect();
            let mut listed = BTreeSet::new();
            let passing = file.every_check.iter().chain(&file.long_form);
            let excluded = file.excluded.iter().map(|excluded| &excluded.case);
            for name in passing.chain(excluded).map(String::as_str) {
                if !listed.insert(name) {
                    differences.push(format!("{}: listed twice: {name}", file.file));
                }
            }
            let unknown = listed.difference(&names);
            differences.extend(unknown.map(|name| format!("{}: no such case: {name}", file.file)));
            let mark = file.mark.as_deref().unwrap_or(mark);
            let missing = names.difference(&listed).filter(|name| name.contains(mark));
            differences.extend(missing.map(|name| format!("{}: not listed: {name}", file.file)));
            let unexplained = file.excluded.iter().filter(|excluded| excluded.reason.is_empty());
            differences.extend(
                unexplained.map(|excluded| format!("{}: no reason: {}", file.file, excluded.case)),
            );
        }
        differences
    }
}

/// The cases without a pass, a line each. Prints every result.
pub(crate) fn failures(cases: &[&str], results: &BTreeMap<String, CaseResult>) -> Vec<String> {
    for (case, CaseResult { outcome, took }) in results {
        println!("{:>5.0} s  {case}: {outcome:?}", took.as_secs_f64());
    }
    let missing = cases.iter().filter(|case| !results.contains_key(**case));
    let missing = missing.map(|case| format!("{case}: the suite has no result of it"));
    let failed = results.iter().filter(|(_, result)| result.outcome != CaseOutcome::Passed);
    let failed = failed.map(|(case, result)| format!("{case}: {:?}", result.outcome));
    missing.chain(failed).collect()
}

#[test]
fn a_difference_between_list_and_suite_is_named() {
    let list = "- file: a.go\n  every_check: [one, two]\n  long_form: [one]\n  excluded: [{case: three, reason: ''}]\n\
                - file: b.go\n  mark: seven\n";
    let list: CaseList = serde_saphyr::from_str(list).expect("a list");
    let case = |file: &str, name: &str| SuiteCase { file: file.to_owned(), name: name.to_owned() };
    let suite = [
        case("a.go", "one"),
        case("a.go", "three"),
        case("a.go", "four [Conformance]"),
        case("a.go", "five"),
        case("b.go", "six [Conformance]"),
        case("b.go", "seven"),
    ];
    let expected = [
        "a.go: listed twice: one",
        "a.go: no such case: two",
        "a.go: not listed: four [Conformance]",
        "a.go: no reason: three",
        "b.go: not listed: seven",
    ];
    assert_eq!(list.differences(&suite, "[Conformance]"), expected);
}

#[test]
fn a_round_has_the_cases_of_every_check_too() {
    let list = CaseList::parse("- {file: a.go, every_check: [one], long_form: [two, tone]}");
    assert_eq!(list.selected(false, ""), ["one"]);
    assert_eq!(list.selected(true, ""), ["one", "two", "tone"]);
    assert_eq!(list.selected(true, "one"), ["one", "tone"]);
}
