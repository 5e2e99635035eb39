//! The arguments of every command, as clap parses them.

pub mod ca;
pub mod edge;
pub mod kafka;
pub mod part;
pub mod run;
pub mod tls;
pub mod topics;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use headwater_settings::{DATA_DEFAULT, Runtime};

use self::kafka::KafkaArgs;
use self::run::RunArgs;
use self::topics::Topics;
use crate::candidates;

/// What `--help` ends with.
const AFTER_HELP: &str = "\
Begin with `headwater up MANIFESTS`; the other commands ask the running process.
Exit status: 0 done, 1 failed, 2 wrong usage, 3 found a difference or a problem (diff, verify,
topics check, doctor).";

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
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything in one process: manifests in, pods running, statuses back
    Up(Up),
    /// Run the controller alone: from manifests to the log on Kafka, and from reports back
    Controller(part::Controller),
    /// Run a hub alone: from the log on Kafka to edges. Several may run at a time
    Hub(part::Hub),
    /// Run the edge of one node: in step with a hub, and its pods running, hub or not
    Edge(edge::Edge),
    /// Run the pods of one node by what its edge says, for an edge with --no-edged
    Edged(edge::Edged),
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
    /// Show the fleet, and the positions of every node
    Status(Status),
    /// Cut or restore the link between a node and its hub: a fault to try things with
    Link(Link),
    /// Compare state hashes: kept, recomputed, folded from the log (exit status 3: they differ)
    Verify(Verify),
    /// Create, check or describe the topics of a log on Kafka (exit status 3: they would lose data)
    Topics(Topics),
    /// Check disk, clock, limits, sockets and versions, and say what to do (exit status 3: a
    /// problem)
    Doctor(Doctor),
    /// Make a CA, and certificates for nodes, hubs and operators
    Ca(ca::Ca),
    /// Print what makes a shell complete commands, types and names
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// The shells that complete `headwater`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// For ~/.bashrc: source <(headwater completion bash)
    Bash,
    /// For ~/.zshrc: source <(headwater completion zsh)
    Zsh,
    /// For ~/.config/fish/config.fish: headwater completion fish | source
    Fish,
}

/// The running process that a command asks.
#[derive(Debug, Args)]
pub struct Target {
    /// Data directory of the running process; the command connects to its unix socket
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", hide_env_values = true, default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

#[derive(Debug, Args)]
pub struct Up {
    /// Folder of Kubernetes manifests: YAML or JSON, folders in it too
    #[arg(value_name = "MANIFESTS", required_unless_present_any = ["objects", "print_config"])]
    pub manifests: Option<PathBuf>,
    /// Also take objects as JSON lines on this unix socket
    #[arg(long, value_name = "SOCKET")]
    pub objects: Option<PathBuf>,
    /// Data directory
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", hide_env_values = true, default_value = DATA_DEFAULT)]
    pub data: PathBuf,
    /// How many nodes (named node-1, node-2, ...), or their names, comma-separated
    /// [default: 2]
    #[arg(long, value_name = "N|NAME,...")]
    pub nodes: Option<String>,
    // Instead of the log in the data directory; topics are made where they are missing.
    #[command(flatten)]
    pub kafka: KafkaArgs,
    /// What runs the pods [default: process]
    #[arg(long)]
    pub runtime: Option<Runtime>,
    /// How often each node derives its pod status snapshot besides on change [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub sync_interval: Option<humantime::Duration>,
    /// Go on when every manifest is gone at once, and remove what they described
    #[arg(long)]
    pub allow_empty: bool,
    #[command(flatten)]
    pub running: RunArgs,
}

/// The objects that a command selects.
#[derive(Debug, Args)]
pub struct Scope {
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// The replica of this node instead of the cloud's picture
    #[arg(long, add = ArgValueCompleter::new(candidates::nodes))]
    pub node: Option<String>,
    /// Show the past: a seq of the node's stream (with --node), which has no statuses, or an
    /// RFC 3339 time. It reaches back as far as the replay window (`up --print-config`); what
    /// the log can no longer show is refused with the earliest position that it can
    #[arg(long, value_name = "SEQ|TIME")]
    pub at: Option<String>,
    /// Show the values of Secrets
    #[arg(long)]
    pub show_secrets: bool,
    /// Only objects with these labels: a=b, a!=b, `a in (b,c)`, `a notin (b)`, a, !a
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
}

#[derive(Debug, Args)]
pub struct Get {
    /// What to list: pods, nodes, configmaps, ...; several with commas; `all`. Then names, if
    /// not all of them are meant; or TYPE/NAME, once or more
    #[arg(
        value_name = "TYPE [NAME...] | TYPE/NAME",
        required = true,
        add = ArgValueCompleter::new(candidates::objects)
    )]
    pub objects: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
    /// Only objects with these values: .spec.nodeName=node-1, .status.phase!=Running
    #[arg(long, value_name = "PATH=VALUE,...")]
    pub field_selector: Option<String>,
    /// Sort by the value at a path: .metadata.creationTimestamp
    #[arg(long, value_name = "PATH")]
    pub sort_by: Option<String>,
    /// Output form: table, wide, json, yaml or name
    #[arg(short, long, default_value = "table", value_parser = output)]
    pub output: Output,
    /// Then print every change
    #[arg(short, long, conflicts_with_all = ["at", "sort_by"])]
    pub watch: bool,
    /// Leave out the header line
    #[arg(long)]
    pub no_headers: bool,
    /// Add the labels as the last column
    #[arg(long)]
    pub show_labels: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// Parses an output form. For a form that only kubectl has, the error names the replacement.
