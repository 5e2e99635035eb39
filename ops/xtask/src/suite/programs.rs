//! The test programs of the workspace: built by cargo, run side by side.
//!
//! `cargo test` runs one program after the other, and most of them wait more than they compute: for
//! a broker, for a process that restarts, for a deadline. Here [`LANES`] programs run at once, the
//! longest first. The output of a program is printed in one piece when it ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::failures::Failures;
use super::limited::{self, Run};
use super::slowest::Slowest;
use crate::place::Place;
use crate::step::{self, Failure};

/// Programs that run at once. Each runs a test per core, so a machine is full while two of them
/// compute, and busy while one of them waits.
const LANES: usize = 2;

/// The longest time of one program. The longest takes six minutes on a quiet machine. A program that
/// hangs must not use up the time of the whole run: its output names the test.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The folder in the build folder with the output of the programs that run.
const OUTPUTS: &str = "test-output";

/// The file in the build folder with the durations of the last run, in seconds.
const DURATIONS: &str = "test-durations.json";

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    /// Its package and target, such as `headwater-e2e crash`.
    name: String,
    path: PathBuf,
    /// The folder of its package, in which cargo runs it.
    folder: PathBuf,
}

/// Builds every test program and runs them all.
///
/// # Errors
/// The build or a test fails. Every program runs, also after a failure.
pub(super) fn run(place: &Place) -> Result<(), Failure> {
    let file = place.target.join(DURATIONS);
    let mut durations = read(&file);
    let mut programs = parse(&step::output(&mut place.cargo(&LIST))?);
    // A lane takes the last one. A program without a duration is new and may be the longest.
    let seconds = |program: &Program| durations.get(&program.name).copied().unwrap_or(f64::MAX);
    programs.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    let (count, queue) = (programs.len(), Mutex::new(programs));
    let report = Mutex::new(Report::default());
    let outputs = place.target.join(OUTPUTS);
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(program) = { lock(&queue).pop() } {
                    let start = Instant::now();
                    let output = outputs.join(program.name.replace(' ', "-"));
                    let run = limited::run(&mut command(&program), &output, LIMIT);
                    lock(&report).add(&program, start.elapsed(), run);
                }
            });
        }
    });
    let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    durations.extend(report.durations);
    if let Ok(text) = serde_json::to_string_pretty(&durations) {
        // The durations only order the next run.
        let _ = fs::write(&file, text);
    }
    eprintln!("{}", report.slowest);
    if report.failed.is_empty() {
        return Ok(());
    }
    eprintln!("{}", report.failures);
    Err(Failure::new(format!("of {count} test programs failed: {}", report.failed.join(", "))))
}

/// The programs, which cargo lists when they are built.
const LIST: [&str; 6] =
    ["test", "--workspace", "--no-run", "--locked", "--quiet", "--message-format=json"];

/// What the lanes found.
#[derive(Default)]
struct Report {
    durations: BTreeMap<String, f64>,
    slowest: Slowest,
    failures: Failures,
    failed: Vec<String>,
}

impl Report {
    fn add(&mut self, program: &Program, took: Duration, run: std::io::Result<Run>) {
        let name = &program.name;
        let is_good = match run {
            Ok(Run { output, end }) => {
                eprintln!("== {name}: {:.1} s", took.as_secs_f64());
                self.slowest.add(name, &output);
                // A closed output is not a failure of the tests.
                let _ = std::io::stdout().write_all(output.as_bytes());
                if let Err(text) = &end {
                    eprintln!("{name}: {text}");
                    self.failures.add(name, &output);
                }
                end.is_ok()
            }
            Err(error) => {
                eprintln!("== {name}: cannot start: {error}");
                false
            }
        };
        self.durations.insert(name.clone(), took.as_secs_f64());
        if !is_good {
            self.failed.push(name.clone());
        }
    }
}

/// The program's command. libtest reports a test's duration under an unstable flag, which this
/// variable allows on a stable toolchain.
fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.path);
    command.args(["-Zunstable-options", "--report-time"]);
    command.current_dir(&program.folder).env("RUSTC_BOOTSTRAP", "1");
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    command
}

/// Reads cargo's messages, one JSON object a line.
fn parse(messages: &str) -> Vec<Program> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| program(&message)).collect()
}

/// The program that a message announces, if it announces a test.
fn program(message: &Value) -> Option<Program> {
    if message["profile"]["test"] != Value::Bool(true) {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let id = message["package_id"].as_str()?;
    let package = id.rsplit_once('#').map_or(id, |(_, package)| package);
    let package = package.split('@').next().unwrap_or(package);
    let target = message["target"]["name"].as_str()?;
    Some(Program {
        name: format!("{package} {target}"),
        path: message["executable"].as_str()?.into(),
        folder,
    })
}

fn read(file: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A lane that panicked ends the run; the values are whole between two calls.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"path+file:///x/a#headwater-a@0.1.0","manifest_path":"/x/a/Cargo.toml","target":{"name":"crash"},"profile":{"test":true},"executable":"/t/crash-1"}
{"reason":"compiler-artifact","package_id":"path+file:///x/a#headwater-a@0.1.0","manifest_path":"/x/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":null}
not JSON
{"reason":"build-finished","success":true}
"#;
        assert_eq!(
            parse(messages),
            [Program {
                name: "headwater-a crash".into(),
                path: "/t/crash-1".into(),
                folder: "/x/a".into()
            }]
        );
    }
}
