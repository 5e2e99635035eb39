//! The arguments of every command, as clap parses them.

pub mod ca;
pub mod edge;
pub mod hub;
pub mod kafka;
pub mod kubernetes;
pub mod part;
pub mod pods;
pub mod run;
pub mod tls;
pub mod topics;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use headwater_settings::{DATA_DEFAULT, Runtime};

use self::hub::HubArgs;
use self::kafka::KafkaArgs;
use self::kubernetes::{ApiArgs, KubernetesArgs};
use self::run::RunArgs;
use self::topics::Topics;
use crate::candidates;
use crate::custom_columns::CustomColumns;
use crate::template::Template;

/// The end of `--help`.
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
    /// Run everything in one process: publish manifests, run pods, collect statuses
    Up(Up),
    /// Run a controller: publish manifests to the log on Kafka, and fold the reports of nodes
    Controller(part::Controller),
    /// Run a hub: serve the log on Kafka to edges. Several hubs may run at a time
    Hub(part::Hub),
    /// Run the edge of one node: replicate its objects from a hub, and run its pods with or without
    /// one
    Edge(edge::Edge),
    /// Run the pods of one node, beside an edge with --no-edged
    Edged(edge::Edged),
    /// End the pods that an edge left running, while the edge does not run
    StopPods(StopPods),
    /// Display one or many objects: the cloud's picture, a node's replica, or either in the past
    Get(Get),
    /// Show details of one object, with its events
    Describe(Describe),
    /// List the Events of nodes: what they did with pods, or why they could not. They stay an hour
    Events(Events),
    /// Print the logs of a container in a pod
    Logs(Logs),
    /// Run a command in a container, here or behind a hub. Its exit status is that of the command
    Exec(pods::Exec),
    /// Connect to the process of a container, here or behind a hub
    Attach(pods::Attach),
    /// Lead local ports to ports of a pod, here or behind a hub
    PortForward(pods::PortForward),
    /// List the events of a stream
    History(History),
    /// Show the changes of a stream between two of its events (exit status 3: there are changes)
    Diff(Diff),
    /// Show the fleet, and the positions of every node
    Status(Status),
    /// Cut or restore the link between a node and its hub: a fault for experiments
    Link(Link),
    /// Release a node that a hub holds because two machines use its identity
    Node(Node),
    /// Compare state hashes: stored, recomputed, folded from the log (exit status 3: they differ)
    Verify(Verify),
    /// Create, check or describe the topics of a log on Kafka (exit status 3: they would lose data)
    Topics(Topics),
    /// Check disk, clock, limits, sockets and versions, and advise what to do (exit status 3: a
    /// problem)
    Doctor(Doctor),
    /// Create a CA, and issue certificates to nodes, hubs and operators
    Ca(ca::Ca),
    /// Print the script that makes a shell complete commands, types and names
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

/// The running process to which a command connects.
#[derive(Debug, Args)]
pub struct Target {
    /// Data directory of the running process; the command connects to its unix socket
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", hide_env_values = true, default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

#[derive(Debug, Args)]
pub struct Up {
    /// Folder of Kubernetes manifests: YAML or JSON, with subfolders
    // Not required: a settings file may name a kubeconfig.
    #[arg(value_name = "MANIFESTS", conflicts_with_all = ["kubeconfig", "in_cluster"])]
    pub manifests: Option<PathBuf>,
    /// Also receive objects as JSON lines on this unix socket
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["kubeconfig", "in_cluster"])]
    pub objects: Option<PathBuf>,
    // Instead of manifests and objects.
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
    /// Data directory
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", hide_env_values = true, default_value = DATA_DEFAULT)]
    pub data: PathBuf,
    /// Number of nodes (named node-1, node-2, ...), or their names, comma-separated
    /// [default: 2]
    #[arg(long, value_name = "N|NAME,...")]
    pub nodes: Option<String>,
    // Instead of the log in the data directory; topics are made where they are missing.
    #[command(flatten)]
    pub kafka: KafkaArgs,
    /// Runtime of the pods [default: process]
    #[arg(long)]
    pub runtime: Option<Runtime>,
    #[command(flatten)]
    pub cri: edge::CriArgs,
    #[command(flatten)]
    pub kubelet: edge::KubeletArgs,
    /// Address that the nodes state for themselves and their pods [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub node_address: Option<IpAddr>,
    /// Interval of the pod status snapshots of a node, besides those on change [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub sync_interval: Option<humantime::Duration>,
    /// When all manifests disappear at once, remove their objects
    #[arg(long)]
    pub allow_empty: bool,
    /// Refuse manifests that a cluster would not accept (unknown fields, a selector that does not
    /// match its template, a mistyped kind, a key twice) instead of a warning
    #[arg(long)]
    pub strict: bool,
    /// Name the nodes in metrics on an address beyond loopback, where they are numbered otherwise
    #[arg(long)]
    pub metrics_node_names: bool,
    #[command(flatten)]
    pub running: RunArgs,
}

