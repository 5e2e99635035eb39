//! Runs a program in an emulated machine with the files of this one.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headwater_emulator::{Boot, EmulatedMachine, EmulatorError, FirstProcess};

/// The variables that the program sees of those that are set here.
const VARIABLES: [&str; 4] = ["CARGO_", "CI", "HEADWATER_", "RUST_"];

/// Runs a program as root in an emulated machine with cgroup v2, the files of this machine and no network. What the
/// program writes to files is lost with the machine, unless its disk is kept.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where its disk lies; kept when the program ends. Without it, in a folder that goes with it
    #[arg(long)]
    data: Option<PathBuf>,
    /// systemd is the machine's first process
    #[arg(long)]
    systemd: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("headwater-emulator: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<i32, EmulatorError> {
    let first = if args.systemd { FirstProcess::Systemd } else { FirstProcess::Agent };
    let mut machine = EmulatedMachine::start(args.data, Boot { first, network: false })?;
    let folder = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let variables = env::vars().filter(|(name, _)| {
        VARIABLES.iter().any(|beginning| name.starts_with(beginning)) || name == "PATH"
    });
    let mut script = format!("cd {} || exit 1\n", quoted(&folder.to_string_lossy()));
    for (name, value) in variables {
        script += &format!("export {name}={}\n", quoted(&value));
    }
    let words = args.program.iter().map(|word| quoted(&word.to_string_lossy()));
    script += &format!("exec {}\n", words.collect::<Vec<_>>().join(" "));
    machine.run_with(&script, |part| {
        print!("{part}");
        let _ = std::io::stdout().flush();
    })
}

/// A word of the shell. No word of a command line or variable has a zero byte.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| "''".to_owned(), |word| word.into_owned())
}
