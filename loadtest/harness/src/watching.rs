//! What becomes visible at an edge, as its local API delivers it, and the receivers.
//!
//! The watch delivers only what is durable at the edge, so a change that a [`Witness`] receives has
//! passed every step.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{Object, WatchEvent, WatchRequest};
use tonic::transport::{Channel, Error};

use crate::object;
use crate::socket;

/// Before an edge is asked again that did not answer, or whose watch ended: it may be starting.
const AGAIN: Duration = Duration::from_millis(5);

/// The largest listing that an edge gives.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Receives what becomes visible at each edge. Called from many tasks; must not block.
pub trait Witness: Send + Sync + 'static {
    /// An object came, changed, or is listed once more by a watch that began anew.
    fn applied(&self, edge: usize, object: &Object, at: Instant);

    /// An object is gone.
    fn removed(&self, edge: usize, key: &str, at: Instant);

    /// A watch of `group` has listed everything that it sees: what is not in `keys` is not there.
    fn listed(&self, edge: usize, group: Group, keys: &BTreeSet<String>, at: Instant);
}

/// The group of a watch: an edge delivers to each group what is routed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// The pod worker: pods and what they name.
    Edged,
    /// The service mesh: services and where they are served.
    Mesh,
}

impl Group {
    /// The group that receives objects of a kind.
    pub fn of(kind: object::Kind) -> Self {
        match kind {
            object::Kind::Service => Self::Mesh,
            object::Kind::Pod | object::Kind::ConfigMap => Self::Edged,
        }
    }

    pub(crate) fn request(self) -> WatchRequest {
        let subscriber = match self {
            Self::Edged => "edged",
            Self::Mesh => "mesh",
        };
        WatchRequest { subscriber: subscriber.to_owned(), ..WatchRequest::default() }
    }
}

/// Passes to `witness` what the edge with this socket shows of `group`, until it is cancelled. An edge that does
/// not answer is asked again.
pub async fn watch_edge(edge: usize, group: Group, socket: PathBuf, witness: Arc<dyn Witness>) {
    loop {
        if let Ok(mut client) = connect(&socket).await
            && let Ok(events) = client.watch(group.request()).await
        {
            let mut events = events.into_inner();
            let mut watching = Watching::new(edge, group, &*witness);
            while let Some(Ok(event)) = events.next().await {
                watching.take(event);
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn connect(socket: &Path) -> Result<MetaClient<Channel>, Error> {
    let channel = socket::connect(socket).await?;
    Ok(MetaClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// A watch of one edge, from its first event to its end.
pub(crate) struct Watching<'a> {
    edge: usize,
    group: Group,
    witness: &'a dyn Witness,
    listing: Option<BTreeSet<String>>,
}

impl<'a> Watching<'a> {
    /// Passes what a watch of `group` at `edge` delivers to `witness`.
    pub(crate) fn new(edge: usize, group: Group, witness: &'a dyn Witness) -> Self {
        Self { edge, group, witness, listing: None }
    }

    /// Takes the next event; gives the object that came with it.
    pub(crate) fn take(&mut self, event: WatchEvent) -> Option<Object> {
        let at = Instant::now();
        let (kind, complete) = (event.kind(), event.complete);
        match (kind, event.object) {
            (Kind::Init, _) => self.listing = Some(BTreeSet::new()),
            (Kind::InitDone, _) => {
                if let Some(keys) = self.listing.take().filter(|_| complete) {
                    self.witness.listed(self.edge, self.group, &keys, at);
                }
            }
            (Kind::InitApply | Kind::Apply, Some(object)) => {
                self.witness.applied(self.edge, &object, at);
                if let Some(listing) = &mut self.listing {
                    listing.insert(object.key.clone());
                }
                return Some(object);
            }
            (Kind::Delete, Some(object)) => self.witness.removed(self.edge, &object.key, at),
            _ => {}
        }
        None
    }
}
