//! `cargo xtask tidy`: the rules of the source tree that no compiler checks.
//!
//! A rule is a function from texts to [`Finding`]s, so that each is tested on small inputs; only
//! [`tree`] reads files. No rule has exceptions for a line: a rule that needs one is the wrong rule.

mod direction;
mod manifest;
mod module;
mod module_table;
mod promise;
mod source;
mod style;
mod tree;
mod word;

use std::fmt;

use crate::place::Place;
use crate::step::{self, Failure};

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, from the top of the clone.
    path: String,
    /// Counted from 1; 0 for the whole file.
    line: usize,
    /// The violation and its remedy.
    what: String,
}

impl Finding {
    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }

    fn of(path: &str, what: impl Into<String>) -> Self {
        Self::at(path, 0, what)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Checks every rule over the whole tree and prints every finding.
///
/// # Errors
/// The tree has findings, or a file cannot be read.
pub(crate) fn tidy(place: &Place) -> Result<(), Failure> {
    let tree = tree::Tree::read(&place.root)?;
    let mut findings = tree.top_level();
    for file in &tree.files {
        findings.extend(source::check(&file.path, &file.text));
        findings.extend(style::check(&file.path, &file.text));
        if file.path.ends_with(".rs") {
            findings.extend(module_table::check(&file.path, &file.text));
        }
    }
    findings.extend(promise::check(&tree));
    let crates = tree.crates()?;
    for one in &crates {
        findings.extend(direction::check(one));
        findings.extend(module::unreached(&one.folder, &tree.rust_files_of(one)));
    }
    for name in direction::PURE {
        let args = ["tree", "--package", name, "--edges", "normal", "--prefix", "none", "--locked"];
        let reached = step::output(&mut place.cargo(&args))?;
        findings.extend(direction::reaches_runtime(name, &reached));
    }
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    for hint in tree.files.iter().flat_map(|file| source::sleeps(&file.path, &file.text)) {
        eprintln!("hint: {hint}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} untidy"))),
    }
}
