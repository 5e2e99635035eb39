//! What a container does: as a command for a shell, and back.

use std::time::Duration;

/// The words before a life's script.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// The file by which a container says that its signals are set up.
const READY: &str = "/tmp/ready";

/// The file for which a container waits before it takes memory.
const GREED: &str = "/tmp/greed";

/// What a container does until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Runs until it is asked to end.
    Forever,
    /// Runs until it is killed.
    Stubborn,
    /// Ends by itself.
    Exit {
        /// Its exit code.
        code: i32,
        /// The time until then, in tenths of a second.
        tenths: u32,
    },
    /// Waits for [`Life::greed`], then takes memory until the kernel kills it.
    Greedy,
    /// Its program is missing.
    Missing,
}

impl Life {
    /// The command with which containerd makes a container live so, from an image with a shell.
    pub fn command(self) -> Vec<String> {
        let script = match self {
            Self::Forever => format!("trap 'exit 143' TERM; : > {READY}; sleep 100000 & wait"),
            Self::Stubborn => format!("trap '' TERM; : > {READY}; while :; do sleep 1; done"),
            Self::Exit { code, tenths } => {
                format!("sleep {}.{}; exit {code}", tenths / 10, tenths % 10)
            }
            Self::Greedy => {
                format!("until test -e {GREED}; do sleep 0.1; done; exec tail /dev/zero")
            }
            Self::Missing => return vec!["/no/such/program".to_owned()],
        };
        let shell = SHELL.iter().map(ToString::to_string);
        shell.chain([script]).collect()
    }

    /// A command that succeeds once a container that runs until it is asked to end, or killed, has set
    /// up its signals. Before that a signal may be lost, or end it.
    pub fn probe() -> Vec<String> {
        ["/bin/test", "-e", READY].map(str::to_owned).to_vec()
    }

    /// The command in a greedy container that lets it take memory. A runtime looks for a lack of memory
    /// only once the start has ended.
    pub fn greed() -> Vec<String> {
        let script = format!(": > {GREED}");
        SHELL.iter().map(ToString::to_string).chain([script]).collect()
    }

    /// The life of a command; one that is no life runs forever.
    pub(crate) fn of(command: &[String]) -> Self {
        if let Some(Self::Exit { code, tenths }) = exit(command) {
            return Self::Exit { code, tenths };
        }
        let lives = [Self::Stubborn, Self::Greedy, Self::Missing];
        lives.into_iter().find(|life| life.command() == command).unwrap_or(Self::Forever)
    }

    /// The time until it ends by itself, and how.
    pub(crate) fn own_end(self) -> Option<(Duration, i32)> {
        match self {
            Self::Exit { code, tenths } => {
                Some((Duration::from_millis(u64::from(tenths) * 100), code))
            }
            Self::Forever | Self::Stubborn | Self::Greedy | Self::Missing => None,
        }
    }
}

fn exit(command: &[String]) -> Option<Life> {
    let script = command.get(2)?.strip_prefix("sleep ")?;
    let (time, code) = script.split_once("; exit ")?;
    let (seconds, tenths) = time.split_once('.')?;
    let tenths = seconds.parse::<u32>().ok()? * 10 + tenths.parse::<u32>().ok()?;
    Some(Life::Exit { code: code.parse().ok()?, tenths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_read_from_its_command() {
        let exit = Life::Exit { code: 3, tenths: 12 };
        for life in [Life::Forever, Life::Stubborn, exit, Life::Greedy, Life::Missing] {
            assert_eq!(Life::of(&life.command()), life);
        }
        assert_eq!(Life::of(&["nginx".to_owned()]), Life::Forever);
    }
}
