//! A sink that records what it gets, for tests. It waits for the test before it asks for the next
//! change, so a test decides how slow it is.

use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::{Sink, SinkContext};
use crate::picture::PictureChange;

/// See the module.
pub(crate) struct RecordingSink {
    subscribed: Arc<Notify>,
    turns: Arc<Semaphore>,
    changes: mpsc::Sender<PictureChange>,
}

/// The test's end of a recording sink.
pub(crate) struct Recording {
    subscribed: Arc<Notify>,
    turns: Arc<Semaphore>,
    changes: mpsc::Receiver<PictureChange>,
}

impl RecordingSink {
    pub(crate) fn new() -> (Self, Recording) {
        let (subscribed, turns) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let (sender, changes) = mpsc::channel(1);
        let recording = Recording { subscribed: subscribed.clone(), turns: turns.clone(), changes };
        (Self { subscribed, turns, changes: sender }, recording)
    }
}

impl Recording {
    /// Waits until the sink has subscribed.
    pub(crate) async fn subscribed(&self) {
        self.subscribed.notified().await;
    }

    /// Lets the sink ask once, and returns what it got.
    pub(crate) async fn next(&mut self) -> PictureChange {
        self.turns.add_permits(1);
        self.changes.recv().await.expect("the sink runs")
    }
}

#[async_trait]
impl Sink for RecordingSink {
    async fn run(self: Box<Self>, context: SinkContext) {
        let mut changes = context.picture.changes();
        self.subscribed.notify_one();
        loop {
            let Ok(turn) = self.turns.acquire().await else { return };
            turn.forget();
            let Some(change) = changes.next().await else { return };
            if self.changes.send(change).await.is_err() {
                return;
            }
        }
    }
}
