//! Watches: the objects, then every change of them.
//!
//! A controller names the objects that may have changed, and the watch reads only those. At an edge
//! the watch polls the status, and reads the whole replica when its position has changed.
//!
//! A pod that its source has removed is under deletion for the reader until its node has ended it.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::{Duration, Instant};

use headwater_controller::{ChangeSubscription, Filter, PictureChange};
use headwater_edge::EdgeStatus;
use headwater_event::ResourceKey;
use headwater_proto::operator::get_event::Kind;
use headwater_proto::operator::{GetEvent, GetRequest};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::mask::mask;
use super::objects::{Objects, ending_at, filter, find, is_workload};
use super::{OperatorDependencies, internal};
use crate::node_view::NodeView;

/// The interval of reads without a notification: a silent node becomes Unknown.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The interval at which the position of an edge is polled: a person follows it.
const ASK_INTERVAL: Duration = Duration::from_millis(250);

/// After each read a watch pauses for this multiple of its duration, so that it takes at most a
/// fifth of a core for any number of objects.
const PAUSE_FACTOR: u32 = 4;

/// The most changes that wait for a slow reader of a watch.
const WAITING_MAX: usize = 256;

/// Streams the requested objects, then every change of them.
pub(super) async fn watch(
    dependencies: OperatorDependencies,
    request: GetRequest,
) -> Result<impl Stream<Item = Result<GetEvent, Status>> + Send, Status> {
    if !request.at.is_empty() {
        return Err(Status::invalid_argument("a past state does not change: remove -w or --at"));
    }
    // The subscription starts before the first read, so that no change is lost.
    let trigger = ChangeTrigger::of(&dependencies, &request)?;
    let first = find(&dependencies, &request).await?.objects;
    let shown = ReaderState { objects: Objects::new(), show_secrets: request.show_secrets };
    let (events, receiver) = mpsc::channel(WAITING_MAX);
    tokio::spawn(Watch { dependencies, request, trigger, shown, events }.run(first));
    Ok(ReceiverStream::new(receiver))
}

struct Watch {
    dependencies: OperatorDependencies,
    request: GetRequest,
    trigger: ChangeTrigger,
    shown: ReaderState,
    events: mpsc::Sender<Result<GetEvent, Status>>,
}

/// The cause of the next read of a watch.
enum ChangeTrigger {
    Picture {
        changes: ChangeSubscription,
        /// For requests of nodes, whose state changes with time alone.
        time: Option<Interval>,
    },
    /// Workloads, whose counts change with their pods, their nodes and the time.
    Workloads { changes: ChangeSubscription, time: Interval },
    Replica {
        view: NodeView,
        /// The position of the edge at the last read, and its time.
        last: (Option<EdgeStatus>, Instant),
    },
}

/// The source of the objects.
enum Look {
    Everywhere,
    At(BTreeSet<ResourceKey>),
    Nodes,
}

/// The objects that the reader has received.
struct ReaderState {
    objects: Objects,
    show_secrets: bool,
}

