//! The network between edges and hubs: connections with delays, which break and stall.
//!
//! A message is on its way for a while; those of one connection keep their order. What is on its
//! way when a connection breaks is lost. Everything goes over as the bytes of the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use headwater_edge::{HubDialer, HubStreams};
use headwater_event::{NodeName, ReportId};
use headwater_hub::HubHandle;
use headwater_proto::replication as wire;
use headwater_proto::wire::EdgeMessageDecoder;
use headwater_session::message::{EdgeMessage, HubMessage};
use prost::Message;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::frame::{Frame, lock};
use crate::log::blake3_short;

/// Messages on their way at most, each way.
const ON_THE_WAY_MAX: usize = 64;

/// How long a message is on its way at most.
const WAY_MS_MAX: u64 = 30;

/// How long a dead hub's port takes to say so.
const REFUSED_MS_MAX: u64 = 50;

/// Inspects every message that arrives.
pub(crate) trait Inspect: Send + Sync {
    /// An edge sent this message; `sent` are the reports that it has sent on this connection.
    fn edge_sent(&self, edge: usize, message: &EdgeMessage);

    /// This message of a hub arrived.
    fn hub_sent(&self, edge: usize, message: &HubMessage, sent: &BTreeSet<ReportId>);
}

/// The network. Clones are the same.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    frame: Frame,
    inspect: Arc<dyn Inspect>,
    state: Mutex<State>,
    bell: Notify,
}

#[derive(Default)]
struct State {
    hubs: BTreeMap<usize, Arc<HubHandle>>,
    /// Broken links, by edge and hub.
    cut: BTreeSet<(usize, usize)>,
    stalled: BTreeSet<(usize, usize)>,
    live: Vec<(usize, usize, CancellationToken)>,
}

impl Network {
    pub(crate) fn new(frame: &Frame, inspect: Arc<dyn Inspect>) -> Self {
        let inner =
            Inner { frame: frame.clone(), inspect, state: Mutex::default(), bell: Notify::new() };
        Self(Arc::new(inner))
    }

    /// A hub listens.
    pub(crate) fn listen(&self, hub: usize, handle: Arc<HubHandle>) {
        lock(&self.0.state).hubs.insert(hub, handle);
    }

    /// A hub's machine is gone, and its connections with it.
    pub(crate) fn hub_gone(&self, hub: usize) {
        lock(&self.0.state).hubs.remove(&hub);
        self.break_where(|(_, of)| of == hub);
    }

    /// An edge's machine is gone, and its connections with it.
    pub(crate) fn edge_gone(&self, edge: usize) {
        self.break_where(|(of, _)| of == edge);
    }

    /// Cuts a link; what was on its way is lost.
    pub(crate) fn cut(&self, edge: usize, hub: usize) {
        lock(&self.0.state).cut.insert((edge, hub));
        self.break_where(|link| link == (edge, hub));
    }

    /// Restores a link.
    pub(crate) fn restore(&self, edge: usize, hub: usize) {
        lock(&self.0.state).cut.remove(&(edge, hub));
    }

    /// A link passes nothing, and neither end is notified.
    pub(crate) fn stall(&self, edge: usize, hub: usize, is_stalled: bool) {
        let mut state = lock(&self.0.state);
        match is_stalled {
            true => state.stalled.insert((edge, hub)),
            false => state.stalled.remove(&(edge, hub)),
        };
        drop(state);
        self.0.bell.notify_waiters();
    }

    /// Everything works again.
    pub(crate) fn heal(&self) {
        let mut state = lock(&self.0.state);
        state.cut.clear();
        state.stalled.clear();
        drop(state);
        self.0.bell.notify_waiters();
    }

    /// How an edge gets connections.
    pub(crate) fn dial(&self, edge: usize, node: &NodeName) -> HubDialer {
        let (network, node) = (self.clone(), node.clone());
        Arc::new(move |address| {
            let (network, node) = (network.clone(), node.clone());
            let hub = usize::from(address.port());
            async move { network.connect(edge, &node, hub).await }.boxed()
        })
    }

