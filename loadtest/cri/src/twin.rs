//! A runtime in memory that speaks CRI, and containerd's events, on a real socket.
//!
//! Its containers are lives (`life`) and no processes. What it answers in each state is what
//! containerd answers; one suite (`tests/conformance`) holds both to the same.
//!
//! | module | what it owns |
//! |---|---|
//! | `life` | what a container does, as a command that containerd runs too |
//! | `state` | sandboxes, containers, images and names; pure |
//! | `faults` | what goes wrong, by a seed |
//! | `record` | what a client asked for |
//! | `feed` | the events of one subscription, with their faults |
//! | `connection` | a connection, which ends with its server |
//! | `runtime`, `images`, `events` | the services on the wire |

mod connection;
mod events;
mod faults;
mod feed;
mod images;
mod life;
mod record;
mod runtime;
mod state;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_cri::proto::containerd::events_server::EventsServer;
use headwater_cri::proto::image_service_server::ImageServiceServer;
use headwater_cri::proto::runtime_service_server::RuntimeServiceServer;
use headwater_cri::proto::{Container, ContainerFilter, PodSandbox, PodSandboxFilter};
use headwater_daemon::DaemonError;
use tokio::net::UnixListener;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Server;
use tonic::{Response, Status};

pub use faults::{Fault, FaultRates};
pub use life::Life;
pub use record::RecordedRequest;
pub use state::PullOutcome;

use crate::error::LabError;
use connection::Connection;
use faults::Faults;
use feed::Happening;
use record::Record;
use state::State;

/// Events that a slow subscription has not read; it loses older ones.
const EVENTS_MAX: usize = 1024;

/// The time from containerd's event of an end until CRI has it, as of an idle containerd.
const END_LAG: Duration = Duration::from_millis(20);

/// The time limit of an end that has begun.
const END_WITHIN: Duration = Duration::from_secs(10);

/// The code of the process of a sandbox that is killed: 128 + SIGKILL.
const SANDBOX_KILLED: i32 = 137;

/// A running twin; it ends when dropped.
#[derive(Debug)]
pub struct Twin {
    shared: Arc<Core>,
    socket: PathBuf,
    /// `None`: nothing listens.
    server: Option<TwinServer>,
}

/// What listens, and its connections.
#[derive(Debug)]
struct TwinServer {
    listening: JoinHandle<()>,
    /// Ends the connections when it is dropped.
    connections: DropGuard,
}

/// The services on the wire.
#[derive(Clone, Debug)]
struct Services(Arc<Core>);

/// What the services share.
#[derive(Debug)]
struct Core {
    state: Mutex<State>,
    faults: Mutex<Faults>,
    record: Mutex<Record>,
    /// The calls of each method.
    calls: Mutex<BTreeMap<&'static str, u64>>,
    happenings: broadcast::Sender<Happening>,
    /// Counts the ends of containers, and the statuses that come again, for calls that wait for one.
    ends: watch::Sender<u64>,
}

/// What a restart of the runtime keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// All runs on.
    Kept,
    /// The machine restarted: no sandbox is ready, and no container runs.
    Lost,
    /// Its folder was emptied: there is no sandbox, and no container. The images are there.
    Emptied,
}

impl Twin {
    /// Starts one at `socket`, in a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn start(socket: &Path) -> Result<Self, LabError> {
        let (happenings, _) = broadcast::channel(EVENTS_MAX);
        let shared = Core {
            state: Mutex::default(),
            faults: Mutex::default(),
            record: Mutex::default(),
            calls: Mutex::default(),
            happenings,
            ends: watch::Sender::new(0),
        };
        let shared = Arc::new(shared);
        let server = Some(serve(&shared, socket)?);
        Ok(Self { shared, socket: socket.to_owned(), server })
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends every connection and serves again at the same socket.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub async fn restart(&mut self, restart: Restart) -> Result<(), LabError> {
        self.stop().await;
        match restart {
            Restart::Kept => {}
            Restart::Lost => self.shared.state().lose_all(),
            Restart::Emptied => self.shared.state().remove_all(),
        }
        self.shared.ends.send_modify(|ends| *ends += 1);
        self.server = Some(serve(&self.shared, &self.socket)?);
        Ok(())
    }

