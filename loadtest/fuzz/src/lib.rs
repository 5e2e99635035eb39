//! Fuzz targets: one table of everything that decodes foreign input.
//!
//! A target takes any bytes. It must not panic, and must not contradict itself: it can
//! write what it reads, and reads that again as the same. [`TARGETS`] is all that a driver needs: `tests/corpus.rs` replays the folder `corpus` and a bounded number of seeded mutations
//! of it, and `cargo xtask fuzz` runs each target guided by coverage.
//!
//! | module | what it feeds |
//! |---|---|
//! | [`event`] | names, keys, headers and JSON of log records |
//! | [`log`] | values of records, and which records are events |
//! | [`store`] | keys and values of tables |
//! | [`view`] | rows of a replica, and the fold of streams |
//! | [`object`] | objects |
//! | [`wire`] | messages of the wire |
//! | [`session`] | both ends of the protocol, by any peer |
//! | [`edge`] | the database of an edge's reports, and its local API |
//! | [`source`] | manifests, and lines of the objects socket |
//! | [`pod`] | what a pod worker makes of the objects that it is given |
//! | [`container_log`] | log files of containers |
//! | [`server`] | paths and parameters of a node's server |
//! | [`node_file`] | docker configs, checkpoints of processors and devices, the kernel's list of mounts |
//! | [`mutation`] | changes of inputs, drawn by a seed |

pub mod container_log;
pub mod edge;
pub mod event;
pub mod log;
pub mod mutation;
pub mod node_file;
pub mod object;
pub mod pod;
pub mod server;
pub mod session;
pub mod source;
pub mod store;
pub mod view;
pub mod wire;

/// Something that decodes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Feeds it. A finding is a panic.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "event_header", run: event::header },
    Target { name: "event_report", run: event::report },
    Target { name: "event_key", run: event::key },
    Target { name: "event_json", run: event::json },
    Target { name: "log_value", run: log::value },
    Target { name: "log_acceptance", run: log::acceptance },
    Target { name: "store_key", run: store::key },
    Target { name: "store_value", run: store::value },
    Target { name: "view_rows", run: view::rows },
    Target { name: "view_fold", run: view::fold },
    Target { name: "object", run: object::object },
    Target { name: "wire_edge", run: wire::edge },
    Target { name: "wire_hub", run: wire::hub },
    Target { name: "wire_local", run: wire::local },
    Target { name: "wire_operator", run: wire::operator },
    Target { name: "session_edge", run: session::edge },
    Target { name: "session_hub", run: session::hub },
    Target { name: "edge_outbox", run: edge::outbox },
    Target { name: "edge_local", run: edge::local },
    Target { name: "source_manifest", run: source::manifest },
    Target { name: "source_line", run: source::line },
    Target { name: "pod", run: pod::pod },
    Target { name: "pod_cpu_set", run: pod::cpu_set },
    Target { name: "container_log_kubelet", run: container_log::kubelet },
    Target { name: "container_log_operator", run: container_log::operator },
    Target { name: "server_path", run: server::path },
    Target { name: "server_parameters", run: server::parameters },
    Target { name: "docker_config", run: node_file::docker_config },
    Target { name: "checkpoint_cpus", run: node_file::cpus },
    Target { name: "checkpoint_devices", run: node_file::devices },
    Target { name: "mountinfo", run: node_file::mountinfo },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
