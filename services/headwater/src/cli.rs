//! The command line: what can be asked, and in which words.

pub(crate) mod ca;
pub(crate) mod edge;
pub(crate) mod part;
mod running;
mod topics;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;

use self::running::Running;
pub(crate) use self::topics::{Topics, TopicsAction, TopicsPlan};
use crate::completion;
use crate::kafka::KafkaArgs;

/// Where the asking commands look, and `up` writes, unless told otherwise.
pub(crate) const DATA_DEFAULT: &str = "headwater-data";

/// What `--help` ends with.
const AFTER_HELP: &str = "\
Begin with `headwater up MANIFESTS`; the other commands ask what runs there.
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
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
    /// Show how the fleet is, and where every node stands
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
pub(crate) enum Shell {
    /// For ~/.bashrc: source <(headwater completion bash)
    Bash,
    /// For ~/.zshrc: source <(headwater completion zsh)
    Zsh,
    /// For ~/.config/fish/config.fish: headwater completion fish | source
    Fish,
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
    // Instead of the log in the data directory; topics are made where they are missing.
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    /// What runs the pods [default: process]
    #[arg(long)]
    pub(crate) runtime: Option<Runtime>,
    /// How often each node derives its pod status snapshot besides on change [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) sync_interval: Option<humantime::Duration>,
    /// Go on when every manifest is gone at once, and remove what they described
    #[arg(long)]
    pub(crate) allow_empty: bool,
    #[command(flatten)]
    pub(crate) running: Running,
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
    #[arg(long, add = ArgValueCompleter::new(completion::nodes))]
    pub(crate) node: Option<String>,
    /// Show the past: a seq of the node's stream (with --node), which has no statuses, or an
    /// RFC 3339 time. It reaches back as far as the replay window (`up --print-config`); what
    /// the log can no longer show is said with the earliest that it can
    #[arg(long, value_name = "SEQ|TIME")]
    pub(crate) at: Option<String>,
    /// Show the values of Secrets
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// What to list: pods, nodes, configmaps, ...; several with commas; `all`. Then names, if
    /// not all of them are meant; or TYPE/NAME, once or more
    #[arg(
        value_name = "TYPE [NAME...] | TYPE/NAME",
        required = true,
        add = ArgValueCompleter::new(completion::objects)
    )]
    pub(crate) objects: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Only objects with these labels: a=b, a!=b, `a in (b,c)`, `a notin (b)`, a, !a
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Only objects with these values: .spec.nodeName=node-1, .status.phase!=Running
    #[arg(long, value_name = "PATH=VALUE,...")]
    pub(crate) field_selector: Option<String>,
    /// Sort by the value at a path: .metadata.creationTimestamp
    #[arg(long, value_name = "PATH")]
    pub(crate) sort_by: Option<String>,
    /// Output form: table, wide, json, yaml or name
    #[arg(short, long, default_value = "table", value_parser = output)]
    pub(crate) output: Output,
    /// Then print every change
    #[arg(short, long, conflicts_with_all = ["at", "sort_by"])]
    pub(crate) watch: bool,
    /// Leave out the header line
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Add the labels as the last column
    #[arg(long)]
    pub(crate) show_labels: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// The output form that a person means; of those that kubectl has and this program has not, what
/// to do instead.
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
pub(crate) struct Describe {
    /// The object's type, then names; or TYPE/NAME, once or more. Without names all of the type
    #[arg(
        value_name = "TYPE [NAME...] | TYPE/NAME",
        required = true,
        add = ArgValueCompleter::new(completion::objects)
    )]
    pub(crate) objects: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Only objects with these labels: a=b, a!=b, `a in (b,c)`, `a notin (b)`, a, !a
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The pod; pod/NAME too
    #[arg(add = ArgValueCompleter::new(completion::pods))]
    pub(crate) pod: String,
    /// The container [default: the pod's first]
    #[arg(short, long, conflicts_with = "all_containers")]
    pub(crate) container: Option<String>,
    /// Every container of the pod
    #[arg(long)]
    pub(crate) all_containers: bool,
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Go on as the container writes
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The container's run before this one
    #[arg(short, long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    /// Only the last N lines of each container
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// Only lines not older than this: 5s, 2m, 3h
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<humantime::Duration>,
    /// Begin each line with the time it was written
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Begin each line with its pod and container
    #[arg(long)]
    pub(crate) prefix: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The stream: node/NAME or cluster
    #[arg(add = ArgValueCompleter::new(completion::streams))]
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
    /// Leave out the header line
    #[arg(long)]
    pub(crate) no_headers: bool,
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
    #[arg(add = ArgValueCompleter::new(completion::streams))]
    pub(crate) stream: String,
    /// The state after this event
    #[arg(long, value_name = "SEQ")]
    pub(crate) from: u64,
    /// against the state after this one [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
    /// Output form: what changed as unified diffs, or one JSON object a line
    #[arg(short, long, default_value = "text")]
    pub(crate) output: DiffOutput,
    /// Show the values of Secrets
    #[arg(long)]
    pub(crate) show_secrets: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffOutput {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub(crate) output: StatusOutput,
    /// Show it again every two seconds: in place on a terminal, one after the other on a pipe
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// In which order the nodes come
    #[arg(long, default_value = "worst")]
    pub(crate) sort: Sort,
    /// Only these nodes
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', add = ArgValueCompleter::new(completion::nodes))]
    pub(crate) node: Vec<String>,
    /// Leave out the header line
    #[arg(long)]
    pub(crate) no_headers: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusOutput {
    /// A summary, then the nodes; on a terminal those in step give way
    Table,
    /// Every stream, last contact, boot and what the disk holds too
    Wide,
    Json,
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Whoever is in trouble, then whoever is away, then whoever lags most
    Worst,
    Name,
    /// The most events behind first
    Lag,
    /// The most reports waiting first
    Outbox,
    /// The longest unheard of first
    Contact,
    /// The least room on its disk first
    Free,
}

#[derive(Debug, Args)]
pub(crate) struct Link {
    /// What to do to the link
    pub(crate) action: LinkAction,
    /// The node
    #[arg(add = ArgValueCompleter::new(completion::nodes))]
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
    #[arg(add = ArgValueCompleter::new(completion::nodes))]
    pub(crate) node: Option<String>,
    /// Output form: a table, or one JSON object a line
    #[arg(short, long, default_value = "table")]
    pub(crate) output: HistoryOutput,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Output form
    #[arg(short, long, default_value = "table")]
    pub(crate) output: HistoryOutput,
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
