//! A source of many objects that sends only those that the nodes use.

use tokio::sync::oneshot;

use super::*;
use crate::source::SourceState;

/// A source that has far more objects than it sends: its pods, and what the streams name.
struct LargeSource {
    pods: mpsc::Receiver<Object>,
    configs: Vec<Object>,
}

#[async_trait]
impl Source for LargeSource {
    fn kind(&self) -> SourceKind {
        SourceKind::new("large")
    }

    async fn run(mut self: Box<Self>, mut context: SourceContext) -> Result<(), SourceError> {
        context.states.set("configmaps", SourceState::Listing);
        context.events.send_all(vec![SourceEvent::Init, SourceEvent::InitDone]).await?;
        context.states.set("configmaps", SourceState::Following);
        loop {
            tokio::select! {
                () = context.stop.cancelled() => return Ok(()),
                Some(pod) = self.pods.recv() => {
                    context.events.send(SourceEvent::Apply(pod, Cause::default())).await?;
                }
                () = context.wanted.changed() => {
                    for key in context.wanted.missing() {
                        let found = self.configs.iter().find(|config| *config.key() == key);
                        if let Some(found) = found.cloned() {
                            let event = SourceEvent::Apply(found, Cause::default());
                            context.events.send(event).await?;
                        }
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_source_sends_what_the_streams_name_and_nothing_else() {
    let world = World::new();
    let (pods, receiver) = mpsc::channel(1);
    let configs = (0..100).map(|number| config(&format!("c{number}"), 1, "x")).collect();
    let source = LargeSource { pods: receiver, configs };
    let running = world.start_with(vec![Box::new(source)], mpsc::channel(1).0).await;
    running.reconciled(0).await;
    assert_eq!(running.controller.readiness().check(), Ok(()));
    assert!(running.controller.source_states().borrow().unready().is_empty());
    for (name, config) in [("p", "c7"), ("q", "c8"), ("r", "c7")] {
        pods.send(pod(name, config)).await.expect("the source runs");
    }
    until_true("all three pods and what they name", async || {
        world.events_in("node/a").await.len() == 5
    })
    .await;
    running.controller.stop().await;
    let expected = ["d/pod/p", "d/pod/q", "d/pod/r", "d/configmap/c7", "d/configmap/c8"];
    world.check("node/a", &expected).await;
}

#[tokio::test]
async fn a_controller_whose_source_lists_names_it_as_the_reason_that_it_is_not_ready() {
    let world = World::new();
    let running = world.start().await;
    let unready = || running.controller.readiness().check().expect_err("nothing is listed");
    until_true("the reason", async || {
        unready() == "the sources have not all listed: other: listing"
    })
    .await;
    running.list([pod("p", "c")]).await;
    assert_eq!(running.controller.readiness().check(), Ok(()));
    running.controller.stop().await;
}

/// A source that lists nothing, and fails for good on demand.
struct FailingSource(oneshot::Receiver<()>);

#[async_trait]
impl Source for FailingSource {
    fn kind(&self) -> SourceKind {
        SourceKind::MANIFESTS
    }

    async fn run(self: Box<Self>, mut context: SourceContext) -> Result<(), SourceError> {
        context.events.send_all(vec![SourceEvent::Init, SourceEvent::InitDone]).await?;
        let _ = self.0.await;
        Err(SourceError::new("folder", "the folder cannot be read"))
    }
}

#[tokio::test]
async fn a_writer_whose_source_stopped_for_good_is_not_ready() {
    let world = World::new();
    let (fail, receiver) = oneshot::channel();
    let sources: Vec<Box<dyn Source>> = vec![Box::new(FailingSource(receiver))];
    let running = world.start_with(sources, mpsc::channel(1).0).await;
    running.reconciled(0).await;
    assert_eq!(running.controller.readiness().check(), Ok(()));
    fail.send(()).expect("the source runs");
    until_true("the end of the source", async || running.controller.readiness().check().is_err())
        .await;
    assert_eq!(
        running.controller.readiness().check().expect_err("it stopped"),
        "the source manifests failed: the folder cannot be read; restart the controller"
    );
    running.controller.stop().await;
}
