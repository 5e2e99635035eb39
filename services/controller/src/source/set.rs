//! SourceSet sources as one: their lists are one list, and each object has one source.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::select_all;
use headwater_event::ResourceKey;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    Notice, NoticeKind, PublishedObjects, SOURCE_QUEUE_EVENTS, Source, SourceError, SourceEvent,
    tell,
};

/// Sources that are told as one.
///
/// The list is complete when each has listed; until then, one that has is not listened to. Of an
/// object that two of them tell, the first to tell it is its source, and the other is told of in a
/// notice. When one fails, all stop.
pub struct SourceSet {
    sources: Vec<Box<dyn Source>>,
}

impl SourceSet {
    /// The sources, all of which start together. None of them may begin a second list.
    pub fn new(sources: Vec<Box<dyn Source>>) -> Self {
        Self { sources }
    }
}

#[async_trait]
impl Source for SourceSet {
    async fn run(
        self: Box<Self>,
        published: Arc<dyn PublishedObjects>,
        events: mpsc::Sender<SourceEvent>,
        stop: CancellationToken,
    ) -> Result<(), SourceError> {
        let stop = stop.child_token();
        let _stops_all = stop.clone().drop_guard();
        let mut running = JoinSet::new();
        let mut sources = Vec::new();
        for source in self.sources {
            let (told, heard) = mpsc::channel(SOURCE_QUEUE_EVENTS);
            running.spawn(source.run(published.clone(), told, stop.clone()));
            sources.push(Member { events: heard, has_listed: false });
        }
        drop(published);
        if tell(&events, &stop, [SourceEvent::Init]).await.is_break() {
            return Ok(());
        }
        let mut owners = HashMap::new();
        let mut is_listing = true;
        loop {
            if is_listing && sources.iter().all(|source| source.has_listed) {
                is_listing = false;
                if tell(&events, &stop, [SourceEvent::InitDone]).await.is_break() {
                    return Ok(());
                }
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                (from, event) = next(&mut sources, is_listing) => {
                    let told = sort_out(&mut owners, &mut sources, from, event);
                    if tell(&events, &stop, told).await.is_break() {
                        return Ok(());
                    }
                }
                Some(ended) = running.join_next() => match ended {
                    // It was asked to stop, and so are the others.
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => return Err(error),
                    Err(source) => return Err(SourceError::Ended { what: "task", source }),
                },
            }
        }
    }
}

struct Member {
    events: mpsc::Receiver<SourceEvent>,
    has_listed: bool,
}

/// The next event, and which source it is from; while listing, only from those that still list.
async fn next(sources: &mut [Member], is_listing: bool) -> (usize, SourceEvent) {
    let listened_to = sources.iter_mut().enumerate().filter(|(_, s)| !is_listing || !s.has_listed);
    let waiting: Vec<_> = listened_to
        .map(|(at, source)| {
            Box::pin(async move {
                match source.events.recv().await {
                    Some(event) => (at, event),
                    // How it ended is seen where it runs.
                    None => pending().await,
                }
            })
        })
        .collect();
    if waiting.is_empty() {
        return pending().await;
    }
    select_all(waiting).await.0
}