fn output(text: &str) -> Result<Output, String> {
    const FORMS: &str = "table, wide, json, yaml and name";
    const OF_KUBECTL: [&str; 6] =
        ["jsonpath", "jsonpath-as-json", "go-template", "template", "custom-columns", "kyaml"];
    Ok(match text {
        "table" => Output::Table,
        "wide" => Output::Wide,
        "json" => Output::Json,
        "yaml" => Output::Yaml,
        "name" => Output::Name,
        text => {
            let form = text.split_once('=').map_or(text, |(form, _)| form);
            return Err(if OF_KUBECTL.contains(&form) {
                format!("{form} is not supported; there are {FORMS}: take -o json and jq(1)")
            } else {
                format!("there are {FORMS}")
            });
        }
    })
}

#[derive(Debug, Args)]
pub struct Describe {
    /// The object's type, then names; or TYPE/NAME, once or more. Without names all of the type
    #[arg(
        value_name = "TYPE [NAME...] | TYPE/NAME",
        required = true,
        add = ArgValueCompleter::new(candidates::objects)
    )]
    pub objects: Vec<String>,
    #[command(flatten)]
    pub scope: Scope,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// The pod; pod/NAME too
    #[arg(add = ArgValueCompleter::new(candidates::pods))]
    pub pod: String,
    /// The container [default: the pod's first]
    #[arg(short, long, conflicts_with = "all_containers")]
    pub container: Option<String>,
    /// Every container of the pod
    #[arg(long)]
    pub all_containers: bool,
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Go on as the container writes
    #[arg(short, long)]
    pub follow: bool,
    /// The container's run before this one
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
    /// Only the last N lines of each container
    #[arg(long, value_name = "N")]
    pub tail: Option<u64>,
    /// Only lines not older than this: 5s, 2m, 3h
    #[arg(long, value_name = "DURATION")]
    pub since: Option<humantime::Duration>,
    /// Begin each line with the time it was written
    #[arg(long)]
    pub timestamps: bool,
    /// Begin each line with its pod and container
    #[arg(long)]
    pub prefix: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct History {
    /// The stream: node/NAME or cluster
    #[arg(add = ArgValueCompleter::new(candidates::streams))]
    pub stream: String,
    /// First seq, inclusive [default: the earliest left]
    #[arg(long, value_name = "SEQ")]
    pub from: Option<u64>,
    /// Last seq, inclusive [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub to: Option<u64>,
    /// Go on as events come
    #[arg(short, long, conflicts_with = "to")]
    pub follow: bool,
    /// Output form: a table, or one JSON object a line
    #[arg(short, long, default_value = "table")]
    pub output: HistoryOutput,
    /// Leave out the header line
    #[arg(long)]
    pub no_headers: bool,
    /// Show the values of Secrets
    #[arg(long)]
    pub show_secrets: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryOutput {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub struct Diff {
    /// The stream: node/NAME or cluster
    #[arg(add = ArgValueCompleter::new(candidates::streams))]
    pub stream: String,
    /// The state after this event
    #[arg(long, value_name = "SEQ")]
    pub from: u64,
    /// against the state after this one [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub to: Option<u64>,
    /// Output form: what changed as unified diffs, or one JSON object a line
    #[arg(short, long, default_value = "text")]
    pub output: DiffOutput,
    /// Show the values of Secrets
    #[arg(long)]
    pub show_secrets: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffOutput {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub struct Status {
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub output: StatusOutput,
    /// Show it again every two seconds: in place on a terminal, one after the other on a pipe
    #[arg(short, long)]
    pub watch: bool,
    /// In which order the nodes come
    #[arg(long, default_value = "worst")]
    pub sort: Sort,
    /// Only these nodes
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', add = ArgValueCompleter::new(candidates::nodes))]
    pub node: Vec<String>,
    /// Leave out the header line
    #[arg(long)]
    pub no_headers: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// A summary, then the nodes; on a terminal those in step give way
    Table,
    /// Every stream, last contact, boot and what the disk holds too
    Wide,
    Json,
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Nodes in trouble, then nodes that are away, then the greatest lag
    Worst,
    Name,
    /// The most events behind first
    Lag,
    /// The most reports waiting first
    Outbox,
    /// The longest without contact first
    Contact,
    /// The least room on its disk first
    Free,
}

#[derive(Debug, Args)]
pub struct Link {
    /// What to do to the link
    pub action: LinkAction,
    /// The node
    #[arg(add = ArgValueCompleter::new(candidates::nodes))]
    pub node: String,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkAction {
    /// End the session and let none be made
    Cut,
    /// Let the node connect again
    Restore,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// The node [default: every node]
    #[arg(add = ArgValueCompleter::new(candidates::nodes))]
    pub node: Option<String>,
    /// Output form: a table, or one JSON object a line
    #[arg(short, long, default_value = "table")]
    pub output: HistoryOutput,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub output: HistoryOutput,
    #[command(flatten)]
    pub target: Target,
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
            &["headwater", "get", "pods", "-w", "--at", "3"],
            &["headwater", "logs", "web", "-c", "a", "--all-containers"],
            &["headwater", "diff", "cluster"],
            &["headwater", "link", "break", "node-1"],
            &["headwater", "history", "cluster", "--from", "x"],
        ] {
            assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_kubectl_has_and_this_has_not_is_named() {
        let error = |form| output(form).expect_err(form);
        assert!(error("jsonpath={.items}").starts_with("jsonpath is not supported"));
        assert!(error("custom-columns=A:.b").contains("-o json"));
        assert!(error("xml").contains("yaml"));
        assert_eq!(output("wide"), Ok(Output::Wide));
    }
}
