//! Sources that run together, driven by scripts.

use std::collections::BTreeMap;

use headwater_object::Object;
use prometheus::Registry;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::interest::SharedInterest;
use crate::metrics::ControllerMetrics;
use crate::source::scripted::ScriptedSource;
use crate::source::{Cause, PublishedObject, SourceKind, SourceStates};

const FIRST: SourceKind = SourceKind::new("first");
const SECOND: SourceKind = SourceKind::new("second");

struct Running {
    events: mpsc::Receiver<SourceEvent>,
    states: watch::Receiver<SourceStates>,
    ended: JoinHandle<Result<(), SourceError>>,
    stop: CancellationToken,
}

impl Running {
    fn start(sources: Vec<Box<dyn Source>>) -> Self {
        let (sender, events) = mpsc::channel(1);
        let (states_sender, states) = watch::channel(SourceStates::default());
        let (_, version) = watch::channel(0);
        let metrics = ControllerMetrics::new(&Registry::new()).expect("a fresh registry");
        let stop = CancellationToken::new();
        let context = SetContext {
            workloads: WorkloadContext::detached(),
            published: Arc::new(BTreeMap::<ResourceKey, PublishedObject>::new()),
            wanted: Wanted::new(SharedInterest::default(), version),
            events: sender,
            states: SourceStateSender::new(
                SourceKind::OTHER,
                states_sender,
                Arc::new(|| 7),
                metrics.publisher,
            ),
            stop: stop.clone(),
        };
        let ended = tokio::spawn(SourceSet::new(sources).run(context));
        Self { events, states, ended, stop }
    }

    async fn next(&mut self) -> String {
        text(self.events.recv().await.expect("the set runs"))
    }

    async fn stopped(self) {
        self.stop.cancel();
        self.ended.await.expect("no panic").expect("it was stopped");
    }
}

fn scripts() -> ([mpsc::Sender<SourceEvent>; 2], Vec<Box<dyn Source>>) {
    let (first, second) = (ScriptedSource::new(FIRST), ScriptedSource::new(SECOND));
    ([first.0, second.0], vec![Box::new(first.1), Box::new(second.1)])
}

fn secret(name: &str, uid: &str) -> Object {
    Object::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "uid": uid},
    }))
    .expect("a secret")
}

fn delete(name: &str, uid: &str) -> SourceEvent {
    SourceEvent::Delete {
        key: format!("default/secret/{name}").parse().expect("a key"),
        uid: uid.to_owned(),
        cause: Cause::default(),
    }
}

fn text(event: SourceEvent) -> String {
    match event {
        SourceEvent::Init => "init".to_owned(),
        SourceEvent::InitDone => "done".to_owned(),
        SourceEvent::InitApply(object) => format!("list {}", object.uid()),
        SourceEvent::Apply(object, _) => format!("+{}", object.uid()),
        SourceEvent::Delete { uid, .. } => format!("-{uid}"),
        SourceEvent::TakenOver { epoch } => format!("taken over {epoch}"),
        SourceEvent::Notice(notice) => notice.to_string(),
    }
}

async fn play(script: &mpsc::Sender<SourceEvent>, events: impl IntoIterator<Item = SourceEvent>) {
    for event in events {
        script.send(event).await.expect("the source runs");
    }
}

async fn list(script: &mpsc::Sender<SourceEvent>, objects: impl IntoIterator<Item = Object>) {
    play(script, [SourceEvent::Init]).await;
    play(script, objects.into_iter().map(SourceEvent::InitApply)).await;
    play(script, [SourceEvent::InitDone]).await;
}

#[tokio::test]
async fn the_list_is_complete_when_each_has_listed_and_the_first_source_of_an_object_keeps_it() {
    let ([a, b], sources) = scripts();
    let mut set = Running::start(sources);
    list(&a, [secret("x", "a1")]).await;
    play(&a, [SourceEvent::Apply(secret("x", "a2"), Cause::default())]).await;
    assert_eq!(set.next().await, "init");
    assert_eq!(set.next().await, "list a1");
    play(&b, [SourceEvent::Init, SourceEvent::InitApply(secret("x", "b1")), delete("x", "b1")])
        .await;
    play(&b, [SourceEvent::InitApply(secret("y", "b2")), SourceEvent::InitDone]).await;
    assert!(set.next().await.contains("two sources"));
    assert!(set.next().await.starts_with("repaired: default/secret/x: two sources"));
    assert_eq!(set.next().await, "list b2");
    assert_eq!(set.next().await, "done");
    assert_eq!(set.next().await, "+a2");
    play(&a, [delete("x", "a2")]).await;
    assert_eq!(set.next().await, "-a2");
    play(&b, [SourceEvent::Apply(secret("x", "b3"), Cause::default())]).await;
    assert_eq!(set.next().await, "+b3");
    set.stopped().await;
}