impl Watch {
    /// Runs until the reader disconnects or a read fails; the reader receives the error.
    async fn run(mut self, first: Objects) {
        let mut events = self.shown.all(first, |_| true);
        events.push(GetEvent { kind: Kind::InitDone.into(), object: bytes::Bytes::new() });
        let mut pause = Duration::ZERO;
        loop {
            for event in events {
                if self.events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            sleep(pause).await;
            let look = tokio::select! {
                look = self.trigger.next() => look,
                () = self.events.closed() => return,
            };
            let Some(look) = look else { return };
            let began = Instant::now();
            let found = self.look(look).await;
            pause = began.elapsed() * PAUSE_FACTOR;
            events = match found {
                Ok(events) => events,
                Err(status) => {
                    let _ = self.events.send(Err(status)).await;
                    return;
                }
            };
        }
    }

    /// Returns the events since the last read.
    async fn look(&mut self, look: Look) -> Result<Vec<GetEvent>, Status> {
        let (filter, now_ms) = (filter(&self.request), (self.dependencies.wall_clock)());
        match look {
            Look::Everywhere => {
                let mut now = find(&self.dependencies, &self.request).await?.objects;
                let gone = self.shown.pods_without(&now);
                let ending = match &self.trigger {
                    ChangeTrigger::Replica { view, .. } => ending_at(view, gone, now_ms).await?,
                    ChangeTrigger::Picture { .. } => self.ending(gone, now_ms)?,
                    ChangeTrigger::Workloads { .. } => Objects::new(),
                };
                now.extend(ending);
                Ok(self.shown.all(now, |_| true))
            }
            Look::At(keys) => {
                let picture = self.dependencies.picture()?;
                let mut events = Vec::new();
                for key in keys.into_iter().filter(|key| filter.matches(key)) {
                    let now = picture.merged_object(&key, now_ms);
                    let now = match (now.map_err(|error| internal(&error))?, self.shown.get(&key)) {
                        (None, Some(last)) => picture
                            .ending_pod(&key, last, now_ms)
                            .map_err(|error| internal(&error))?,
                        (now, _) => now,
                    };
                    events.extend(self.shown.one(key, now));
                }
                Ok(events)
            }
            Look::Nodes => {
                let picture = self.dependencies.picture()?;
                let nodes = Filter { kind: "node", ..filter };
                let now = picture.objects(&nodes, now_ms).map_err(|error| internal(&error))?;
                Ok(self.shown.all(now, |key| key.kind() == "node"))
            }
        }
    }

    /// Of pods that left the picture, those that their nodes have not ended.
    fn ending(&self, gone: Objects, now_ms: i64) -> Result<Objects, Status> {
        let mut ending = Objects::new();
        for (key, last) in gone {
            let pod = self.dependencies.picture()?.ending_pod(&key, &last, now_ms);
            if let Some(pod) = pod.map_err(|error| internal(&error))? {
                ending.insert(key, pod);
            }
        }
        Ok(ending)
    }
}

impl ChangeTrigger {
    fn of(dependencies: &OperatorDependencies, request: &GetRequest) -> Result<Self, Status> {
        let replica = match (request.node.as_str(), dependencies.own_node()) {
            ("", None) => None,
            ("", Some((_, view))) => Some(view.clone()),
            (node, _) => Some(dependencies.node(node)?.1),
        };
        if let Some(view) = replica {
            return Ok(Self::Replica { view, last: (None, Instant::now()) });
        }
        let changes = dependencies.picture()?.changes();
        let time = || {
            let mut time = interval(LOOK_INTERVAL);
            time.set_missed_tick_behavior(MissedTickBehavior::Delay);
            time.reset();
            time
        };
        if is_workload(request) {
            return Ok(Self::Workloads { changes, time: time() });
        }
        let time = matches!(request.r#type.as_str(), "" | "node").then(time);
        Ok(Self::Picture { changes, time })
    }

    /// Waits for the next cause; `None`: there will be none. A cancelled wait loses nothing.
    async fn next(&mut self) -> Option<Look> {
        match self {
            Self::Picture { changes, time } => tokio::select! {
                changed = changes.next() => Some(match changed? {
                    PictureChange::Everything => Look::Everywhere,
                    PictureChange::Keys(keys) => Look::At(keys),
                }),
                () = tick(time) => Some(Look::Nodes),
            },
            Self::Workloads { changes, time } => loop {
                let changed = tokio::select! {
                    changed = changes.next() => changed?,
                    _ = time.tick() => return Some(Look::Everywhere),
                };
                let is_meant = |key: &ResourceKey| matches!(key.kind(), "pod" | "node");
                match changed {
                    PictureChange::Keys(keys) if !keys.iter().any(is_meant) => {}
                    _ => return Some(Look::Everywhere),
                }
            },
            Self::Replica { view, last: (last, at) } => loop {
                sleep(ASK_INTERVAL).await;
                let now = match view.edge() {
                    Some(edge) => edge.status().await.ok(),
                    None => None,
                };
                if now != *last || at.elapsed() >= LOOK_INTERVAL {
                    (*last, *at) = (now, Instant::now());
                    return Some(Look::Everywhere);
                }
            },
        }
    }
}

async fn tick(time: &mut Option<Interval>) {
    match time {
        Some(time) => _ = time.tick().await,
        None => pending().await,
    }
}

impl ReaderState {
    /// The object as the reader received it last.
    fn get(&self, key: &ResourceKey) -> Option<&Value> {
        self.objects.get(key)
    }

