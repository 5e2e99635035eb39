//! A sink that records what it gets, for tests. It waits for the test before it asks for the next
//! change, so a test decides how slow it is.

use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

use super::{Sink, SinkContext};
use crate::picture::PictureChange;

/// See the module.
pub(crate) struct RecordingSink {
    turns: Arc<Semaphore>,
    changes: mpsc::Sender<PictureChange>,
}

/// The test's end of a recording sink.
pub(crate) struct Recording {
    turns: Arc<Semaphore>,
    changes: mpsc::Receiver<PictureChange>,
}

impl RecordingSink {
    pub(crate) fn new() -> (Self, Recording) {
        let turns = Arc::new(Semaphore::new(0));
        let (sender, changes) = mpsc::channel(1);
        (Self { turns: turns.clone(), changes: sender }, Recording { turns, changes })
    }
}

impl Recording {
    /// Lets the sink ask once, and returns what it got.
    pub(crate) async fn next(&mut self) -> PictureChange {
        self.turns.add_permits(1);
        self.changes.recv().await.expect("the sink runs")
    }
}

#[async_trait]
impl Sink for RecordingSink {
    async fn run(self: Box<Self>, mut context: SinkContext) {
        loop {
            let Ok(turn) = self.turns.acquire().await else { return };
            turn.forget();
            let Some(change) = context.changes.next().await else { return };
            if self.changes.send(change).await.is_err() {
                return;
            }
        }
    }
}
