//! The space for the arguments and the environment of a process, by the rule of Linux.

/// The longest argument or variable, with its final zero: Linux's `MAX_ARG_STRLEN`, 32 pages. A
/// variable is `NAME=value`.
pub(super) const TEXT_BYTES_MAX: usize = 128 << 10;

/// All arguments and variables together: Linux gives them a quarter of the stack (`fs/exec.c`,
/// `bprm_stack_limits`), whose limit is 8 MiB by default.
const SPACE_BYTES: usize = (8 << 20) / 4;

/// The path of the program lies in the same space, at most `PATH_MAX` long.
const PROGRAM_BYTES: usize = 4 << 10;

/// Each text also takes a pointer.
const POINTER_BYTES: usize = size_of::<usize>();

/// Bytes of all definitions, also of those that a later definition of the same variable replaces:
/// room for replacing every variable a few times, and a bound for the work.
const DEFINED_BYTES_MAX: usize = 8 * SPACE_BYTES;

/// The space that is left.
#[derive(Debug)]
pub(super) struct ArgumentSpace {
    left: usize,
    defined: usize,
}

impl ArgumentSpace {
    pub(super) fn new() -> Self {
        Self { left: SPACE_BYTES - PROGRAM_BYTES, defined: 0 }
    }

    /// Takes the space of a text of so many bytes.
    ///
    /// # Errors
    /// A process cannot receive the text, or not together with the texts before.
    pub(super) fn take(&mut self, text_bytes: usize) -> Result<(), String> {
        if text_bytes >= TEXT_BYTES_MAX {
            return Err(too_long(TEXT_BYTES_MAX));
        }
        match self.left.checked_sub(taken(text_bytes)) {
            Some(left) => self.left = left,
            None => {
                return Err(format!(
                    "arguments and environment together take more than {SPACE_BYTES} bytes, which \
                     no process can receive: give the container fewer or a volume"
                ));
            }
        }
        Ok(())
    }

    /// Gives back the space of a text that is replaced.
    pub(super) fn give_back(&mut self, text_bytes: usize) {
        self.left += taken(text_bytes);
    }

    /// Counts a definition, before its value is made.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn define(&mut self, bytes: usize) -> Result<(), String> {
        self.defined = self.defined.saturating_add(taken(bytes));
        if self.defined > DEFINED_BYTES_MAX {
            return Err(format!(
                "its variables are defined and replaced with more than {DEFINED_BYTES_MAX} bytes: \
                 give the container fewer"
            ));
        }
        Ok(())
    }
}

/// Why a text is refused that would have `bytes_max` bytes or more.
pub(super) fn too_long(bytes_max: usize) -> String {
    format!("it expands to {bytes_max} bytes or more, which no process can receive")
}

fn taken(text_bytes: usize) -> usize {
    text_bytes + 1 + POINTER_BYTES
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    /// Whether Linux starts a process with so many variables of this length.
    fn starts(variables: usize, bytes: usize) -> bool {
        let mut command = Command::new("/bin/true");
        command.env_clear();
        for number in 0..variables {
            let name = format!("V{number:07}");
            command.env(&name, "x".repeat(bytes - name.len() - 1));
        }
        command.status().is_ok_and(|status| status.success())
    }

    #[test]
    fn what_fits_into_the_space_is_what_linux_takes() {
        // Children have the default limit, whatever this process was started with. The threads of
        // this process have stacks of their own.
        let (_, hard) = getrlimit(Resource::RLIMIT_STACK).expect("there is a limit");
        setrlimit(Resource::RLIMIT_STACK, 8 << 20, hard).expect("a lower limit can be set");
        for bytes in [16, 1000, TEXT_BYTES_MAX - 1] {
            let mut space = ArgumentSpace::new();
            // The program's own name is an argument.
            space.take("/bin/true".len()).expect("it fits");
            let mut fitting = 0;
            while space.take(bytes).is_ok() {
                fitting += 1;
            }
            assert!(starts(fitting, bytes), "{fitting} variables of {bytes} bytes");
            // The reserve for the program's path, and one more.
            let beyond = fitting + PROGRAM_BYTES / taken(bytes) + 2;
            assert!(!starts(beyond, bytes), "{beyond} variables of {bytes} bytes");
        }
        assert!(ArgumentSpace::new().take(TEXT_BYTES_MAX).is_err());
        assert!(!starts(1, TEXT_BYTES_MAX));
    }

    #[test]
    fn replaced_definitions_are_bounded_too() {
        let mut space = ArgumentSpace::new();
        let mut definitions = 0_usize;
        while space.define(1 << 20).is_ok() {
            definitions += 1;
        }
        assert_eq!(definitions, (DEFINED_BYTES_MAX >> 20) - 1);
    }
}
