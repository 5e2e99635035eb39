//! Child processes: each runs this test binary with one ignored test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTORY: &str = "HEADWATER_ROCKS_TEST_DIRECTORY";

/// A command that runs the test `name` of this binary, working in `directory`.
pub(crate) fn command(name: &str, directory: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("this binary"));
    arguments(&mut command, name, directory);
    command
}

/// As [`command`], started through `wrapper` and its arguments.
pub(crate) fn command_under(wrapper: &[&str], name: &str, directory: &Path) -> Command {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(env::current_exe().expect("this binary"));
    arguments(&mut command, name, directory);
    command
}

fn arguments(command: &mut Command, name: &str, directory: &Path) {
    command
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory);
}

/// The directory from the parent; `None` when a person runs the ignored test.
pub(crate) fn directory() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}
