//! The whole source on a real folder: editors, half-written files, and the watch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use headwater_event::ResourceKey;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::source::{PublishedObject, SourceStates};

/// The time limit of a notification: far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A source that runs on a temporary folder.
struct Running {
    folder: tempfile::TempDir,
    events: mpsc::Receiver<SourceEvent>,
    nodes: value_watch::Sender<BTreeSet<NodeName>>,
    states: value_watch::Receiver<SourceStates>,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<Result<(), SourceError>>,
}

impl Running {
    fn start(files: &[(&str, &str)], rescan: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            fs::write(folder.path().join(path), text).expect("written");
        }
        let settings = ManifestSettings {
            quiet: Duration::from_millis(20),
            rescan,
            ..ManifestSettings::new(folder.path())
        };
        let (nodes, given) = value_watch::channel(BTreeSet::from(["a".parse().expect("ok")]));
        let (sender, events) = mpsc::channel(4);
        let stop = CancellationToken::new();
        let source = Box::new(ManifestFolder::new(settings, given));
        let published = BTreeMap::<ResourceKey, PublishedObject>::new();
        let context = SourceContext::detached(published, sender, &stop);
        let states = context.states.subscribe();
        let ended = tokio::spawn(source.run(context));
        Self { folder, events, nodes, states, stop, ended }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The next event that is no notice, as text.
    async fn next(&mut self) -> String {
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await;
            match event.expect("in time").expect("the source goes on") {
                SourceEvent::Notice(notice) => eprintln!("{notice}"),
                SourceEvent::TakenOver { epoch } => return format!("taken over {epoch}"),
                SourceEvent::Init => return "init".to_owned(),
                SourceEvent::InitDone => return "done".to_owned(),
                SourceEvent::InitApply(object) | SourceEvent::Apply(object, _) => {
                    return format!("+{} {}", object.key(), object.value()["data"]["k"]);
                }
                SourceEvent::Delete { key, .. } => return format!("-{key}"),
            }
        }
    }

    async fn first_list(&mut self) {
        while self.next().await != "done" {}
    }

    async fn stopped(self) -> Result<(), SourceError> {
        self.stop.cancel();
        timeout(PATIENCE, self.ended).await.expect("in time").expect("no panic")
    }
}

fn config_map(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: {data}}}\n")
}

const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn changes_are_seen_however_a_file_is_written() {
    let mut source = Running::start(&[("c.yaml", &config_map("c", "v1"))], NEVER);
    assert_eq!(source.next().await, "init");
    assert_eq!(source.next().await, "+default/configmap/c \"v1\"");
    assert_eq!(source.next().await, "done");

    fs::write(source.path("c.yaml"), config_map("c", "v2")).expect("written in place");
    assert_eq!(source.next().await, "+default/configmap/c \"v2\"");

    fs::write(source.path(".c.yaml.swp"), config_map("c", "v3")).expect("written beside");
    fs::rename(source.path(".c.yaml.swp"), source.path("c.yaml")).expect("renamed over");
    assert_eq!(source.next().await, "+default/configmap/c \"v3\"");

    fs::create_dir(source.path("new")).expect("a folder");
    fs::write(source.path("new/d.yaml"), config_map("d", "v1")).expect("written");
    assert_eq!(source.next().await, "+default/configmap/d \"v1\"");

    fs::remove_file(source.path("c.yaml")).expect("removed");
    assert_eq!(source.next().await, "-default/configmap/c");
    source.stopped().await.expect("asked to");
}

#[tokio::test]
async fn a_file_touched_or_half_written_changes_nothing() {
    let mut source = Running::start(&[("c.yaml", &config_map("c", "v1"))], NEVER);
    source.first_list().await;
    fs::write(source.path("c.yaml"), config_map("c", "v1")).expect("touched");
    fs::write(source.path("c.yaml"), "").expect("emptied");
    fs::write(source.path("c.yaml"), config_map("c", "v2").trim_end_matches("}\n")).expect("half");
    // What comes next is this, and nothing before it.
    fs::write(source.path("d.yaml"), config_map("d", "v1")).expect("written");
    assert_eq!(source.next().await, "+default/configmap/d \"v1\"");
    fs::write(source.path("c.yaml"), config_map("c", "v2")).expect("whole");
    assert_eq!(source.next().await, "+default/configmap/c \"v2\"");
    source.stopped().await.expect("asked to");
}

#[tokio::test]
async fn a_folder_is_scanned_again_without_a_notification() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let real = folder.path().join("real.yaml");
    fs::write(&real, config_map("c", "v1")).expect("written");
    let mut source = Running::start(&[], Duration::from_millis(50));
    std::os::unix::fs::symlink(&real, source.path("c.yaml")).expect("linked");
    loop {
        if source.next().await == "+default/configmap/c \"v1\"" {
            break;
        }
    }
    // No watch lies on what a link points to.
    fs::write(&real, config_map("c", "v2")).expect("written");
    loop {
        if source.next().await == "+default/configmap/c \"v2\"" {
            break;
        }
    }
    source.stopped().await.expect("asked to");
}

#[tokio::test]
async fn another_set_of_nodes_is_looked_at_at_once() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n";
    let mut source = Running::start(&[("p.yaml", pod)], NEVER);
    source.first_list().await;
    source.nodes.send(BTreeSet::from(["b".parse().expect("ok")])).expect("received");
    assert_eq!(source.next().await, "-default/pod/p");
    assert_eq!(source.next().await, "+default/pod/p null");
    source.stopped().await.expect("asked to");
}

