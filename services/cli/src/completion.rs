//! Shell completion: the scripts, by which a shell asks this program at each Tab.

use std::io;

use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::args::{Cli, Shell};

/// What the scripts set when they ask.
const VARIABLE: &str = "COMPLETE";

/// Answers a shell that asks, and ends then. Does nothing where a person called.
pub fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// What makes `shell` ask this program.
///
/// # Errors
/// None: it is written into memory.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let shell: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "headwater", "headwater", "headwater", &mut script)?;
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script_that_asks_this_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).expect("memory takes it");
            let script = String::from_utf8(script).expect("UTF-8");
            assert!(script.contains(VARIABLE) && script.contains("headwater"), "{script}");
        }
    }
}