/// What of an event of one source is told of all.
fn sort_out(
    owners: &mut HashMap<ResourceKey, usize>,
    sources: &mut [Member],
    from: usize,
    event: SourceEvent,
) -> Option<SourceEvent> {
    match &event {
        SourceEvent::Init => return None,
        SourceEvent::InitDone => {
            sources[from].has_listed = true;
            return None;
        }
        SourceEvent::Notice(_) => {}
        SourceEvent::InitApply(object) | SourceEvent::Apply(object, _) => {
            let key = object.key();
            if *owners.entry(key.clone()).or_insert(from) != from {
                return Some(SourceEvent::Notice(Notice {
                    file: None,
                    line: None,
                    kind: NoticeKind::Duplicate,
                    text: format!("{key} is told by two sources; the first to tell it stays"),
                }));
            }
        }
        SourceEvent::Delete { key, .. } => {
            if owners.get(key) != Some(&from) {
                return None;
            }
            owners.remove(key);
        }
    }
    Some(event)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headwater_object::Object;
    use serde_json::json;

    use super::*;
    use crate::source::{Cause, PublishedObject};

    /// A source that tells what it is given, then waits to be stopped, or fails.
    struct Script {
        events: mpsc::Receiver<SourceEvent>,
        fails: bool,
    }

    #[async_trait]
    impl Source for Script {
        async fn run(
            mut self: Box<Self>,
            _: Arc<dyn PublishedObjects>,
            events: mpsc::Sender<SourceEvent>,
            stop: CancellationToken,
        ) -> Result<(), SourceError> {
            while let Some(event) = self.events.recv().await {
                if tell(&events, &stop, [event]).await.is_break() {
                    return Ok(());
                }
            }
            if self.fails {
                return Err(SourceError::Emptied { folder: "f".to_owned(), objects: 1 });
            }
            stop.cancelled().await;
            Ok(())
        }
    }

    fn script(fails: bool) -> (mpsc::Sender<SourceEvent>, Box<dyn Source>) {
        let (told, events) = mpsc::channel(16);
        (told, Box::new(Script { events, fails }))
    }

    fn secret(name: &str, uid: &str) -> Object {
        Object::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "uid": uid},
        }))
        .expect("a secret")
    }

    fn text(event: SourceEvent) -> String {
        match event {
            SourceEvent::Init => "init".to_owned(),
            SourceEvent::InitDone => "done".to_owned(),
            SourceEvent::InitApply(object) => format!("list {}", object.uid()),
            SourceEvent::Apply(object, _) => format!("+{}", object.uid()),
            SourceEvent::Delete { uid, .. } => format!("-{uid}"),
            SourceEvent::Notice(notice) => notice.to_string(),
        }
    }

    fn start(
        sources: Vec<Box<dyn Source>>,
    ) -> (
        mpsc::Receiver<SourceEvent>,
        tokio::task::JoinHandle<Result<(), SourceError>>,
        CancellationToken,
    ) {
        let (told, events) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let published = Arc::new(BTreeMap::<ResourceKey, PublishedObject>::new());
        let ended =
            tokio::spawn(Box::new(SourceSet::new(sources)).run(published, told, stop.clone()));
        (events, ended, stop)
    }

    #[tokio::test]
    async fn the_list_is_complete_when_each_has_listed_and_the_first_to_tell_an_object_stays() {
        let ((a, first), (b, second)) = (script(false), script(false));
        let (mut events, ended, stop) = start(vec![first, second]);
        for event in [
            SourceEvent::Init,
            SourceEvent::InitApply(secret("x", "a1")),
            SourceEvent::InitDone,
            SourceEvent::Apply(secret("x", "a2"), Cause::default()),
        ] {
            a.send(event).await.expect("heard");
        }
        let mut next = async || text(events.recv().await.expect("it goes on"));
        assert_eq!(next().await, "init");
        assert_eq!(next().await, "list a1");
        let delete = |uid: &str| SourceEvent::Delete {
            key: "default/secret/x".parse().expect("a key"),
            uid: uid.to_owned(),
            cause: Cause::default(),
        };
        for event in [
            SourceEvent::Init,
            SourceEvent::InitApply(secret("x", "b1")),
            delete("b1"),
            SourceEvent::InitApply(secret("y", "b2")),
            SourceEvent::InitDone,
        ] {
            b.send(event).await.expect("heard");
        }
        assert!(next().await.contains("two sources"));
        assert_eq!(next().await, "list b2");
        assert_eq!(next().await, "done");
        assert_eq!(next().await, "+a2");
        a.send(delete("a2")).await.expect("heard");
        assert_eq!(next().await, "-a2");
        b.send(SourceEvent::Apply(secret("x", "b3"), Cause::default())).await.expect("heard");
        assert_eq!(next().await, "+b3");
        stop.cancel();
        ended.await.expect("no panic").expect("asked to");
    }

    #[tokio::test]
    async fn one_that_fails_stops_all() {
        let ((a, first), (_b, second)) = (script(true), script(false));
        let (mut events, ended, _stop) = start(vec![first, second]);
        drop(a);
        while events.recv().await.is_some() {}
        assert!(matches!(ended.await.expect("no panic"), Err(SourceError::Emptied { .. })));
    }
}