    async fn connect(
        &self,
        edge: usize,
        node: &NodeName,
        hub: usize,
    ) -> Result<HubStreams, Status> {
        let frame = &self.0.frame;
        sleep(frame.delay(REFUSED_MS_MAX)).await;
        self.moving(edge, hub).await;
        let (to_hub, source) = mpsc::channel(ON_THE_WAY_MAX);
        let (at_hub, received_at_hub) = mpsc::channel(1);
        let (at_edge, received_at_edge) = mpsc::channel(1);
        let broken = CancellationToken::new();
        let from_hub = {
            let mut state = lock(&self.0.state);
            let handle = state.hubs.get(&hub).filter(|_| !state.cut.contains(&(edge, hub)));
            let Some(handle) = handle else {
                return Err(Status::unavailable("nobody answers"));
            };
            let from_hub = handle.open_session(ReceiverStream::new(received_at_hub).boxed());
            state.live.push((edge, hub, broken.clone()));
            from_hub
        };
        frame.count("connection");
        frame.note(format_args!("{node} connects edge {edge} to hub {hub}"));
        let sent = Arc::new(Mutex::new(BTreeSet::new()));
        let up = self.clone().carry_up(edge, hub, source, at_hub.clone(), sent.clone());
        let down = self.clone().carry_down(edge, hub, from_hub, at_edge.clone(), sent);
        tokio::spawn({
            let broken = broken.clone();
            async move {
                if broken.run_until_cancelled(up).await.is_none() {
                    let _ = at_hub.try_send(Err(Status::unavailable("broken")));
                }
                broken.cancel();
            }
        });
        tokio::spawn(async move {
            if broken.run_until_cancelled(down).await.is_none() {
                let _ = at_edge.send(Err(Status::unavailable("broken"))).await;
            }
            broken.cancel();
        });
        Ok(HubStreams { to_hub, from_hub: ReceiverStream::new(received_at_edge).boxed() })
    }

    async fn carry_up(
        self,
        edge: usize,
        hub: usize,
        mut source: mpsc::Receiver<wire::EdgeMessage>,
        destination: mpsc::Sender<Result<wire::EdgeMessage, Status>>,
        sent: Arc<Mutex<BTreeSet<ReportId>>>,
    ) {
        let mut arrives = Instant::now();
        let (mut decoder, mut kept) = (EdgeMessageDecoder::default(), BTreeMap::new());
        while let Some(message) = source.recv().await {
            let bytes = message.encode_to_vec();
            match decoder.decode(message, &mut kept) {
                Ok(message) => {
                    if let EdgeMessage::Reports(reports) = &message {
                        lock(&sent).extend(reports.reports.iter().map(|report| report.id));
                    }
                    self.0.inspect.edge_sent(edge, &message);
                    self.note(edge, "->", hub, message.name(), &bytes);
                }
                Err(error) => self.0.frame.broken(format_args!("edge {edge} sent: {error}")),
            }
            arrives = self.way(arrives, edge, hub).await;
            let message = wire::EdgeMessage::decode(bytes.as_slice());
            let message = message.map_err(|error| Status::internal(error.to_string()));
            if destination.send(message).await.is_err() {
                return;
            }
        }
    }

    async fn carry_down(
        self,
        edge: usize,
        hub: usize,
        mut source: BoxStream<'static, Result<wire::HubMessage, Status>>,
        destination: mpsc::Sender<Result<wire::HubMessage, Status>>,
        sent: Arc<Mutex<BTreeSet<ReportId>>>,
    ) {
        let mut arrives = Instant::now();
        while let Some(message) = source.next().await {
            arrives = self.way(arrives, edge, hub).await;
            let message = match message {
                Err(status) => {
                    self.0.frame.note(format_args!("hub {hub} -> {edge}: {status}"));
                    let _ = destination.send(Err(status)).await;
                    return;
                }
                Ok(message) => message,
            };
            let bytes = message.encode_to_vec();
            match HubMessage::try_from(message) {
                Ok(message) => {
                    self.note(edge, "<-", hub, message.name(), &bytes);
                    let sent = lock(&sent).clone();
                    self.0.inspect.hub_sent(edge, &message, &sent);
                }
                Err(error) => self.0.frame.broken(format_args!("hub {hub} sent: {error}")),
            }
            let message = wire::HubMessage::decode(bytes.as_slice());
            let message = message.map_err(|error| Status::internal(error.to_string()));
            if destination.send(message).await.is_err() {
                return;
            }
        }
    }

    /// Waits until a message that is sent now arrives.
    async fn way(&self, before: Instant, edge: usize, hub: usize) -> Instant {
        let arrives = before.max(Instant::now() + self.0.frame.delay(WAY_MS_MAX));
        sleep_until(arrives).await;
        self.moving(edge, hub).await;
        arrives
    }

    /// Waits while the link stalls.
    async fn moving(&self, edge: usize, hub: usize) {
        loop {
            let bell = self.0.bell.notified();
            if !lock(&self.0.state).stalled.contains(&(edge, hub)) {
                return;
            }
            bell.await;
        }
    }

    fn break_where(&self, breaks: impl Fn((usize, usize)) -> bool) {
        lock(&self.0.state).live.retain(|(edge, hub, broken)| {
            let keeps = !breaks((*edge, *hub)) && !broken.is_cancelled();
            if !keeps {
                broken.cancel();
            }
            keeps
        });
    }

    fn note(&self, edge: usize, arrow: &str, hub: usize, name: &str, bytes: &[u8]) {
        let (length, hash) = (bytes.len(), blake3_short(bytes));
        self.0.frame.note(format_args!("edge {edge} {arrow} hub {hub}: {name} {length} {hash}"));
    }
}

/// A moment in which everything that is due happens.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);
