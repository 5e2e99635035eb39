//! The pods of a node as its worker sees them: a watch of the edge's local API, which delivers only what
//! is synced, and is opened again when it ends.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headwater_loadtest::socket::connect;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{WatchEvent, WatchRequest};
use tokio::runtime::Runtime;
use tonic::Streaming;

use crate::failure::{Attempt, Failure};
use crate::link::wait;
use crate::pods::turn_of;

/// Before a watch that ended is begun again.
const AGAIN: Duration = Duration::from_millis(2);

/// What was seen so far. The watch goes on as long as its runtime.
pub(crate) struct Worker(Arc<Mutex<Sight>>);

/// What a worker knows.
#[derive(Default)]
pub(crate) struct Sight {
    pods: BTreeSet<String>,
    /// When the pod that a turn made was there first.
    turns: HashMap<u64, Instant>,
    /// The moment of the last notification.
    last: Option<Instant>,
}

impl Worker {
    /// Watches the edge behind `socket`, now or as soon as there is one.
    pub(crate) fn begin(socket: PathBuf, runtime: &Runtime) -> Self {
        let sight = Arc::new(Mutex::new(Sight::default()));
        let shown = sight.clone();
        runtime.spawn(async move {
            loop {
                // The edge may not have begun, or have been killed.
                let _ = watch(&socket, &shown).await;
                tokio::time::sleep(AGAIN).await;
            }
        });
        Self(sight)
    }

    /// Waits until what is seen `is_right`, and gives when the last of it came.
    ///
    /// # Errors
    /// When it does not come about.
    pub(crate) fn until(
        &self,
        what: &str,
        is_right: impl Fn(&Sight) -> bool,
    ) -> Result<Instant, Failure> {
        wait(what, || {
            let sight = lock(&self.0);
            is_right(&sight).then(|| sight.last.unwrap_or_else(Instant::now))
        })
    }

    /// When the pod that `turn` made was there first.
    pub(crate) fn at(&self, turn: u64) -> Option<Instant> {
        lock(&self.0).turns.get(&turn).copied()
    }
}

impl Sight {
    /// How many pods there are.
    pub(crate) fn pods(&self) -> usize {
        self.pods.len()
    }

    /// Whether each of these turns was seen.
    pub(crate) fn has(&self, mut turns: impl Iterator<Item = u64>) -> bool {
        turns.all(|turn| self.turns.contains_key(&turn))
    }

    fn take(&mut self, event: WatchEvent) {
        let kind = event.kind();
        let object = event.object.unwrap_or_default();
        match kind {
            Kind::Init => self.pods.clear(),
            Kind::Apply | Kind::InitApply => {
                if let Some(turn) = turn_of(&object.object) {
                    self.turns.entry(turn).or_insert_with(Instant::now);
                }
                self.pods.insert(object.key);
            }
            Kind::Delete => {
                self.pods.remove(&object.key);
            }
            Kind::InitDone | Kind::Operation | Kind::Unspecified => return,
        }
        self.last = Some(Instant::now());
    }
}

/// The pods of the edge behind `socket`, and what becomes of them.
///
/// # Errors
/// When the edge does not answer.
pub(crate) async fn pods(socket: &Path) -> Result<Streaming<WatchEvent>, Failure> {
    let channel = connect(socket).await.tried("asking the edge")?;
    let request = WatchRequest {
        subscriber: "edged".to_owned(),
        types: vec!["pod".to_owned()],
        ..WatchRequest::default()
    };
    let mut client = MetaClient::new(channel).max_decoding_message_size(usize::MAX);
    Ok(client.watch(request).await.tried("watching")?.into_inner())
}

async fn watch(socket: &Path, sight: &Mutex<Sight>) -> Result<(), Failure> {
    let mut events = pods(socket).await?;
    while let Some(event) = events.message().await.tried("watching")? {
        lock(sight).take(event);
    }
    Ok(())
}

fn lock(sight: &Mutex<Sight>) -> MutexGuard<'_, Sight> {
    // No holder panics.
    sight.lock().unwrap_or_else(PoisonError::into_inner)
}