    /// Ends every connection; nothing listens until [`restart`](Self::restart).
    pub async fn stop(&mut self) {
        let Some(TwinServer { listening, connections }) = self.server.take() else { return };
        listening.abort();
        // An aborted task ends with an error.
        let _ = listening.await;
        drop(connections);
        let _ = std::fs::remove_file(&self.socket);
    }

    /// From now on calls and events have faults at these rates, by `seed`.
    pub fn set_faults(&self, seed: u64, rates: FaultRates) {
        self.shared.faults().set(seed, rates);
    }

    /// From now on it has this version and names these handlers, as after an upgrade: [`restart`](Self::restart) it, too.
    pub fn upgrade(&self, version: &str, handlers: &[&str]) {
        self.shared.state().upgrade(version, handlers);
    }

    /// From now on it says that it is the runtime of this name: [`restart`](Self::restart) it, too.
    pub fn rename(&self, name: &str) {
        self.shared.state().rename(name);
    }

    /// The next call of a method, such as `CreateContainer`, has the fault.
    pub fn fail_next(&self, method: &'static str, fault: Fault) {
        self.shared.faults().fail_next(method, fault);
    }

    /// Whether a fault of [`fail_next`](Self::fail_next) has not occurred yet.
    pub fn has_planned_fault(&self) -> bool {
        self.shared.faults().has_planned()
    }

    /// The faults of [`fail_next`](Self::fail_next) that have not occurred yet never do.
    pub fn forget_planned_faults(&self) {
        self.shared.faults().forget_planned();
    }

    /// What pulls of an image end with. Images are absent from registries unless named here.
    pub fn set_pull(&self, image: &str, outcome: PullOutcome) {
        self.shared.state().set_pull(image, outcome);
    }

    /// Adds an image.
    pub fn add_image(&self, image: &str) {
        self.shared.state().add_image(image);
    }

    /// What containers of this name do, instead of what their command says.
    pub fn set_life(&self, container: &str, life: Life) {
        self.shared.state().set_life(container, life);
    }

    /// Whether CRI's own event stream is there, which containerd has since 1.7. It is not at first.
    pub fn set_cri_events(&self, are_there: bool) {
        self.shared.state().set_cri_events(are_there);
    }

    /// Whether it says that its network is ready. It is at first.
    pub fn set_network(&self, is_ready: bool) {
        self.shared.state().set_network(is_ready);
    }

    /// A running container ends with a code, by itself. When this returns, CRI knows it.
    pub async fn end(&self, container: &str, code: i32) {
        if let Some(id) = self.shared.end(container, code, Oom::No) {
            self.shared.ended_within(&id, END_WITHIN).await;
        }
    }

    /// Whether a client follows the events.
    pub fn is_followed(&self) -> bool {
        self.shared.happenings.receiver_count() > 0
    }

    /// The event of a sandbox's end comes.
    pub fn report_sandbox_end(&self, sandbox: &str) {
        self.shared
            .happens(Happening::Exit { container: sandbox.to_owned(), code: SANDBOX_KILLED });
    }

    /// The state of the running container of this name is unknown from now on, until a client ends it.
    pub fn lose_state(&self, container: &str) {
        self.shared.state().lose(container, None);
    }

    /// The running container of this name ends with `code`, and its state is unknown from now on. The runtime finds the end
    /// when a client ends the container.
    pub fn lose_end(&self, container: &str, code: i32) {
        self.shared.state().lose(container, Some(code));
    }

    /// From now on containers of this name are listed and have no status.
    pub fn damage(&self, container: &str) {
        self.shared.state().damage(container);
    }

