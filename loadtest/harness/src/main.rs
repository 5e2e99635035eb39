//! The command `headwater-loadtest`: scenarios are listed, run, compared and reported.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// As the parts have it.
#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    headwater_loadtest::cli::main()
}
