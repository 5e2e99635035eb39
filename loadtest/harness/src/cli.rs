//! The command line: what is asked for, and the exit status that says what became of it.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | it failed, or the run was wrong |
//! | 2 | wrong usage: also a target that the scenario does not support |
//! | 3 | the run is void: its figures do not count; or `compare` found no difference to conclude from |

mod list;
mod progress;
mod summary;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use clap::{Args, Parser, Subcommand};

use crate::deployment::Deployment;
use crate::failure::{Attempt, Failure};
use crate::record::{self, Run};
use crate::run::{RunSettings, run};
use crate::scenario::{EdgeKind, Scenario, TargetKind};
use crate::series::{Point, Series};
use crate::target::Place;
use crate::{compare, report};

use self::progress::Bar;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const DOUBT: u8 = 3;

/// Why a scenario that runs on a deployment alone is not run.
const NOWHERE: &str = "it runs on a deployment alone: say with --attach where that is";

/// How fast, and at what cost, state reaches the edge and comes back.
#[derive(Debug, Parser)]
#[command(name = "headwater-loadtest", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the scenarios
    List {
        /// `table`, or `name`: one name a line
        #[arg(short, long, value_enum, default_value_t = list::Output::Table)]
        output: list::Output,
    },
    /// Run a scenario; exits 1 when the run was wrong, 3 when it is void
    Run(RunArgs),
    /// Compare two runs
    Compare {
        /// The run to compare with: RUN.json, or its folder
        before: PathBuf,
        /// The run that is compared
        after: PathBuf,
    },
    /// Show the record of a run once more, and write its report anew
    Report {
        /// RUN.json, or its folder
        run: PathBuf,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Its name, as `list` shows it; or a file that ends with .toml
    scenario: String,
    /// What it runs on [default: the first that the scenario supports]
    #[arg(long, value_enum)]
    target: Option<TargetKind>,
    /// Run on a deployment that is there: objects=SOCKET, operator=SOCKET, metrics=HOST:PORT of its
    /// controller, hub=HOST:PORT, kafka=BROKERS; give all of them
    #[arg(long = "attach", value_name = "KEY=VALUE", value_parser = key_value, conflicts_with = "target")]
    attach: Vec<(String, String)>,
    /// For how long load is measured
    #[arg(long, value_name = "DURATION")]
    duration: Option<humantime::Duration>,
    /// How many edges
    #[arg(long, value_name = "N")]
    edges: Option<usize>,
    /// What they are
    #[arg(long, value_enum)]
    edge_kind: Option<EdgeKind>,
    /// Changes a second, over all edges
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// From which the schedule is made [default: another one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Set a key of the scenario: `objects.pods_per_edge=10`
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    sets: Vec<(String, String)>,
    /// Where the record goes, a folder that is empty or not there yet
    /// [default: loadtest-runs/SCENARIO-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Reads the command line, does what it says, and gives the exit status.
pub fn main() -> ExitCode {
    main_of(std::env::args_os())
}

fn main_of(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let status = if error.use_stderr() { USAGE } else { 0 };
            // The output is closed; no other place can show the error.
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let done = match cli.command {
        Command::List { output } => {
            print!("{}", list::list(output));
            Ok(0)
        }
        Command::Run(args) => start(args),
        Command::Compare { before, after } => compared(&before, &after),
        Command::Report { run } => reported(&run),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(Wrong { status, failure }) => {
            eprintln!("headwater-loadtest: {}", failure.chain());
            ExitCode::from(status)
        }
    }
}

/// What went wrong, and the status that says so.
struct Wrong {
    status: u8,
    failure: Failure,
}

impl Wrong {
    fn of(failure: Failure) -> Self {
        Self { status: FAILED, failure }
    }

    fn usage(failure: Failure) -> Self {
        Self { status: USAGE, failure }
    }
}

fn start(args: RunArgs) -> Result<u8, Wrong> {
    let sets = args.sets();
    let scenario = Scenario::load(&args.scenario, &sets).map_err(Wrong::usage)?;
    let seed = args.seed.unwrap_or_else(rand::random);
    let deployment = args.deployment().map_err(Wrong::usage)?;
    let target = if deployment.is_some() { Some(TargetKind::Attached) } else { args.target };
    let place = match (scenario.target(target).map_err(Wrong::usage)?, deployment) {
        (TargetKind::Embedded, _) => Place::Embedded,
        (TargetKind::Cluster, _) => Place::Cluster,
        (TargetKind::Attached, Some(deployment)) => Place::Attached(deployment),
        (TargetKind::Attached, None) => return Err(Wrong::usage(Failure::of(NOWHERE))),
    };
    let settings = |scenario, out| {
        let place = place.clone();
        RunSettings { scenario, place, seed, out, tamper: None }
    };
    let out = args.out.clone().unwrap_or_else(|| {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        PathBuf::from("loadtest-runs").join(format!("{}-{}", scenario.name, time.replace(':', "")))
    });
    check_is_free(&out).map_err(Wrong::usage)?;
    eprintln!("again: --seed {seed}");
    match &scenario.series {
        None => one(settings(scenario, out)).map(|(_, status)| status),
        Some(values) => {
            let load = |value: f64| {
                // What is set last wins.
                let key = (values.key.clone(), value.to_string());
                let sets = sets.iter().cloned().chain([key]).collect::<Vec<_>>();
                Scenario::load(&args.scenario, &sets).map_err(Wrong::usage)
            };
            // Before the first run: a value in the middle may be wrong.
            let runs = values.values.iter().map(|value| Ok((*value, load(*value)?)));
            let runs = runs.collect::<Result<Vec<_>, Wrong>>()?;
            let mut series = Series::new(&values.key);
            let mut worst = 0;
            for (value, scenario) in runs {
                let folder = out.join(format!("{}-{value}", values.key));
                let (run, status) = one(settings(scenario, folder))?;
                series.push(Point::of(value, &run));
                series.write(&out).map_err(Wrong::of)?;
                // A wrong one outweighs a void one.
                worst = if [worst, status].contains(&FAILED) { FAILED } else { worst.max(status) };
            }
            print!("{}", summary::series(&series));
            Ok(worst)
        }
    }
}

/// Checks that a record in `out` replaces nothing: a run takes minutes to hours, and its record is all
/// that remains of it.
fn check_is_free(out: &Path) -> Result<(), Failure> {
    let is_empty = match out.read_dir() {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(error).tried(&format!("{} cannot be used", out.display())),
    };
    if is_empty {
        return Ok(());
    }
    Err(Failure::of(format!(
        "{} is not empty, and a run never replaces a record: name another folder with --out",
        out.display()
    )))
}

/// One run, its record and its report; gives the status that it deserves.
fn one(settings: RunSettings) -> Result<(Run, u8), Wrong> {
    let out = settings.out.clone();
    let bar = Arc::new(Bar::new());
    let record = run(settings, bar.clone());
    bar.end();
    let record = record.map_err(Wrong::of)?;
    let status = told(&record);
    let report = report::write(&record, &out).map_err(Wrong::of)?;
    eprintln!("record: {}", out.join(record::FILE).display());
    eprintln!("report: {}", report.display());
    Ok((record, status))
}

/// Prints what a record says, and gives the status that it deserves.
fn told(record: &Run) -> u8 {
    print!("{}", summary::summary(record));
    match (record.correctness.right, &record.void) {
        (false, _) => FAILED,
        (true, Some(_)) => DOUBT,
        (true, None) => 0,
    }
}

fn reported(path: &Path) -> Result<u8, Wrong> {
    let run = Run::read(path).map_err(Wrong::of)?;
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let report = report::write(&run, folder).map_err(Wrong::of)?;
    let status = told(&run);
    eprintln!("report: {}", report.display());
    Ok(status)
}

fn compared(before: &Path, after: &Path) -> Result<u8, Wrong> {
    let (before, after) =
        (Run::read(before).map_err(Wrong::of)?, Run::read(after).map_err(Wrong::of)?);
    let compared = compare::compare(&before, &after);
    print!("{}", summary::comparison(&compared));
    Ok(if compared.refusals.is_empty() { 0 } else { DOUBT })
}

impl RunArgs {
    /// What is attached to, if anything.
    fn deployment(&self) -> Result<Option<Deployment>, Failure> {
        (!self.attach.is_empty()).then(|| Deployment::of(&self.attach)).transpose()
    }

    /// What the flags set, in the scenario's own keys; what is set by key comes last and wins.
    fn sets(&self) -> Vec<(String, String)> {
        // A deployment has its own real ones.
        let brought = (!self.attach.is_empty()).then_some(EdgeKind::Light);
        let edge_kind = self.edge_kind.or(brought).map(|kind| kind.to_string());
        let flags = [
            ("duration", self.duration.map(|duration| duration.to_string())),
            ("edges.count", self.edges.map(|count| count.to_string())),
            ("edges.kind", edge_kind),
            ("load.rate", self.rate.map(|rate| format!("{rate:?}"))),
        ];
        let flags = flags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        flags.chain(self.sets.iter().cloned()).collect()
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("want KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const ATTACHED: [&str; 10] = [
        "--attach",
        "objects=/no/such",
        "--attach",
        "operator=/no/such",
        "--attach",
        "metrics=127.0.0.1:1",
        "--attach",
        "hub=127.0.0.1:1",
        "--attach",
        "kafka=127.0.0.1:1",
    ];

    fn status(args: &[&str]) -> ExitCode {
        main_of([&["headwater-loadtest"], args].concat())
    }

    #[test]
    fn wrong_use_exits_2() {
        Cli::command().debug_assert();
        for args in [
            &[][..],
            &["flood"],
            &["run"],
            &["run", "flood"],
            &["run", "propagation", "--set", "edges"],
            &["run", "propagation", "--rate", "-1"],
            &["run", "propagation", "--set", "load.rate=\"much\""],
            &["run", "propagation", "--target", "moon"],
            &["run", "propagation", "--target", "embedded", "--edge-kind", "light"],
            &["run", "storm", "--target", "embedded"],
            &["run", "propagation", "--attach", "moon=1"],
            &["run", "propagation", "--attach", "hub=127.0.0.1:1", "--target", "cluster"],
            &[&["run", "storm"][..], &ATTACHED].concat(),
            &[&["run", "propagation", "--edge-kind", "real"][..], &ATTACHED].concat(),
            &["compare", "one.json"],
        ] {
            assert_eq!(status(args), ExitCode::from(USAGE), "{args:?}");
        }
        assert_eq!(status(&["report", "/no/such"]), ExitCode::from(FAILED));
        assert_eq!(status(&["list", "-o", "name"]), ExitCode::from(0));
        assert_eq!(status(&["--help"]), ExitCode::from(0));
    }

    #[test]
    fn a_run_replaces_no_record() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path().join("run");
        check_is_free(&out).expect("it is not there yet");
        std::fs::create_dir(&out).expect("created");
        check_is_free(&out).expect("it is empty");
        let record = out.join(record::FILE);
        std::fs::write(&record, "{}").expect("written");
        let text = out.to_str().expect("UTF-8");
        let status = status(&["run", "propagation", "--duration", "1s", "--out", text]);
        assert_eq!(status, ExitCode::from(USAGE));
        assert_eq!(std::fs::read_to_string(&record).expect("there"), "{}");
        let refused = check_is_free(&out).expect_err("it has a record");
        assert!(refused.to_string().contains("--out"), "{refused}");
    }

    #[test]
    fn flags_are_keys_of_the_scenario() {
        let args = ["x", "run", "p", "--duration", "90s", "--edges", "3", "--rate", "50"];
        let more = ["--edge-kind", "light", "--set", "load.rate=60.0"];
        let cli = Cli::try_parse_from(args.into_iter().chain(more)).expect("well-formed");
        let Command::Run(args) = cli.command else { panic!("a run") };
        let sets = args.sets();
        let said: Vec<String> = sets.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let wanted = [
            "duration=1m 30s",
            "edges.count=3",
            "edges.kind=light",
            "load.rate=50.0",
            "load.rate=60.0",
        ];
        assert_eq!(said, wanted);
    }
}