/// The next notice of this kind, as text.
async fn notice(source: &mut Running, kind: NoticeKind) -> String {
    loop {
        let event = timeout(PATIENCE, source.events.recv()).await;
        match event.expect("in time").expect("the source goes on") {
            SourceEvent::Notice(notice) if notice.kind == kind => return notice.to_string(),
            SourceEvent::Notice(notice) => eprintln!("{notice}"),
            other => panic!("nothing is taken away or changed: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_emptied_folder_takes_nothing_away_and_is_followed_when_its_files_are_back() {
    let files = [("c.yaml", config_map("c", "v1")), ("d.yaml", config_map("d", "v1"))];
    let start: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, &**text)).collect();
    let mut source = Running::start(&start, NEVER);
    source.first_list().await;
    for (path, _) in &files {
        fs::remove_file(source.path(path)).expect("removed");
    }
    // The removal of the first file alone is an ordinary change.
    let text = loop {
        let event = timeout(PATIENCE, source.events.recv()).await;
        match event.expect("in time").expect("the source goes on") {
            SourceEvent::Notice(notice) if notice.kind == NoticeKind::Source => break notice.text,
            SourceEvent::Delete { key, .. } if key.name() == "c" => {}
            other => eprintln!("{other:?}"),
        }
    };
    assert!(text.contains("--allow-empty") && text.contains("when the files are back"), "{text}");
    // The first file alone must not remove the objects of the second one.
    fs::write(source.path("c.yaml"), config_map("c", "v2")).expect("written");
    fs::write(source.path("d.yaml"), config_map("d", "v1")).expect("written");
    assert_eq!(source.next().await, "+default/configmap/c \"v2\"");
    let text = notice(&mut source, NoticeKind::Repaired).await;
    assert!(text.ends_with("is in order and followed again"), "{text}");
    fs::write(source.path("d.yaml"), config_map("d", "v2")).expect("written");
    assert_eq!(source.next().await, "+default/configmap/d \"v2\"");
    source.stopped().await.expect("asked to");
}

#[tokio::test]
async fn a_folder_that_is_removed_and_made_again_is_followed_again() {
    let mut source = Running::start(&[("c.yaml", &config_map("c", "v1"))], NEVER);
    source.first_list().await;
    let (folder, aside) =
        (source.folder.path().to_owned(), source.folder.path().with_extension("x"));
    fs::rename(&folder, &aside).expect("moved");
    let text = notice(&mut source, NoticeKind::Source).await;
    assert!(text.contains("cannot be read"), "{text}");
    fs::rename(&aside, &folder).expect("moved back");
    notice(&mut source, NoticeKind::Repaired).await;
    // The new watch sees a change; the next scan without one is an hour away.
    fs::write(source.path("c.yaml"), config_map("c", "v2")).expect("written");
    assert_eq!(source.next().await, "+default/configmap/c \"v2\"");
    source.stopped().await.expect("asked to");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error_with_its_name() {
    let settings = ManifestSettings::new(Path::new("/nowhere/at/all"));
    let (_nodes, given) = value_watch::channel(BTreeSet::new());
    let (sender, mut events) = mpsc::channel(4);
    let published = BTreeMap::<ResourceKey, PublishedObject>::new();
    let source = Box::new(ManifestFolder::new(settings, given));
    let stop = CancellationToken::new();
    let ended = source.run(SourceContext::detached(published, sender, &stop)).await;
    assert!(ended.expect_err("no folder").to_string().contains("/nowhere/at/all"));
    while events.recv().await.is_some_and(|event| matches!(event, SourceEvent::Notice(_))) {}
    assert!(events.recv().await.is_none());
}

#[test]
fn a_source_whose_look_hangs_is_lost_after_a_minute_and_follows_when_the_look_has_ended() {
    // A look waits while the only thread for it is taken, as one does whose file system is away.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut source = Running::start(&[("c.yaml", &config_map("c", "v1"))], RESCAN_DEFAULT);
        let states = source.states.clone();
        let is = |is_wanted: fn(&SourceState) -> bool| {
            states.borrow().iter().all(|(part, state)| !part.part.is_empty() || is_wanted(state))
        };
        let follows = || is(|state| *state == SourceState::Following);
        source.first_list().await;
        let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
        let taken = tokio::task::spawn_blocking(move || released.recv());
        let pass = async |time: Duration| {
            tokio::time::advance(time).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        pass(RESCAN_DEFAULT).await;
        pass(LOOK_USUAL - Duration::from_secs(1)).await;
        assert!(follows(), "a large folder takes a while");
        pass(Duration::from_secs(2)).await;
        let is_lost = is(|state| matches!(state, SourceState::Failed { retry_ms: Some(_), .. }));
        assert!(is_lost, "{:?}", states.borrow());
        drop(release);
        assert!(taken.await.expect("no panic").is_err());
        let end = std::time::Instant::now() + PATIENCE;
        while !follows() {
            assert!(std::time::Instant::now() < end, "{:?}", states.borrow());
            tokio::task::yield_now().await;
        }
        source.stopped().await.expect("asked to");
    });
}
