//! What a sink gets: each change, or everything when it is slow. It never delays the controller.

use super::*;
use crate::picture::PictureChange;
use crate::sink::recording::RecordingSink;

fn keys(names: &[&str]) -> PictureChange {
    PictureChange::Keys(names.iter().map(|name| name.parse().expect("a key")).collect())
}

#[tokio::test]
async fn a_sink_gets_each_change_of_objects_and_statuses() {
    let world = World::new();
    let (sink, mut recording) = RecordingSink::new();
    let (source, script) = script();
    let running = world.start_sink(Box::new(sink), vec![script], source).await;
    recording.subscribed().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let mut seen = BTreeSet::new();
    while !seen.contains("d/configmap/c") {
        match timeout(SOON, recording.next()).await.expect("soon") {
            PictureChange::Keys(keys) => seen.extend(keys),
            PictureChange::Everything => panic!("the sink asked for each change"),
        }
    }
    assert!(seen.contains(&pod_key()) && seen.contains("null/node/a"));
    running.set(config("c", 2, "y")).await;
    assert_eq!(recording.next().await, keys(&["d/configmap/c"]));
    world.report("a", 1, status("Running")).await;
    assert_eq!(recording.next().await, keys(&["d/pod/p"]));
    running.controller.stop().await;
}

#[tokio::test]
async fn a_slow_sink_gets_everything_and_delays_neither_the_publisher_nor_the_fold() {
    let world = World::new();
    let (sink, mut recording) = RecordingSink::new();
    let (source, script) = script();
    let running = world.start_sink(Box::new(sink), vec![script], source).await;
    recording.subscribed().await;
    running.list([pod("p", "c"), config("c", 0, "x")]).await;
    // The sink asks for nothing meanwhile, and more groups of changes come than are kept.
    for version in 1..=100 {
        world.report("a", version, status(&version.to_string())).await;
        let shown = Some(version.to_string());
        until_true("the status", async || phase(&running).await == shown).await;
    }
    running.set(config("c", 200, "y")).await;
    until_true("the last event", async || {
        let (events, _) = world.read().await;
        events.iter().any(|event| event.event.resource_version() == "200")
    })
    .await;
    assert_eq!(recording.next().await, PictureChange::Everything);
    running.set(config("c", 201, "last")).await;
    assert_eq!(recording.next().await, keys(&["d/configmap/c"]));
    running.controller.stop().await;
}

#[tokio::test]
async fn a_pod_that_ended_before_its_deletion_is_removed_once_it_is_under_deletion() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let ended = ReportBody::PodTerminated { pod: pod_key(), uid: "u-p".to_owned() };
    world.report("a", 1, ended).await;
    running.folds("a").await;
    let mut dying = pod_value("p", "c");
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    running.set(object(dying)).await;
    until_true("the removal", async || {
        world.events_in("node/a").await.contains(&"-d/pod/p".to_owned())
    })
    .await;
    running.controller.stop().await;
    world.check("node/a", &[]).await;
}

/// A source whose pods are deleted by another client.
struct ForeignPods(Box<dyn Source>);

#[async_trait]
impl Source for ForeignPods {
    fn kind(&self) -> SourceKind {
        self.0.kind()
    }

    async fn run(self: Box<Self>, context: SourceContext) -> Result<(), SourceError> {
        self.0.run(context).await
    }
}

#[tokio::test]
async fn changes_are_gathered_for_the_removal_of_pods_only_where_a_writer_needs_it() {
    let world = World::new();
    let running = world.start().await;
    let is_watched = |running: &Running| running.controller.picture().is_watched();
    assert!(!is_watched(&running), "nothing is listed");
    running.list([pod("p", "c")]).await;
    until_true("a subscription", async || is_watched(&running)).await;
    let standby = world.elsewhere().start().await;
    standby.send([SourceEvent::Init, SourceEvent::InitDone]).await;
    let mut progress = standby.controller.progress();
    progress.wait_for(|now| now.is_standby).await.expect("it runs");
    assert!(!is_watched(&standby), "another controller writes");
    standby.controller.stop().await;
    running.controller.stop().await;

    let (source, script) = script();
    let running = world.start_with(vec![Box::new(ForeignPods(script))], source).await;
    running.list([pod("p", "c")]).await;
    world.report("a", 1, status("Running")).await;
    running.folds("a").await;
    assert!(!is_watched(&running), "no source wants removals");
    running.controller.stop().await;
}

#[tokio::test]
async fn an_append_wakes_no_reader_of_the_progress() {
    // No heartbeat comes meanwhile: that one is news.
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    let mut progress = running.controller.progress();
    let before = progress.borrow_and_update().appended;
    running.set(config("c", 1, "x")).await;
    let is_appended = async || running.controller.progress().borrow().appended > before;
    until_true("the append", is_appended).await;
    assert!(!progress.has_changed().expect("it runs"), "a count is no news");
    running.controller.stop().await;
}