    /// From now on containers of this name have a status again.
    pub fn repair(&self, container: &str) {
        self.shared.state().repair(container);
    }

    /// From now on a call for the status of containers of this name hangs.
    pub fn hold_status(&self, container: &str) {
        self.shared.state().hold_status(container);
    }

    /// Calls for the status of containers of this name are answered again: those that hang, too.
    pub fn give_status(&self, container: &str) {
        self.shared.state().give_status(container);
        self.shared.ends.send_modify(|ends| *ends += 1);
    }

    /// From now on the requests for sandboxes and containers are kept.
    pub fn record(&self) {
        self.shared.record().begin();
    }

    /// The requests that were kept, in order.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.shared.record().requests()
    }

    /// How many times a method, such as `PullImage`, was called.
    pub fn calls(&self, method: &str) -> u64 {
        self.shared.calls().get(method).copied().unwrap_or_default()
    }

    /// The sandboxes, as a list without a filter has them. No call is made: none is counted, and no fault occurs.
    pub fn sandboxes(&self) -> Vec<PodSandbox> {
        self.shared.state().list_sandboxes(&PodSandboxFilter::default())
    }

    /// The containers, as a list without a filter has them. No call is made: none is counted, and no fault occurs.
    pub fn containers(&self) -> Vec<Container> {
        self.shared.state().list_containers(&ContainerFilter::default())
    }

    /// How many times a container was started, by its name; pods of all attempts count.
    pub fn starts(&self, name: &str) -> u64 {
        self.shared.state().starts(name)
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.listening.abort();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn serve(shared: &Arc<Core>, socket: &Path) -> Result<TwinServer, LabError> {
    let listener = UnixListener::bind(socket).map_err(DaemonError::file(socket))?;
    let services = Services(Arc::clone(shared));
    let server = Server::builder()
        .add_service(RuntimeServiceServer::new(services.clone()))
        .add_service(ImageServiceServer::new(services.clone()))
        .add_service(EventsServer::new(services));
    let connections = CancellationToken::new();
    let end = connections.clone();
    let accepted = UnixListenerStream::new(listener)
        .map(move |stream| stream.map(|stream| Connection::new(stream, &end)));
    let serving = server.serve_with_incoming(accepted);
    // It ends with an error when the listener does; then clients say so.
    let listening = tokio::spawn(async move { drop(serving.await) });
    Ok(TwinServer { listening, connections: connections.drop_guard() })
}

/// Whether the kernel killed a process for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oom {
    Yes,
    No,
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before a panic could occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call: its faults, and between them what it does.
    async fn call<T>(
        &self,
        method: &'static str,
        act: impl AsyncFnOnce() -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        *self.calls().entry(method).or_default() += 1;
        let fault = self.faults().draw(method);
        match fault {
            Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
            Some(Fault::Refused) => return Err(Status::unavailable("connection refused")),
            Some(Fault::LostAnswer) | None => {}
        }
        let answer = act().await;
        if fault == Some(Fault::LostAnswer) {
            return Err(Status::unavailable("transport is closing"));
        }
        answer.map(Response::new)
    }

    fn happens(&self, happening: Happening) {
        // Without a subscription it is lost, as in containerd.
        let _ = self.happenings.send(happening);
    }

    /// Ends a container: containerd's event comes at once, CRI knows a moment later.
    /// Returns the id of the container, if it ran.
    fn end(self: &Arc<Self>, container: &str, code: i32, oom: Oom) -> Option<String> {
        let id = self.state().begin_end(container)?;
        if oom == Oom::Yes {
            self.happens(Happening::Oom(id.clone()));
        }
        self.happens(Happening::Exit { container: id.clone(), code });
        let (shared, ended) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(END_LAG).await;
            shared.state().end(&ended, code, oom);
            shared.happens(Happening::Stopped(ended));
            shared.ends.send_modify(|ends| *ends += 1);
        });
        Some(id)
    }
}
