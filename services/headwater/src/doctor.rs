//! `headwater doctor`: checks the machine, the data directory of a process and, on request, a
//! Kubernetes API, and advises what to do.
//!
//! It runs with or without a running process, and changes nothing.

mod claims;
mod clock;
mod directory;
mod disk;
mod kubernetes;
mod limits;
mod sockets;

use std::path::PathBuf;

use headwater_cli::args::{Doctor, HistoryOutput};
use headwater_cli::exit::{CommandResult, Outcome};
use headwater_cli::table::Table;
use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// No problem.
    Ok,
    /// It works, but the operator should know of it.
    Warn,
    /// It does not work, or soon will not.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    /// The name of the check.
    check: String,
    /// The result.
    result: Verdict,
    /// The finding.
    found: String,
    /// The advice; empty if there is nothing to do.
    advice: String,
}

/// The output of `-o json`.
#[derive(Serialize)]
struct Report<'a> {
    checks: &'a [Check],
}

impl Check {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        let (check, found) = (check.into(), found.into());
        Self { check, result: Verdict::Ok, found, advice: String::new() }
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { result: Verdict::Warn, advice: advice.into(), ..Self::ok(check, found) }
    }

    fn fail(check: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { result: Verdict::Fail, advice: advice.into(), ..Self::ok(check, found) }
    }
}

/// Runs all checks.
pub(crate) fn run(args: &Doctor) -> CommandResult {
    let data = std::path::absolute(&args.target.data)?;
    let mut checks = vec![Check::ok("version", env!("CARGO_PKG_VERSION"))];
    checks.push(limits::kernel());
    checks.push(limits::pods());
    checks.extend(directory::look(&data));
    checks.extend(disk::look(&nearest(&data)));
    checks.extend(clock::look());
    checks.extend(limits::look());
    checks.extend(sockets::look(&data));
    checks.extend(claims::look(&data));
    checks.extend(kubernetes::look(&args.api)?);
    match args.output {
        HistoryOutput::Json => {
            println!("{}", serde_json::to_string_pretty(&Report { checks: &checks })?);
        }
        HistoryOutput::Table => print!("{}", table(&checks)),
    }
    let worst = checks.iter().map(|check| check.result).max();
    Ok(if worst == Some(Verdict::Fail) { Outcome::Found } else { Outcome::Done })
}

fn table(checks: &[Check]) -> Table {
    let mut table = Table::new(["CHECK", "RESULT", "FOUND", "WHAT TO DO"]);
    for Check { check, result, found, advice } in checks {
        let result = match result {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        table.row([check.clone(), result.to_owned(), found.clone(), advice.clone()]);
    }
    table
}

/// The directory, or where it would be made.
fn nearest(data: &std::path::Path) -> PathBuf {
    data.ancestors().find(|dir| dir.is_dir()).unwrap_or(std::path::Path::new("/")).to_owned()
}
