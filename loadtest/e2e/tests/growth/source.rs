//! A source that lists the objects of a fleet and then sends what it is given.

use async_trait::async_trait;
use headwater_controller::{Source, SourceContext, SourceError, SourceEvent, SourceKind};
use headwater_object::Object;
use tokio::sync::mpsc;

/// Changes that may wait for the source.
const CHANGES_MAX: usize = 16;

/// See the module.
pub(crate) struct ListedSource {
    objects: Vec<Object>,
    changes: mpsc::Receiver<SourceEvent>,
}

impl ListedSource {
    /// A source of these objects, and the sender of the changes behind them.
    pub(crate) fn new(objects: Vec<Object>) -> (mpsc::Sender<SourceEvent>, Self) {
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        (sender, Self { objects, changes })
    }
}

#[async_trait]
impl Source for ListedSource {
    fn kind(&self) -> SourceKind {
        SourceKind::OTHER
    }

    async fn run(mut self: Box<Self>, mut context: SourceContext) -> Result<(), SourceError> {
        context.events.send(SourceEvent::Init).await?;
        for object in std::mem::take(&mut self.objects) {
            context.events.send(SourceEvent::InitApply(object)).await?;
        }
        context.events.send(SourceEvent::InitDone).await?;
        loop {
            tokio::select! {
                () = context.stop.cancelled() => return Ok(()),
                Some(event) = self.changes.recv() => context.events.send(event).await?,
            }
        }
    }
}
