//! A Kubernetes API as a source of objects for the controller, and as a sink of what the nodes report.
//!
//! ```text
//!            Reflector          ClusterObjects
//! API ──► list and watch ──► what the edges need ──► events of the source ──► controller
//!            (per kind)              ▲                                            │
//!                                    └──────── what the streams name (Wanted) ◄───┘
//! ```
//!
//! The decisions are pure: `reflector` which request comes next and what a page or an event means,
//! `cluster_objects` what of it the controller gets. The rest sends requests and forwards answers.
//! This crate alone names `kube`, of which it uses kubeconfigs, authentication, TLS and requests.
//!
//! Every kind is listed in pages and then watched. The source lists once, as a source must: when a
//! kind loses its place in the history of the API, it is listed again here, and the controller gets the
//! differences. Half a list removes nothing.
//!
//! The sink is the other direction of the same idea: it compares what the nodes report with what the
//! watches of the source show, and writes the difference.
//!
//! ```text
//!            ClusterView                 plan             Queue
//! watches ──► what the API shows ──► the difference ──► requests, some at a time ──► API
//!                                         ▲                                         │
//! picture ──► what the nodes report ──────┘◄──────────── what it answers ◄──────────┘
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `access` | the way to the API: kubeconfig, service account, client |
//! | `plugin_credentials` | the credentials that a plugin gives, one run at a time |
//! | `act_as` | as whom the controller writes about a node |
//! | `catch_up` | the kinds for which a takeover waits |
//! | `cloud` | the answers of the API to requests of nodes |
//! | `kind` | the kinds that are watched, and what of them goes where |
//! | `raw_object` | an object as the API sends it |
//! | `request` | the requests: pages of a list, watches, single objects |
//! | `reflector` | the list and the watch of a kind, as a state machine |
//! | `kind_watch` | the requests of a reflector |
//! | `object_requests` | the requests for single objects |
//! | `kind_objects` | the objects of a kind that the controller has |
//! | `cluster_objects` | which objects the controller gets, over all kinds |
//! | `fetches` | objects that are requested by themselves, and what a watch says meanwhile |
//! | `rights` | the rights that the controller uses, and the question which of them it has |
//! | `rights_review` | what the controller may not do, in words |
//! | `server` | which cluster answers, its version, and whether its history went back |
//! | `failure` | failed requests, in words |
//! | `settings` | which objects the source takes |
//! | `source` | the source |
//! | `cluster_view` | what the API shows of edge nodes and their pods |
//! | `digest` | digests of JSON |
//! | `whole_seconds` | times as the API stores them |
//! | `pod_status`, `node_object` | what a node owns of its pods' statuses, and of its Node |
//! | `csi_node` | the storage drivers of a node |
//! | `mirror_pod` | the static pods of a node, and the pods that mirror them |
//! | `kubelet_address` | where API servers reach the kubelet's servers of the nodes, if not at each node |
//! | `event_level` | which Events of the nodes are written |
//! | `offline` | what becomes of the pods of a node that is away |
//! | `sink` | the sink |

mod access;
mod act_as;
mod catch_up;
mod cloud;
mod cluster_objects;
mod cluster_view;
mod csi_node;
mod digest;
mod event_level;
mod failure;
mod fetches;
mod kind;
mod kind_objects;
mod kind_watch;
mod kubelet_address;
mod mirror_pod;
mod node_object;
mod object_requests;
mod offline;
mod plugin_credentials;
mod pod_status;
mod raw_object;
mod reflector;
mod request;
mod rights;
mod rights_review;
mod server;
mod settings;
mod sink;
mod source;
mod whole_seconds;

pub use self::access::{Access, AccessError, Connection};
pub use self::act_as::ActAs;
pub use self::cloud::KubernetesCloud;
pub use self::event_level::EventLevel;
pub use self::kubelet_address::{KubeletAddress, KubeletAddressError};
pub use self::offline::OfflinePolicy;
pub use self::rights::{Right, rights};
pub use self::server::ServerVersion;
pub use self::settings::{EDGE_NODES, KubernetesSettings, SelectorError, check_selector};
pub use self::sink::{KubernetesSink, SinkDependencies, SinkMetrics};
pub use self::source::KubernetesSource;
