//! The command line: what can be asked, and in which words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Where the asking commands look, and `up` writes, unless told otherwise.
pub(crate) const DATA_DEFAULT: &str = "headwater-data";

/// What `--help` ends with.
const AFTER_HELP: &str = "\
Begin with `headwater up MANIFESTS`; the other commands ask what runs there.
Exit status: 0 done, 1 failed, 2 wrong usage, 3 found a difference or a problem (diff, verify).";

/// Keeps the edge of a Kubernetes cluster in step with its cloud through an append-only log.
#[derive(Debug, Parser)]
#[command(
    name = "headwater",
    bin_name = "headwater",
    version,
    max_term_width = 100,
    propagate_version = true
)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process: manifests in, pods running, statuses back
    Up(Up),
    /// Display one or many objects: the cloud's picture, a node's replica, or either in the past
    Get(Get),
    /// Show details of one object, with the events that brought it here
    Describe(Describe),
    /// Print the logs of a container in a pod
    Logs(Logs),
    /// List the events of a stream, every seq
    History(History),
    /// Show what changed in a stream between two of its events (exit status 3: something did)
    Diff(Diff),
    /// Show positions and lag of every node
    Status(Status),
    /// Cut or restore the link between a node and its hub: a fault to try things with
    Link(Link),
    /// Compare state hashes: kept, recomputed, folded from the log (exit status 3: they differ)
    Verify(Verify),
    /// Print a shell completion script
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The parent of one container's process; started by the worker, not by people
    #[command(hide = true, disable_help_flag = true)]
    Shim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

/// How an asking command finds what runs.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Data directory of what runs; its unix socket answers
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", hide_env_values = true, default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Folder of Kubernetes manifests: YAML or JSON, folders in it too
    #[arg(value_name = "MANIFESTS", required_unless_present_any = ["objects", "print_config"])]
    pub(crate) manifests: Option<PathBuf>,
    /// Also take objects as JSON lines on this unix socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) objects: Option<PathBuf>,
    /// Data directory
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", hide_env_values = true, default_value = DATA_DEFAULT)]
    pub(crate) data: PathBuf,
    /// How many nodes (named node-1, node-2, ...), or their names, comma-separated
    /// [default: 2]
    #[arg(long, value_name = "N|NAME,...")]
    pub(crate) nodes: Option<String>,
    /// What runs the pods [default: process]
    #[arg(long)]
    pub(crate) runtime: Option<Runtime>,
    /// How often each node derives its pod status snapshot besides on change [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) sync_interval: Option<humantime::Duration>,
    /// Go on when every manifest is gone at once, and remove what they described
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Settings file (TOML)
    #[arg(long, value_name = "FILE", env = "HEADWATER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print each setting and where it came from, and stop
    #[arg(long)]
    pub(crate) print_config: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Runtime {
    /// Run each container's command as a process of this host; images are not used
    Process,
    /// Report pods as running without running them: for load
    Hollow,
}

/// Which objects an asking command means.
#[derive(Debug, Args)]
pub(crate) struct Scope {
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// The replica of this node instead of the cloud's picture
    #[arg(long)]
    pub(crate) node: Option<String>,
    /// Show the past: a seq of the node's stream (with --node) or an RFC 3339 time
    #[arg(long, value_name = "SEQ|TIME")]
    pub(crate) at: Option<String>,
    /// Show the values of Secrets
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// What to list: pods, nodes, configmaps, ...; several with commas; `all`; or TYPE/NAME
    #[arg(value_name = "TYPE[/NAME]")]
    pub(crate) types: String,
    /// One object's name
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub(crate) output: Output,
    /// Then print every change
    #[arg(short, long, conflicts_with = "at")]
    pub(crate) watch: bool,
    /// Leave out the header line
    #[arg(long)]
    pub(crate) no_headers: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// The object's type; or TYPE/NAME
    #[arg(value_name = "TYPE[/NAME]")]
    pub(crate) kind: String,
    /// The object's name
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The pod
    pub(crate) pod: String,
    /// The container; needed when the pod has several
    #[arg(short, long)]
    pub(crate) container: Option<String>,
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Go on as the container writes
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The container's run before this one
    #[arg(short, long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The stream: node/NAME or cluster
    pub(crate) stream: String,
    /// First seq, inclusive [default: the earliest left]
    #[arg(long, value_name = "SEQ")]
    pub(crate) from: Option<u64>,
    /// Last seq, inclusive [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
    /// Go on as events come
    #[arg(short, long, conflicts_with = "to")]
    pub(crate) follow: bool,
    /// Output form: a table, or one JSON object a line
    #[arg(short, long, default_value = "table")]
    pub(crate) output: HistoryOutput,
    /// Show the values of Secrets
    #[arg(long)]
    pub(crate) show_secrets: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistoryOutput {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The stream: node/NAME or cluster
    pub(crate) stream: String,
    /// The state after this event
    #[arg(long, value_name = "SEQ")]
    pub(crate) from: u64,
    /// against the state after this one [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
    /// Show the values of Secrets
    #[arg(long)]
    pub(crate) show_secrets: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub(crate) output: HistoryOutput,
    /// Print it again every two seconds
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Link {
    /// What to do to the link
    pub(crate) action: LinkAction,
    /// The node
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkAction {
    /// End the session and let none be made
    Cut,
    /// Let the node connect again
    Restore,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The node [default: every node]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_refused() {
        for wrong in [
            &["headwater", "get"][..],
            &["headwater", "up"],
            &["headwater", "get", "pods", "-o", "xml"],
            &["headwater", "diff", "cluster"],
            &["headwater", "link", "break", "node-1"],
            &["headwater", "history", "cluster", "--from", "x"],
        ] {
            assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
