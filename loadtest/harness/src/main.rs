//! The command `headwater-loadtest`: scenarios are listed, run, compared and reported.

use std::process::ExitCode;

fn main() -> ExitCode {
    headwater_loadtest::cli::main()
}
