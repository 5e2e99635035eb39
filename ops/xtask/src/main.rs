//! Development commands, as `cargo xtask COMMAND`.
//!
//! Depends on the standard library and parsers of TOML and JSON alone: it is built first in an empty clone, on
//! a machine that may lack what the rest needs to build.

mod bench;
mod check;
mod claim;
mod demo;
mod deny;
mod dist;
mod first_build;
mod fuzz;
mod loadtest;
mod long_form;
mod machine;
mod place;
mod shear;
mod step;
mod suite;
mod survive;
mod tidy;
mod tool;

use std::process::ExitCode;

use crate::place::{Place, Profile};
use crate::step::Failure;

const USAGE: &str = "\
cargo xtask COMMAND

  up [MANIFESTS] [ARGS]   build, then `headwater up` on MANIFESTS (default: ops/demo)
  test [ARGS]             build and run every test; ARGS go to `cargo test`
  check                   what CI checks: format, tidy, licences, lints, docs, tests
  fix                     format, and apply what the lints can mend by themselves
  tidy                    the rules of the source tree, without building anything
  kafka [ARGS]            run a Kafka on loopback to develop against; for ARGS see `--help`
  cluster [ARGS]          run a Kubernetes control plane on loopback to develop against;
                          for ARGS see `--help`
  cri [ARGS]              run a containerd to develop against, apart from the machine's; needs
                          root; for ARGS see `--help`
  fuzz [TARGET...] [--seconds N] [--keep]
                          run fuzz targets, guided by coverage, 60 s each
  survive [crash|power|kafka|containers|sim|conformance...] [--rounds N] [--seed N]
                          kills, power cuts and simulated runs, for as long as is asked
  loadtest [SCENARIO] [ARGS]
                          run a load-test scenario; alone, list them; or ask it otherwise
  bench [ROW...] [--full] [--seed N]
                          measure the benchmark table into loadtest/RESULTS.md
  dist [DIR]              build what a machine gets, and pack it with settings and units
  path                    print the folder that holds the built `headwater`
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match run(&command, &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.exit_status())
        }
    }
}

fn run(command: &str, args: &[String]) -> Result<(), Failure> {
    let place = Place::find()?;
    match command {
        "up" => demo::up(&place, args),
        "test" => suite::test(&place, args),
        "check" => check::check(&place),
        "fix" => check::fix(&place),
        "tidy" => tidy::tidy(&place),
        "kafka" => demo::kafka(&place, args),
        "cluster" => demo::cluster(&place, args),
        "cri" => demo::cri(&place, args),
        "fuzz" => fuzz::fuzz(&place, args),
        "loadtest" => loadtest::loadtest(&place, args),
        "dist" => dist::dist(&place, args),
        "bench" => bench::bench(&place, args),
        "survive" => survive::survive(&place, args),
        "path" => {
            println!("{}", place.binaries(Profile::Dev).display());
            Ok(())
        }
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        "" => Err(Failure::usage(USAGE)),
        other => Err(Failure::usage(format!("no command {other:?}\n\n{USAGE}"))),
    }
}