#[derive(Debug, Args)]
pub struct StopPods {
    /// Data directory of the edge, of `edged` or of `up`
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", hide_env_values = true, default_value = DATA_DEFAULT)]
    pub data: PathBuf,
    /// Longest time that a pod has to end before it is killed [default: its own grace period]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<humantime::Duration>,
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
    /// Show the replica of this node instead of the cloud's picture
    #[arg(long, add = ArgValueCompleter::new(candidates::nodes))]
    pub node: Option<String>,
    /// Show a past state: at a seq of the node's stream (with --node; it has no statuses), at an
    /// RFC 3339 time, or a duration ago (5m). The log keeps every event for the replay window (`up
    /// --print-config`). For an earlier position the error names the earliest one
    #[arg(long, value_name = "SEQ|TIME|AGO", add = ArgValueCompleter::new(candidates::positions))]
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
    /// Types to list: pods, nodes, configmaps, ..., several with commas, or `all`; then names, or
    /// none for all objects. Or TYPE/NAME, once or more
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
    /// Output form: table, wide, json, yaml, name, jsonpath=TEMPLATE ('{.metadata.name}'), or
    /// custom-columns=HEADER:PATH,... (NAME:.metadata.name)
    #[arg(
        short,
        long,
        default_value = "table",
        value_parser = output,
        add = ArgValueCompleter::new(candidates::outputs)
    )]
    pub output: Output,
    /// List the objects, then print every change
    #[arg(short, long, conflicts_with_all = ["at", "sort_by"])]
    pub watch: bool,
    /// Omit the header line
    #[arg(long)]
    pub no_headers: bool,
    /// Add the labels as the last column
    #[arg(long)]
    pub show_labels: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
    JsonPath(Template),
    CustomColumns(CustomColumns),
}

/// The output forms of `get`, as they are typed.
pub(crate) const OUTPUTS: [&str; 7] =
    ["table", "wide", "json", "yaml", "name", "jsonpath=", "custom-columns="];

/// Parses an output form. For a form that only kubectl has, the error names the replacement.
fn output(text: &str) -> Result<Output, String> {
    const FORMS: &str = "table, wide, json, yaml, name, jsonpath=TEMPLATE and \
                         custom-columns=HEADER:PATH,...";
    let (form, detail) = match text.split_once('=') {
        Some((form, detail)) => (form, Some(detail)),
        None => (text, None),
    };
    Ok(match (form, detail) {
        ("table", None) => Output::Table,
        ("wide", None) => Output::Wide,
        ("json", None) => Output::Json,
        ("yaml", None) => Output::Yaml,
        ("name", None) => Output::Name,
        ("jsonpath", Some(template)) => Output::JsonPath(Template::parse(template)?),
        ("custom-columns", Some(columns)) => Output::CustomColumns(CustomColumns::parse(columns)?),
        ("jsonpath", None) => {
            return Err("write the template behind it: jsonpath='{.items[*].metadata.name}'".into());
        }
        ("custom-columns", None) => {
            return Err("write the columns behind it: custom-columns=NAME:.metadata.name".into());
        }
        ("go-template" | "template" | "go-template-file" | "templatefile", _) => {
            return Err(format!(
                "{form} is not supported: use jsonpath=TEMPLATE, or -o json and jq(1)"
            ));
        }
        ("jsonpath-file" | "custom-columns-file", _) => {
            let form = form.trim_end_matches("-file");
            return Err(format!("{form}-file is not supported: use {form}=\"$(cat FILE)\""));
        }
        ("jsonpath-as-json" | "kyaml", _) => {
            return Err(format!("{form} is not supported: use -o json and jq(1), or -o yaml"));
        }
        _ => return Err(format!("there are {FORMS}")),
    })
}

