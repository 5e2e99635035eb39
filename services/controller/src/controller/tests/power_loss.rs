//! A fold of what is published that a loss of power took back: the log has the rest.

use std::ops::ControlFlow;

use headwater_store::Survival;

use super::*;

/// A source that passes on the published objects that it receives, and lists nothing.
pub(super) struct PublishedProbe(pub(super) mpsc::Sender<Vec<(String, String)>>);

#[async_trait]
impl Source for PublishedProbe {
    fn kind(&self) -> SourceKind {
        SourceKind::OTHER
    }

    async fn run(self: Box<Self>, context: SourceContext) -> Result<(), SourceError> {
        let mut found = Vec::new();
        let read = context.published.read(&mut |key, object| {
            found.push((key.to_string(), object.uid));
            ControlFlow::Continue(())
        });
        read.expect("memory is readable");
        let _ = self.0.send(found).await;
        context.stop.cancelled().await;
        Ok(())
    }
}

#[tokio::test]
async fn a_source_receives_everything_published_also_after_a_loss_of_power() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("first", "c")]).await;
    running.controller.stop().await;
    // What is on the disk by now; what follows is lost with the power.
    let synced = Arc::new(world.published.crash(Survival::Everything));

    let later = World { published: Arc::new(synced.reopen()), ..world.clone() };
    let running = later.start().await;
    running.list([pod("second", "c")]).await;
    running.controller.stop().await;

    let fallen_back = World { published: Arc::new(synced.reopen()), ..world };
    let (sender, mut receiver) = mpsc::channel(1);
    let (unused, _) = mpsc::channel(1);
    let running = fallen_back.start_with(vec![Box::new(PublishedProbe(sender))], unused).await;
    let found = receiver.recv().await.expect("it runs");
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["d/pod/second"], "the first was removed, the second keeps its UID");
    assert!(!found[0].1.is_empty());
    running.controller.stop().await;
}