    /// The pods of the reader that are not among `now`.
    fn pods_without(&self, now: &Objects) -> Objects {
        let is_gone = |key: &ResourceKey| key.kind() == "pod" && !now.contains_key(key);
        let gone = self.objects.iter().filter(|(key, _)| is_gone(key));
        gone.map(|(key, pod)| (key.clone(), pod.clone())).collect()
    }

    /// Sends the changes of all objects of those keys to `now`, removals first.
    fn all(&mut self, now: Objects, among: impl Fn(&ResourceKey) -> bool) -> Vec<GetEvent> {
        let gone = self.objects.keys().filter(|key| among(key) && !now.contains_key(*key));
        let gone: Vec<_> = gone.cloned().map(|key| (key, None)).collect();
        let there = now.into_iter().map(|(key, object)| (key, Some(object)));
        gone.into_iter().chain(there).filter_map(|(key, now)| self.one(key, now)).collect()
    }

    /// Sends the change of one object to `now`, if it differs.
    fn one(&mut self, key: ResourceKey, now: Option<Value>) -> Option<GetEvent> {
        let before = self.objects.get(&key);
        if before == now.as_ref() {
            return None;
        }
        let kind = if now.is_some() { Kind::Apply } else { Kind::Delete };
        let mut object = now.clone().or_else(|| before.cloned())?;
        if !self.show_secrets {
            mask(key.kind(), &mut object);
        }
        match now {
            Some(now) => self.objects.insert(key, now),
            None => self.objects.remove(&key),
        };
        Some(GetEvent { kind: kind.into(), object: object.to_string().into() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> ResourceKey {
        name.parse().expect("a key")
    }

    fn sent(events: impl IntoIterator<Item = GetEvent>) -> Vec<(Kind, String)> {
        let text = |event: GetEvent| String::from_utf8_lossy(&event.object).into_owned();
        events.into_iter().map(|event| (event.kind(), text(event))).collect()
    }

    fn expect<const N: usize>(expected: [(Kind, &str); N]) -> Vec<(Kind, String)> {
        expected.map(|(kind, text)| (kind, text.to_owned())).into()
    }

    #[test]
    fn only_differences_are_sent() {
        let mut shown = ReaderState { objects: Objects::new(), show_secrets: false };
        let (a, b, c) = (key("d/pod/a"), key("d/pod/b"), key("d/pod/c"));
        let now = Objects::from([(a.clone(), json!(1)), (b.clone(), json!(2))]);
        let first = shown.all(now.clone(), |_| true);
        assert_eq!(sent(first), expect([(Kind::Apply, "1"), (Kind::Apply, "2")]));
        assert_eq!(sent(shown.all(now, |_| true)), []);
        let now = Objects::from([(b.clone(), json!(3)), (c.clone(), json!(4))]);
        let expected = [(Kind::Delete, "1"), (Kind::Apply, "3"), (Kind::Apply, "4")];
        assert_eq!(sent(shown.all(now, |_| true)), expect(expected));
        assert_eq!(sent(shown.one(c.clone(), Some(json!(4)))), []);
        assert_eq!(sent(shown.one(c, Some(json!(5)))), expect([(Kind::Apply, "5")]));
        assert_eq!(sent(shown.one(a, None)), [], "it was removed before");
        assert_eq!(sent(shown.one(b, None)), expect([(Kind::Delete, "3")]));
    }

    #[test]
    fn a_look_at_some_takes_nothing_else_away() {
        let mut shown = ReaderState { objects: Objects::new(), show_secrets: false };
        let (pod, node) = (key("d/pod/a"), key("null/node/n"));
        shown.all(Objects::from([(pod, json!(1)), (node, json!(2))]), |_| true);
        let sent = sent(shown.all(Objects::new(), |key| key.kind() == "node"));
        assert_eq!(sent, expect([(Kind::Delete, "2")]));
    }

    #[test]
    fn a_secret_is_masked_and_its_changes_are_sent() {
        let mut shown = ReaderState { objects: Objects::new(), show_secrets: false };
        let secret = |data: &str| Some(json!({"kind": "Secret", "data": {"k": data}}));
        let event = shown.one(key("d/secret/s"), secret("bm8=")).expect("it is new");
        assert!(!String::from_utf8_lossy(&event.object).contains("bm8="));
        assert!(shown.one(key("d/secret/s"), secret("eWVz")).is_some());
    }
}
