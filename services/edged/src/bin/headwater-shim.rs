//! The shim as a program of its own, for use without the whole `headwater` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    headwater_edged::shim::run(std::env::args().skip(1))
}
