//! The end of a container: the signal that asks for it, and the message that the container leaves.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;

use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::environment::stays_inside;

/// Kubernetes' `terminationMessagePath`, below the container's root.
const MESSAGE_PATH_DEFAULT: &str = "dev/termination-log";

/// Names that Kubernetes accepts beside those of [`Signal`].
const ALIASES: [(&str, Signal); 3] =
    [("SIGCLD", Signal::SIGCHLD), ("SIGIOT", Signal::SIGABRT), ("SIGPOLL", Signal::SIGIO)];

/// The signal that asks a container to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StopSignal(Signal);

/// The text names no signal that asks a container to end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopSignal {0:?} is no signal that can be sent: use a name such as SIGTERM or SIGUSR1")]
pub struct InvalidStopSignal(String);

/// Where a container leaves its termination message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationMessage {
    /// A file, below the container's root.
    pub path: PathBuf,
    /// When the container fails and the file is empty, the end of its log is the message.
    pub falls_back_to_logs: bool,
}

impl StopSignal {
    /// The container's signal: `lifecycle.stopSignal`, else SIGTERM.
    ///
    /// # Errors
    /// No signal has this name. A real-time signal counts as none.
    pub fn of(container: &Container) -> Result<Self, InvalidStopSignal> {
        let name = container.lifecycle.as_ref().and_then(|hooks| hooks.stop_signal.clone());
        name.map_or_else(|| Ok(Self::default()), Self::try_from)
    }

    /// The signal.
    pub fn signal(self) -> Signal {
        self.0
    }

    /// Its number.
    pub fn number(self) -> i32 {
        self.0 as i32
    }
}

impl Default for StopSignal {
    fn default() -> Self {
        Self(Signal::SIGTERM)
    }
}

impl TryFrom<String> for StopSignal {
    type Error = InvalidStopSignal;

    fn try_from(name: String) -> Result<Self, InvalidStopSignal> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, signal)| *signal);
        let signal = alias.or_else(|| Signal::from_str(&name).ok());
        signal.map(Self).ok_or(InvalidStopSignal(name))
    }
}

impl From<StopSignal> for String {
    fn from(signal: StopSignal) -> Self {
        signal.to_string()
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl TerminationMessage {
    /// The container's place for its message.
    ///
    /// # Errors
    /// The path leaves the container's root, or the policy is unknown.
    pub(crate) fn of(container: &Container) -> Result<Self, String> {
        let path = container.termination_message_path.as_deref().unwrap_or_default();
        let path = Some(path).filter(|path| !path.is_empty()).unwrap_or(MESSAGE_PATH_DEFAULT);
        let below = path.trim_matches('/');
        if below.is_empty() || !stays_inside(path) {
            return Err(format!("terminationMessagePath {path:?} names no file in the container"));
        }
        let falls_back_to_logs = match container.termination_message_policy.as_deref() {
            None | Some("" | "File") => false,
            Some("FallbackToLogsOnError") => true,
            Some(policy) => {
                return Err(format!(
                    "terminationMessagePolicy {policy:?} is unknown: use File or \
                     FallbackToLogsOnError"
                ));
            }
        };
        Ok(Self { path: PathBuf::from(below), falls_back_to_logs })
    }
}

impl Default for TerminationMessage {
    fn default() -> Self {
        Self { path: MESSAGE_PATH_DEFAULT.into(), falls_back_to_logs: false }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Lifecycle;

    use super::*;

    fn signal(name: &str) -> Result<i32, InvalidStopSignal> {
        let lifecycle = Lifecycle { stop_signal: Some(name.to_owned()), ..Lifecycle::default() };
        let container = Container { lifecycle: Some(lifecycle), ..Container::default() };
        StopSignal::of(&container).map(StopSignal::number)
    }

    #[test]
    fn a_stop_signal_has_a_name_of_kubernetes() {
        for (name, number) in [("SIGTERM", 15), ("SIGUSR1", 10), ("SIGQUIT", 3), ("SIGIOT", 6)] {
            assert_eq!(signal(name), Ok(number));
        }
        for name in ["", "TERM", "sigterm", "15", "SIGNONE", "SIGRTMIN+3"] {
            signal(name).expect_err(name);
        }
        assert_eq!(StopSignal::of(&Container::default()), Ok(StopSignal::default()));
    }

    #[test]
    fn a_termination_message_lies_below_the_root_of_its_container() {
        let of = |path: Option<&str>, policy: Option<&str>| {
            let container = Container {
                termination_message_path: path.map(str::to_owned),
                termination_message_policy: policy.map(str::to_owned),
                ..Container::default()
            };
            TerminationMessage::of(&container)
        };
        assert_eq!(of(None, None), Ok(TerminationMessage::default()));
        let message = of(Some("/var/log/end"), Some("FallbackToLogsOnError")).expect("valid");
        assert_eq!((message.path, message.falls_back_to_logs), ("var/log/end".into(), true));
        for path in ["/", "/../end", "a/../../end", "a\0b"] {
            of(Some(path), Some("File")).expect_err(path);
        }
        of(None, Some("Always")).expect_err("no such policy");
    }
}
