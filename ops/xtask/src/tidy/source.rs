//! The rules of one file: its name, first line, length and forbidden words.

use super::{Finding, word};

/// The most lines of a file: a longer one has more than one idea.
const LINES_MAX: usize = 700;

/// File names that do not describe a content.
const EMPTY_NAMES: [&str; 6] = ["common", "helper", "helpers", "misc", "util", "utils"];

/// Words that a Rust file must not have, with the remedy. Each is in two halves, so that this file
/// does not have them.
const WORDS: [(&str, &str, &str); 4] = [
    ("FIX", "ME", "fix it, or document what is absent"),
    ("TO", "DO", "do it, or document what is absent"),
    ("dbg", "!(", "remove it, or use tracing"),
    ("#[ign", "ore]", "say why: `#[ignore = ...]`"),
];

/// Folders of one machine, in two halves each.
const PLACES: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/home", "/")];

/// The one file that may have unsafe code, and the text that allows it, in two halves.
const UNSAFE: &str = "storage/kafka/src/native.rs";
const ALLOWS_UNSAFE: (&str, &str) = ("allow(uns", "afe_code");

/// Checks one file by its path and text.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (first, second) in PLACES {
            if line.contains(&[first, second].concat()) {
                findings.push(Finding::at(path, at + 1, "names a folder of one machine"));
            }
        }
    }
    if path.ends_with(".rs") {
        findings.extend(check_rust(path, text));
    }
    findings
}

fn check_rust(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(Finding::at(path, 1, "open with `//!`: what the file owns"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding::of(path, format!("{lines} lines, at most {LINES_MAX}: split it")));
    }
    if path.ends_with("/mod.rs") {
        findings.push(Finding::of(path, "no mod.rs: name.rs beside name/"));
    }
    let mut parts = path.trim_end_matches(".rs").split('/');
    if let Some(name) = parts.find(|part| EMPTY_NAMES.contains(part)) {
        let what = format!("{name:?} describes nothing: name the content");
        findings.push(Finding::of(path, what));
    }
    let allows_unsafe = [ALLOWS_UNSAFE.0, ALLOWS_UNSAFE.1].concat();
    for (at, line) in text.lines().enumerate() {
        if path != UNSAFE && line.contains(&allows_unsafe) {
            let what = format!("only {UNSAFE} may have unsafe code");
            findings.push(Finding::at(path, at + 1, what));
        }
        for (first, second, remedy) in WORDS {
            let word = [first, second].concat();
            if word::holds(line, &word) {
                findings.push(Finding::at(path, at + 1, format!("{word}: {remedy}")));
            }
        }
    }
    findings
}

/// Calls that sleep, in two halves each.
const SLEEPS: [(&str, &str); 2] = [("thread::", "sleep("), ("time::", "sleep(")];

/// The name in tests of the interval at which a condition with a deadline is polled.
const POLL: &str = "POLL";

/// Places where test code sleeps other than between two polls. These are hints, not findings: a
/// test may sleep in paused time.
pub(crate) fn sleeps(path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let is_test_file = path.contains("/tests/") || path.ends_with("/tests.rs");
    let tests_from = if is_test_file { 0 } else { text.find("#[cfg(test)]").unwrap_or(text.len()) };
    let before = text[..tests_from].lines().count();
    let lines = text[tests_from..].lines().enumerate();
    let sleeping = lines.filter(|(_, line)| {
        !line.contains(POLL)
            && SLEEPS.iter().any(|(module, call)| line.contains(&[*module, *call].concat()))
    });
    sleeping
        .map(|(at, _)| {
            Finding::at(
                path,
                before + at + 1,
                "sleeps in a test: poll a condition every POLL until its deadline",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unsafe_code_has_one_place() {
        let text =
            format!("//! Calls C.\n#![{}{}, reason = \"C\")]\n", ALLOWS_UNSAFE.0, ALLOWS_UNSAFE.1);
        assert_eq!(whats(UNSAFE, &text), [""; 0]);
        assert_eq!(whats("services/hub/src/hub.rs", &text).len(), 1);
    }

    #[test]
    fn a_good_file_passes() {
        assert_eq!(whats("a/src/seq.rs", "//! Owns seqs.\n\nfn todo_list() {}\n"), [""; 0]);
        assert_eq!(whats("README.md", "no rules of Rust here\n"), [""; 0]);
    }

    #[test]
    fn a_file_opens_with_what_it_owns() {
        assert_eq!(
            whats("a/src/x.rs", "use y;\n"),
            ["a/src/x.rs:1: open with `//!`: what the file owns"]
        );
    }

    #[test]
    fn file_names_describe_their_content() {
        for path in ["a/src/util.rs", "a/src/helpers/x.rs", "a/src/x/mod.rs", "a/tests/common/x.rs"]
        {
            assert_eq!(whats(path, "//! x\n").len(), 1, "{path}");
        }
        assert!(whats("a/src/utility_bill.rs", "//! x\n").is_empty());
    }

    #[test]
    fn files_stay_short() {
        let long = format!("//! x\n{}", "\n".repeat(LINES_MAX));
        assert_eq!(whats("a/src/x.rs", &long), ["a/src/x.rs: 701 lines, at most 700: split it"]);
        assert!(whats("a/src/x.rs", &long[1..].replacen("/!", "//!", 1)[..LINES_MAX]).is_empty());
    }

    #[test]
    fn forbidden_words_are_found() {
        for (first, second, _) in WORDS {
            let text = format!("//! x\n\n    {first}{second}: later\n");
            assert_eq!(whats("a/src/x.rs", &text).len(), 1, "{first}{second}");
        }
        assert!(whats("a/src/x.rs", "//! x\nlet mastodon = MASTODON;\n").is_empty());
    }

    #[test]
    fn no_file_names_a_folder_of_one_machine() {
        for (first, second) in PLACES {
            let text = format!("see {first}{second}x\n");
            assert_eq!(whats("ops/demo/x.yaml", &text).len(), 1, "{first}{second}");
        }
    }

    #[test]
    fn a_sleep_in_a_test_is_a_hint() {
        let call = ["thread::sl", "eep(a);"].concat();
        let text = format!("//! x\n{call}\n#[cfg(test)]\nmod tests {{\n  {call}\n}}\n");
        let lines = |path| sleeps(path, &text).iter().map(|hint| hint.line).collect::<Vec<_>>();
        assert_eq!(lines("a/src/x.rs"), [5]);
        assert_eq!(lines("a/tests/x.rs"), [2, 5]);
        assert!(sleeps("a/tests/x.rs", &text.replace("(a)", "(POLL)")).is_empty());
    }
}
