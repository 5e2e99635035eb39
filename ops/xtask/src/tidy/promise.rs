//! Holds the pages that name tests to the tests: every file and every test that they name exists.
//!
//! On a page, a path in backticks starts at the top of the clone. A test in backticks belongs to
//! the path before it in the same row.

use super::Finding;
use super::tree::Tree;

/// The pages: promises, and the modules of KubeEdge's edged.
const PAGES: [&str; 2] = ["ops/docs/promises.md", "ops/docs/edged.md"];

/// Checks every row of the pages.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    PAGES.into_iter().flat_map(|page| check_page(tree, page)).collect()
}

fn check_page(tree: &Tree, page: &str) -> Vec<Finding> {
    let rows = tree.text(page).lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    rows.flat_map(|(at, row)| check_row(tree, page, at + 1, row)).collect()
}

fn check_row(tree: &Tree, page: &str, line: usize, row: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut path = None;
    for name in quoted(row) {
        if name.contains('/') {
            path = Some(name);
            if !tree.files.iter().any(|file| is_at(&file.path, name)) {
                findings.push(Finding::at(page, line, format!("no file {name}")));
            }
        } else if let Some(path) = path
            && is_test_name(name)
        {
            let test = format!("fn {name}(");
            let mut files = tree.files.iter().filter(|file| is_at(&file.path, path));
            if !files.any(|file| file.text.contains(&test)) {
                findings.push(Finding::at(page, line, format!("no test {name} in {path}")));
            }
        }
    }
    findings
}

/// The texts between pairs of backticks.
fn quoted(row: &str) -> impl Iterator<Item = &str> {
    row.split('`').skip(1).step_by(2)
}

/// Whether the file at `path` is `named`, or lies in the folder `named`.
fn is_at(path: &str, named: &str) -> bool {
    path.strip_prefix(named).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_test_name(name: &str) -> bool {
    name.contains('_')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::tree::File;
    use super::*;

    fn findings(row: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let tree = Tree::of(vec![
            file(PAGES[0], &format!("# Promises\n{row}\n")),
            file("a/tests/power.rs", "#[test]\nfn state_survives() {}\n"),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_that_names_what_exists_passes() {
        assert_eq!(
            findings("| x | simulation (I1); `a/tests/power.rs`: `state_survives` |"),
            [""; 0]
        );
        assert_eq!(findings("| `f(x) == y` | `a/tests` |"), [""; 0]);
    }

    #[test]
    fn each_page_is_checked() {
        for page in PAGES {
            let row = File { path: page.into(), text: "| x | `a/tests/gone.rs` |\n".into() };
            let findings: Vec<String> =
                check(&Tree::of(vec![row])).iter().map(ToString::to_string).collect();
            assert_eq!(findings, [format!("{page}:1: no file a/tests/gone.rs")]);
        }
    }

    #[test]
    fn a_missing_file_and_a_missing_test_are_findings() {
        assert_eq!(
            findings("| x | `a/tests/gone.rs` |"),
            ["ops/docs/promises.md:2: no file a/tests/gone.rs"]
        );
        assert_eq!(
            findings("| x | `a/tests/power.rs`: `state_vanishes` |"),
            ["ops/docs/promises.md:2: no test state_vanishes in a/tests/power.rs"]
        );
        assert_eq!(findings("| x | `a/tests/pow` |").len(), 1, "a part of a name is no path");
    }
}