#[tokio::test]
async fn an_object_of_two_sources_is_a_trouble_and_that_of_the_other_takes_the_first_ones_place() {
    let ([a, b], sources) = scripts();
    let mut set = Running::start(sources);
    list(&a, [secret("x", "a1")]).await;
    assert_eq!(set.next().await, "init");
    assert_eq!(set.next().await, "list a1");
    list(&b, [secret("x", "b1")]).await;
    let text = "default/secret/x: two sources have this object, first and second; the object of first \
                counts, because it came first. Remove it from one of them";
    assert_eq!(set.next().await, text);
    assert_eq!(set.next().await, "done");
    let mut states = set.states.clone();
    let mut troubles = async |wanted: &[&str]| {
        let is_wanted = |states: &SourceStates| states.troubles() == wanted;
        drop(states.wait_for(is_wanted).await.expect("the set runs"));
    };
    troubles(&[text]).await;

    // A change of the one that does not count is no news.
    play(&b, [SourceEvent::Apply(secret("x", "b2"), Cause::default())]).await;
    play(&b, [SourceEvent::Apply(secret("z", "b3"), Cause::default())]).await;
    assert_eq!(set.next().await, "+b3");
    play(&a, [delete("x", "a1")]).await;
    assert_eq!(set.next().await, "+b2", "and nothing is deleted");
    assert_eq!(set.next().await, format!("repaired: {text}"));
    troubles(&[]).await;

    // Now the second one is the first.
    play(&a, [SourceEvent::Apply(secret("x", "a3"), Cause::default())]).await;
    assert!(set.next().await.contains("have this object, second and first"));
    play(&a, [delete("x", "a3")]).await;
    assert!(set.next().await.starts_with("repaired: "));
    play(&b, [delete("x", "b2")]).await;
    assert_eq!(set.next().await, "-b2");
    troubles(&[]).await;
    set.stopped().await;
}

#[tokio::test]
async fn an_object_that_a_source_loses_and_regains_is_deleted_and_applied_again() {
    let ([a, b], sources) = scripts();
    let mut set = Running::start(sources);
    list(&a, [secret("x", "a1"), secret("y", "a2")]).await;
    list(&b, [secret("z", "b1")]).await;
    let mut first = Vec::new();
    while first.last().is_none_or(|event| event != "done") {
        first.push(set.next().await);
    }
    // The source loses its place twice, and lists again on its own side.
    list(&a, [secret("y", "a2")]).await;
    assert_eq!(set.next().await, "-a1");
    list(&a, [secret("x", "a3"), secret("y", "a2")]).await;
    assert_eq!(set.next().await, "+a3");
    // The other source's object was never touched.
    play(&b, [delete("z", "b1")]).await;
    assert_eq!(set.next().await, "-b1");
    set.stopped().await;
}

#[tokio::test]
async fn a_source_that_fails_stops_all_and_their_states_have_the_reason() {
    let ((a, first), (b, second)) = (ScriptedSource::new(FIRST), ScriptedSource::new(SECOND));
    let mut set = Running::start(vec![Box::new(first.failing()), Box::new(second)]);
    for script in [&a, &b] {
        list(script, []).await;
    }
    while set.next().await != "done" {}
    assert!(set.states.borrow().troubles().is_empty(), "both follow");
    drop(a);
    while set.events.recv().await.is_some() {}
    let error = set.ended.await.expect("no panic").expect_err("one fails");
    assert_eq!(error.reason(), "scripted");
    let unready = set.states.borrow().unready();
    let by_the_first = "all sources stop when one fails: as the test asks";
    assert_eq!(
        unready,
        ["first: failed: as the test asks".to_owned(), format!("second: failed: {by_the_first}")]
    );
    let stopped = |source, cause| {
        format!(
            "the source {source} stopped at 1970-01-01T00:00:00Z: {cause}; pods keep running; \
             restart the controller to follow the source again"
        )
    };
    assert_eq!(
        set.states.borrow().troubles(),
        [stopped("first", "as the test asks"), stopped("second", by_the_first),]
    );
}

