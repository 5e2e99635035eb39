//! A Kubernetes API server in memory, for tests and simulation: the twin of a real one.
//!
//! It serves lists, watches, writes and deletes of the resources that Headwater reads and writes, with
//! the answers of Kubernetes as far as clients depend on them. Time and chance are arguments, so a run
//! is that of its seed. It opens no socket: it is a [`tower::Service`].
//!
//! One suite of cases holds it and a real API server to the same
//! (`services/kubernetes/tests/cluster/conformance`).
//! The server has no authentication and no authorization, except that a test can
//! [take a right](ApiServer::deny) from every user, and all of them
//! [for some time after a start](ApiServer::set_start_refusal). It leaves out most validation, most defaults, and
//! the controllers.
//!
//! ```text
//!  request ──► service ──► Api (pure) ──► Store ──► changes ──► watches
//!              faults, time     reading, writing, deleting, watching
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `server` | the handle: faults, restarts, backups |
//! | `service` | requests on their way, and what befalls them |
//! | `watch_body` | watches on their way |
//! | `faults` | what may befall them |
//! | `api` | which request is which |
//! | `reading`, `writing`, `deleting`, `watching` | the requests |
//! | `store` | the objects, their version, their history |
//! | `request` | paths and queries |
//! | `selector` | label and field selectors |
//! | `merge`, `strategic` | patches |
//! | `object`, `pod` | metadata; what is special about pods |
//! | `resource` | the resources that are served |
//! | `failure` | failures as `Status` objects |
//! | `chance` | draws, UIDs, generated names |

mod api;
mod chance;
mod deleting;
mod failure;
mod faults;
mod merge;
mod object;
mod pod;
mod reading;
mod request;
mod resource;
mod selector;
mod server;
mod service;
mod store;
mod strategic;
mod watch_body;
mod watching;
mod writing;

pub use self::faults::Faults;
pub use self::server::{ApiServer, Backup};
pub use self::service::{AnswerBody, ConnectionError};
pub use self::store::{Change, Place};
