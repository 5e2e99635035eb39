//! The shim alone: a small parent for containers, for whoever does not want the whole binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    headwater_edged::shim::run(std::env::args().skip(1))
}
