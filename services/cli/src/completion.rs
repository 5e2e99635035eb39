//! Shell completion: the scripts, by which a shell calls this program at each Tab.

use std::io;

use clap::{Arg, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::args::{Cli, Shell};
use crate::candidates::completed_word;

/// The variable that the scripts set for a completion.
const VARIABLE: &str = "COMPLETE";

/// Answers a completion of a shell and exits. Does nothing for other calls.
pub fn answer() {
    let command = || without_flags_among_names(Cli::command(), &completed_word());
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Hides the flags from the completion of an empty word: there are many, and a few names among them
/// would be lost. A hidden flag is offered where nothing else is.
fn without_flags_among_names(mut command: Command, word: &str) -> Command {
    if !word.is_empty() {
        return command;
    }
    // This adds --help and --version, which are flags too.
    command.build();
    hide_flags(command)
}

fn hide_flags(command: Command) -> Command {
    let hide = |arg: Arg| if arg.is_positional() { arg } else { arg.hide(true) };
    command.mut_args(hide).mut_subcommands(hide_flags)
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
    use std::ffi::OsString;

    use clap_complete::engine::complete;

    use super::*;

    /// What is offered behind `headwater` and these words.
    fn offered(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> =
            ["headwater"].iter().chain(words).map(|word| OsString::from(*word)).collect();
        let last = words.last().map(|word| word.to_string_lossy().into_owned());
        let mut command = without_flags_among_names(Cli::command(), &last.unwrap_or_default());
        let index = words.len() - 1;
        let offered = complete(&mut command, words, index, None).expect("a completion");
        offered.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn no_flag_is_offered_where_a_name_is_typed() {
        for words in [&[""][..], &["get", ""], &["link", ""], &["completion", ""]] {
            let offered = offered(words);
            assert!(!offered.is_empty(), "{words:?}");
            assert!(!offered.iter().any(|one| one.starts_with('-')), "{words:?}: {offered:?}");
        }
        assert!(offered(&["get", "--n"]).contains(&"--namespace".to_owned()));
        assert!(offered(&["get", "-"]).len() > 5, "flags are offered behind a dash");
    }

    #[test]
    fn the_values_of_a_flag_are_offered() {
        for (words, expected) in [
            (&["get", "pods", "-o", "cus"][..], &["custom-columns="][..]),
            (&["get", "pods", "-o", "j"], &["json", "jsonpath="]),
            (&["history", "cluster", "-o", "w"], &["wide"]),
            (&["status", "--sort", "l"], &["lag"]),
        ] {
            assert_eq!(offered(words), expected, "{words:?}");
        }
    }

    #[test]
    fn every_shell_has_a_script_that_asks_this_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).expect("a write into memory succeeds");
            let script = String::from_utf8(script).expect("UTF-8");
            assert!(script.contains(VARIABLE) && script.contains("headwater"), "{script}");
        }
    }
}
