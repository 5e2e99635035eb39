//! Shell completion: the scripts, by which a shell calls this program at each Tab.

use std::io;

use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::args::{Cli, Shell};

/// The variable that the scripts set for a completion.
const VARIABLE: &str = "COMPLETE";

/// Answers a completion of a shell and exits. Does nothing for other calls.
pub fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Returns the completion script of `shell`.
///
/// # Errors
/// Never: it writes into memory.
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
            let script = script(shell).expect("a write into memory succeeds");
            let script = String::from_utf8(script).expect("UTF-8");
            assert!(script.contains(VARIABLE) && script.contains("headwater"), "{script}");
        }
    }
}