/// A source with a defect.
struct PanicSource;

#[async_trait::async_trait]
impl Source for PanicSource {
    fn kind(&self) -> SourceKind {
        FIRST
    }

    async fn run(self: Box<Self>, _: SourceContext) -> Result<(), SourceError> {
        panic!("as the test asks")
    }
}

#[tokio::test]
async fn one_that_panics_has_stopped_alone_or_with_others() {
    let (_script, second) = ScriptedSource::new(SECOND);
    let others: [Vec<Box<dyn Source>>; 2] = [Vec::new(), vec![Box::new(second)]];
    for mut sources in others {
        let count = sources.len() + 1;
        sources.push(Box::new(PanicSource));
        let mut set = Running::start(sources);
        while set.events.recv().await.is_some() {}
        let error = set.ended.await.expect("no panic of the set").expect_err("a source fails");
        assert_eq!(error.reason(), "ended");
        let troubles = set.states.borrow().troubles();
        assert_eq!(troubles.len(), count);
        assert!(troubles.iter().all(|text| text.contains("stopped at")), "{troubles:?}");
    }
}

#[tokio::test]
async fn each_part_that_does_not_follow_is_a_trouble_until_it_follows_or_its_source_ends() {
    let (sender, states) = watch::channel(SourceStates::default());
    let registry = Registry::new();
    let metrics = ControllerMetrics::new(&registry).expect("a fresh registry");
    let sender = SourceStateSender::new(FIRST, sender, Arc::new(|| 61_000), metrics.publisher);
    let troubles = || states.borrow().troubles();
    sender.set("", SourceState::Following);
    sender.set("pods", SourceState::Listing);
    sender.fail("secrets", "403".to_owned(), Some(62_000));
    assert_eq!(
        troubles(),
        [
            "the source first pods is still listing; its objects are not all published yet",
            "the source first secrets failed at 1970-01-01T00:01:01Z and tries again: 403",
        ]
    );
    sender.set("pods", SourceState::Following);
    sender.set("secrets", SourceState::Following);
    assert!(troubles().is_empty());
    sender.end("no more".to_owned());
    sender.end("a later cause".to_owned());
    let stopped = "the source first stopped at 1970-01-01T00:01:01Z: no more; pods keep running; \
                   restart the controller to follow the source again";
    assert_eq!(troubles(), [stopped]);
    let following = registry
        .gather()
        .into_iter()
        .find(|family| family.name() == "headwater_controller_source_following");
    let following = following.expect("the family");
    assert_eq!(following.get_metric().len(), 3);
    assert!(following.get_metric().iter().all(|part| part.get_gauge().get_value() == 0.0));
}

#[tokio::test]
async fn a_source_that_lists_twice_is_stopped_and_nothing_is_deleted() {
    let (sender, mut events) = mpsc::channel(16);
    let (states_sender, states) = watch::channel(SourceStates::default());
    let metrics = ControllerMetrics::new(&Registry::new()).expect("a fresh registry");
    let clock: headwater_follow::WallClock = Arc::new(|| 7);
    let states_sender = SourceStateSender::new(FIRST, states_sender, clock, metrics.publisher);
    let mut source = SourceEventSender::new(sender, CancellationToken::new(), states_sender);
    source.send(SourceEvent::Init).await.expect("the first list");
    source.send(SourceEvent::InitDone).await.expect("the end of the list");
    assert!(states.borrow().unready().is_empty(), "it follows");
    let error = source.send(SourceEvent::Init).await.expect_err("a second list");
    assert_eq!(error.reason(), "out_of_order");
    assert!(!error.is_stop());
    drop(source);
    let mut sent = Vec::new();
    while let Some(event) = events.recv().await {
        sent.push(text(event));
    }
    assert_eq!(sent, ["init", "done"]);
}
