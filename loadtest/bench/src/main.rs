//! The benchmark table: what Headwater does, as a ratio to what the machine could do at best,
//! measured in the same run and by turns.
//!
//! ```text
//!  rows/*  what is measured: ours           row     the table: numbers, names, time limits
//!  limit/* what it is measured against      child   each row is a process of its own
//!  turns   by turns, in random order        bound   what may be concluded
//!  results what is kept and printed         yardstick  what the machine can do
//! ```
//!
//! Nothing fails because a machine is slow: a run ends with 1 when something could not be
//! measured, and with 0 whatever the figures say.

mod api;
mod api_cluster;
mod bound;
mod canned;
mod child;
mod clock;
mod cluster;
mod figure;
mod gateway;
mod hub;
mod kafka;
mod limit;
mod link;
mod pod_picture;
mod pods;
mod process;
mod results;
mod row;
mod rows;
mod run;
mod samples;
mod thread_time;
mod turns;
mod waiting;
mod writer;
mod yardstick;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::kernel::load;
use tikv_jemallocator::Jemalloc;

use crate::results::{Results, Section};
use crate::row::Row;
use crate::yardstick::Yardstick;

/// As the parts have it.
#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

/// Measures rows of the benchmark table, and writes what came out beside what was there.
#[derive(Debug, Parser)]
#[command(version, name = "headwater-bench")]
struct Args {
    /// Which rows, by number or name; all of them without
    rows: Vec<String>,
    /// The long form: more pairs, more events
    #[arg(long)]
    full: bool,
    /// The order of the turns, to have it again
    #[arg(long)]
    seed: Option<u64>,
    /// The top of the clone, where `loadtest/RESULTS.md` is written
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Prints what comes out and writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Measures the one row in this process, and writes it there
    #[arg(long, hide = true)]
    alone: Option<PathBuf>,
    /// Is a bare HTTP/2 server and nothing else
    #[arg(long, hide = true)]
    serve: bool,
    /// Opens an empty database there and does nothing else
    #[arg(long, hide = true)]
    hold: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("headwater-bench: {}", failure.chain());
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.hold {
        return rows::memory::hold(folder).map(|()| ExitCode::SUCCESS);
    }
    if args.serve {
        return limit::h2::serve().map(|()| ExitCode::SUCCESS);
    }
    let wanted = row::find(&args.rows)?;
    let seed = args.seed.unwrap_or_else(|| rand::random::<u32>().into());
    if let Some(out) = &args.alone {
        let row = wanted.first().tried("no row is named")?;
        return child::measure(row, args.full, seed, out).map(|()| ExitCode::SUCCESS);
    }
    let mut results = Results::read(&args.root)?;
    let mut failed = 0;
    for row in wanted {
        let load = load();
        eprintln!("== row {}: {} (seed {seed}, load {load:.1})", row.number, row.name);
        let before = Yardstick::take();
        let mut measured = match child::start(&row, args.full, seed) {
            Ok(measured) => measured,
            Err(failure) => {
                failed += 1;
                eprintln!("row {}: {}", row.number, failure.chain());
                continue;
            }
        };
        measured.set("machine", yardstick::line(before, Yardstick::take()));
        let Row { number, name, about, .. } = row;
        let (full, measured) = (args.full, &measured);
        let section = Section { number, name, about, load, full, seed, measured };
        print!("{}", results.put(&section, &args.root));
        // After each row: what was measured stays, whatever becomes of the next.
        if !args.dry_run {
            results.write(&args.root)?;
        }
    }
    print!("\n{}", results.bounds());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