#[derive(Debug, Args)]
pub struct Describe {
    /// The type, then names, or none for all objects of the type. Or TYPE/NAME, once or more
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
pub struct Events {
    /// Namespace; Events about nodes are in `default`
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only Events about this object: pod/NAME or node/NAME
    #[arg(long = "for", value_name = "KIND/NAME")]
    pub about: Option<String>,
    /// Only Events of these types: Warning, Normal
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',')]
    pub types: Vec<String>,
    /// Output form: table, json, yaml
    #[arg(short, long, default_value = "table", value_parser = output)]
    pub output: Output,
    /// Omit the header line
    #[arg(long)]
    pub no_headers: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// The pod; pod/NAME too, or a workload as deploy/NAME: its first pod
    #[arg(
        required_unless_present = "selector",
        conflicts_with = "selector",
        add = ArgValueCompleter::new(candidates::pods)
    )]
    pub pod: Option<String>,
    /// Every pod with these labels: a=b, a!=b, `a in (b,c)`; the last 10 lines of each, unless --tail
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    /// The most pods to follow at once
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub max_log_requests: usize,
    /// The container [default: the pod's first]
    #[arg(
        short,
        long,
        conflicts_with = "all_containers",
        add = ArgValueCompleter::new(candidates::containers)
    )]
    pub container: Option<String>,
    /// Every container of the pod
    #[arg(long)]
    pub all_containers: bool,
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Follow the log while the container writes
    #[arg(short, long)]
    pub follow: bool,
    /// The container's run before this one
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
    /// Only the last N lines of each container
    #[arg(long, value_name = "N")]
    pub tail: Option<u64>,
    /// Only lines that are at most this old: 5s, 2m, 3h
    #[arg(long, value_name = "DURATION")]
    pub since: Option<humantime::Duration>,
    /// Begin each line with its time
    #[arg(long)]
    pub timestamps: bool,
    /// Begin each line with its pod and container
    #[arg(long)]
    pub prefix: bool,
    #[command(flatten)]
    pub hub: HubArgs,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct History {
    /// The stream: node/NAME or cluster
    #[arg(add = ArgValueCompleter::new(candidates::streams))]
    pub stream: String,
    /// First seq, inclusive [default: the earliest available]
    #[arg(long, value_name = "SEQ", add = ArgValueCompleter::new(candidates::seqs))]
    pub from: Option<u64>,
    /// Last seq, inclusive [default: the newest]
    #[arg(long, value_name = "SEQ", add = ArgValueCompleter::new(candidates::seqs))]
    pub to: Option<u64>,
    /// Only the newest N events of the range
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub tail: Option<u64>,
    /// Follow the stream: print new events
    #[arg(short, long, conflicts_with = "to")]
    pub follow: bool,
    /// Output form: a table, a wide one with UIDs, versions, sizes and state hashes, or one JSON
    /// object a line
    #[arg(short, long, default_value = "table")]
    pub output: EventOutput,
    /// Omit the header line
    #[arg(long)]
    pub no_headers: bool,
    /// Show the values of Secrets
    #[arg(long)]
    pub show_secrets: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventOutput {
    Table,
    Wide,
    Json,
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
    /// The first state: at a seq (0: before the first event), at an RFC 3339 time, or a duration ago
    /// (5m)
    #[arg(
        long,
        value_name = "SEQ|TIME|AGO",
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCompleter::new(candidates::positions)
    )]
    pub from: String,
    /// The second state, likewise [default: the newest]
    #[arg(
        long,
        value_name = "SEQ|TIME|AGO",
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCompleter::new(candidates::positions)
    )]
    pub to: Option<String>,
    /// Output form: unified diffs, or one JSON object a line
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
    /// Repeat every two seconds: in place on a terminal, one after the other on a pipe
    #[arg(short, long)]
    pub watch: bool,
    /// Order of the nodes
    #[arg(long, default_value = "worst")]
    pub sort: Sort,
    /// Only these nodes
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', add = ArgValueCompleter::new(candidates::nodes))]
    pub node: Vec<String>,
    /// Omit the header line
    #[arg(long)]
    pub no_headers: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// A summary, then the nodes; on a full terminal without those in step
    Table,
    /// Also every stream, last contact, boot and disk usage
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
    /// The most unacknowledged reports first
    Outbox,
    /// The longest without contact first
    Contact,
    /// The least free disk space first
    Free,
}

#[derive(Debug, Args)]
pub struct Link {
    /// Action on the link
    pub action: LinkAction,
    /// The node
    #[arg(add = ArgValueCompleter::new(candidates::nodes))]
    pub node: String,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkAction {
    /// End the session and refuse new ones
    Cut,
    /// Allow the node to connect again
    Restore,
}

#[derive(Debug, Args)]
pub struct Node {
    /// Action on the node
    pub action: NodeAction,
    /// The node
    #[arg(add = ArgValueCompleter::new(candidates::nodes))]
    pub node: String,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NodeAction {
    /// Let the node connect again. Re-enrol one of the two machines before: the hub holds the node
    /// again when both connect
    Release,
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
    // Checks the API, too: its version, its clock, and the rights of a controller.
    #[command(flatten)]
    pub api: ApiArgs,
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
            &["headwater", "up", "demo", "--kubeconfig", "k"],
            &["headwater", "up", "--objects", "o", "--in-cluster"],
            &["headwater", "doctor", "--act-as", "root"],
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
        assert!(error("go-template={{.items}}").contains("use jsonpath=TEMPLATE"));
        assert!(error("jsonpath-file=a").contains("use jsonpath=\"$(cat FILE)\""));
        assert!(error("jsonpath").contains("jsonpath='{"));
        assert!(error("jsonpath={.a").contains("not closed"));
        assert!(error("custom-columns").contains("NAME:.metadata.name"));
        assert!(error("xml").contains("yaml"));
        assert_eq!(output("wide"), Ok(Output::Wide));
        assert!(matches!(output("jsonpath={.items}"), Ok(Output::JsonPath(_))));
        assert!(matches!(output("custom-columns=A:.b"), Ok(Output::CustomColumns(_))));
    }
}
