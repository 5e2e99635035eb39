//! The requests of one kind's [`Reflector`], and what comes of them.
//!
//! A watch that is silent may have nothing to send, or may be behind. When the source has to know, the kind
//! **catches up**: a list of nothing gives the version that the API has now, and a short watch sends a bookmark
//! soon. The watch has caught up once it is at that version.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use kube::core::WatchEvent;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::access::Connection;
use crate::failure::{FailureKind, REFUSALS_MAX, RequestError, send};
use crate::kind::Kind;
use crate::raw_object::RawObject;
use crate::reflector::{Event, NextRequest, Reflector, Step};
use crate::request::{self, Page, Selection, WATCH_SECONDS};
use crate::server::look;

/// How long a page may take, and the start of a watch.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long a watch may be silent: its length, after which the server ends it, and the time that the end
/// takes. A connection to a frozen server is noticed then.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 4);

/// The same of a watch that catches up: the takeover waits for it.
const CATCH_UP_SILENCE_MAX: Duration = Duration::from_secs(CATCH_UP_SECONDS as u64 + 4);

/// The pauses after failures, doubled from the first to the last. The last one is short, because
/// after it everything is to be right within 5 s.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The pause after a refusal that lasts until a person acts.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// The length of a watch that catches up, in seconds. A server sends a bookmark 2 s before the end of a watch
/// (kube-apiserver, `cacheWatcher`).
const CATCH_UP_SECONDS: u32 = 3;

/// A name that no object has.
const NO_NAME: &str = "headwater.catches.up";

/// A watch that ends sooner by itself is followed by a pause of that length.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// A message of a kind.
#[derive(Debug)]
pub(crate) struct KindMessage {
    pub(crate) kind: Kind,
    /// How often everything was listed anew when the message was sent.
    pub(crate) relists: u64,
    pub(crate) news: KindNews,
}

/// What happened to a kind.
#[derive(Debug)]
pub(crate) enum KindNews {
    /// Its list or its watch says this.
    Step(Step),
    /// Its watch is open.
    Open,
    /// Its watch has reached this version, if that is a number.
    Reached(Option<u64>),
    /// A request failed.
    Failed {
        /// Why, in words.
        cause: String,
        /// Whether the server refused it. It may allow the same some seconds after its start.
        is_refused: bool,
        /// Whether it has refused so often in a row that this lasts until a person acts.
        lasts: bool,
        /// When the request is repeated.
        pause: Duration,
    },
    /// Its watch has caught up: everything was sent that the API had when that was asked for.
    CaughtUp {
        /// As asked.
        epoch: u64,
    },
    /// A server of another cluster answers.
    OtherCluster {
        /// Its identity.
        found: String,
    },
}

/// What the source orders a kind to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindOrders {
    /// How often everything is to be listed anew; changes with each time.
    pub(crate) relists: u64,
    /// The epoch of the last takeover in which the kind is to catch up; 0 before the first.
    pub(crate) takeover: u64,
}

/// The list and the watch of a kind.
pub(crate) struct KindWatch {
    pub(crate) connection: Connection,
    pub(crate) kind: Kind,
    pub(crate) selection: Selection,
    /// The identity of the cluster.
    pub(crate) cluster: Arc<str>,
    pub(crate) messages: mpsc::Sender<KindMessage>,
    /// What the source orders.
    pub(crate) orders: watch::Receiver<KindOrders>,
    /// The orders that have begun.
    pub(crate) begun: KindOrders,
    /// The epoch in which it has not caught up.
    pub(crate) behind: Option<u64>,
    /// News that the source has not taken: an order may interrupt a turn between two of them.
    pub(crate) unsent: VecDeque<KindMessage>,
    /// Refusals in a row.
    pub(crate) refusals: u32,
    /// Whether another server may answer: a request failed, or a watch ended before its time.
    pub(crate) is_unsure: bool,
}

/// The receiver of the messages is gone: the source ends.
struct SourceEnd;

/// Why a turn did not succeed.
enum Setback {
    Ended,
    Failed(RequestError),
}

impl From<RequestError> for Setback {
    fn from(error: RequestError) -> Self {
        Self::Failed(error)
    }
}

impl From<SourceEnd> for Setback {
    fn from(_: SourceEnd) -> Self {
        Self::Ended
    }
}

impl KindWatch {
    /// Lists and watches until the receiver of the messages is gone.
    pub(crate) async fn run(mut self) {
        let mut reflector = Reflector::new();
        let mut orders = self.orders.clone();
        let mut pause = PAUSE_MIN;
        loop {
            let turn = tokio::select! {
                biased;
                Ok(()) = orders.changed() => {
                    // A watch may hang; another one begins.
                    self.begin(*orders.borrow_and_update(), &mut reflector);
                    continue;
                }
                turn = self.turn(&mut reflector) => turn,
            };
            match turn {
                Ok(()) => (pause, self.refusals) = (PAUSE_MIN, 0),
                Err(Setback::Ended) => return,
                Err(Setback::Failed(error)) => {
                    if self.fail(&mut reflector, &error, pause).await.is_err() {
                        return;
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Begins what the source orders.
    fn begin(&mut self, orders: KindOrders, reflector: &mut Reflector) {
        let before = std::mem::replace(&mut self.begun, orders);
        let is_relist = orders.relists != before.relists;
        if is_relist {
            reflector.relist();
        }
        // What was sent of a lost history counts for nothing.
        if orders.takeover != before.takeover || (is_relist && orders.takeover > 0) {
            self.behind = Some(orders.takeover);
        }
    }

    /// Sends the next request of the reflector, and takes its answer.
    async fn turn(&mut self, reflector: &mut Reflector) -> Result<(), Setback> {
        self.send_unsent().await?;
        if (self.is_unsure || reflector.begins_again()) && !self.is_same_cluster().await? {
            return Err(Setback::Ended);
        }
        self.is_unsure = false;
        match reflector.next().clone() {
            NextRequest::Page { token } => self.page(reflector, token.as_deref()).await,
            NextRequest::Watch { version } => self.watch(reflector, &version).await,
        }
    }

    async fn page(
        &mut self,
        reflector: &mut Reflector,
        token: Option<&str>,
    ) -> Result<(), Setback> {
        let request =
            request::page(self.kind, &self.selection, token).map_err(RequestError::from)?;
        let answer = timeout(ANSWER_WITHIN, send::<Page>(&self.connection.client, request)).await;
        let (metadata, items) = answer.map_err(|_| RequestError::Silent(ANSWER_WITHIN))??.items();
        // The reflector goes on from here, so all of it is kept until it is sent.
        for step in reflector.take_page(metadata, items).map_err(RequestError::from)? {
            self.keep(KindNews::Step(step));
        }
        Ok(self.send_unsent().await?)
    }

    async fn watch(&mut self, reflector: &mut Reflector, version: &str) -> Result<(), Setback> {
        let began = Instant::now();
        let present = match self.behind {
            Some(_) => self.present_version().await?,
            None => None,
        };
        self.check_caught_up(version, present).await?;
        let (seconds, silence_max) = match self.behind {
            Some(_) => (CATCH_UP_SECONDS, CATCH_UP_SILENCE_MAX),
            None => (WATCH_SECONDS, SILENCE_MAX),
        };
        let request = request::watch(self.kind, &self.selection, version, seconds)
            .map_err(RequestError::from)?;
        let opening = self.connection.client.request_events::<RawObject>(request);
        let events = timeout(ANSWER_WITHIN, opening).await;
        let events = events.map_err(|_| RequestError::Silent(ANSWER_WITHIN))?;
        let events = events.map_err(RequestError::from)?;
        let mut events = std::pin::pin!(events);
        self.say(KindNews::Open).await?;
        loop {
            let next = timeout(silence_max, events.try_next()).await;
            let next = next.map_err(|_| RequestError::Silent(silence_max))?;
            let event = match next.map_err(RequestError::from)? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    Event::Changed(object)
                }
                Some(WatchEvent::Deleted(object)) => Event::Deleted(object),
                Some(WatchEvent::Bookmark(bookmark)) => {
                    let version = bookmark.metadata.resource_version;
                    self.say(KindNews::Reached(version.parse().ok())).await?;
                    Event::Bookmark { version }
                }
                Some(WatchEvent::Error(status)) => {
                    let (code, message) = (status.code, status.message);
                    return Err(RequestError::Ended { code, message }.into());
                }
                None => break,
            };
            if let Some(step) = reflector.take_event(event).map_err(RequestError::from)? {
                self.say(KindNews::Step(step)).await?;
            }
            if let (Some(_), NextRequest::Watch { version }) = (self.behind, reflector.next()) {
                self.check_caught_up(version, present).await?;
            }
        }
        self.is_unsure = began.elapsed() < Duration::from_secs(seconds.into());
        if began.elapsed() < WATCH_MIN {
            sleep(WATCH_MIN).await;
        }
        Ok(())
    }

    /// The version that the API has now, if that is a number. A consistent list makes the server's cache of
    /// the kind reach it, too.
    async fn present_version(&self) -> Result<Option<u64>, Setback> {
        // The controller may list one Namespace alone.
        let few = match self.kind {
            Kind::Namespace => self.selection.clone(),
            _ => Selection::with_field("metadata.name", NO_NAME),
        };
        let request = request::list(self.kind, &few).map_err(RequestError::from)?;
        let answer = timeout(ANSWER_WITHIN, send::<Page>(&self.connection.client, request)).await;
        let (metadata, _) = answer.map_err(|_| RequestError::Silent(ANSWER_WITHIN))??.items();
        Ok(metadata.resource_version.parse().ok())
    }

    /// Reports that the watch has caught up, where its `version` is no earlier than `present`. Versions that
    /// are no numbers cannot be compared.
    async fn check_caught_up(
        &mut self,
        version: &str,
        present: Option<u64>,
    ) -> Result<(), SourceEnd> {
        let is_earlier = |present: u64| version.parse().is_ok_and(|version: u64| version < present);
        if let Some(epoch) = self.behind
            && !present.is_some_and(is_earlier)
        {
            self.behind = None;
            self.say(KindNews::CaughtUp { epoch }).await?;
        }
        Ok(())
    }

    /// Whether the server is still one of the same cluster. Before a list is believed that may remove objects, and before
    /// a watch goes on at a server that may be another one, this is certain.
    async fn is_same_cluster(&mut self) -> Result<bool, Setback> {
        let found = look(&self.connection.client).await?.cluster;
        if *found == *self.cluster {
            return Ok(true);
        }
        self.say(KindNews::OtherCluster { found }).await?;
        Ok(false)
    }

    /// Reports a failure and pauses.
    async fn fail(
        &mut self,
        reflector: &mut Reflector,
        error: &RequestError,
        pause: Duration,
    ) -> Result<(), SourceEnd> {
        self.is_unsure = true;
        let kind = error.kind();
        self.refusals = if kind == FailureKind::Refused { self.refusals + 1 } else { 0 };
        let pause = match kind {
            FailureKind::Expired => {
                // The usual end of a long absence, and no failure.
                let kind = self.kind.plural();
                tracing::info!(kind, "the API server has no history that far back: list again");
                reflector.relist();
                pause
            }
            kind => {
                let is_refused = kind == FailureKind::Refused;
                let lasts = self.refusals > REFUSALS_MAX;
                let pause = if lasts { REFUSED_PAUSE } else { pause };
                let cause = error.describe(&self.connection.server);
                self.say(KindNews::Failed { cause, is_refused, lasts, pause }).await?;
                pause
            }
        };
        sleep(pause).await;
        Ok(())
    }

    /// Sends news, and waits while the source is busy. Cancelled, it keeps them.
    async fn say(&mut self, news: KindNews) -> Result<(), SourceEnd> {
        self.keep(news);
        self.send_unsent().await
    }

    /// Keeps news that are sent next.
    fn keep(&mut self, news: KindNews) {
        let message = KindMessage { kind: self.kind, relists: self.begun.relists, news };
        self.unsent.push_back(message);
    }

    /// Sends what is kept, in order. Cancel safe.
    async fn send_unsent(&mut self) -> Result<(), SourceEnd> {
        while !self.unsent.is_empty() {
            let room = self.messages.reserve().await.map_err(|_| SourceEnd)?;
            if let Some(message) = self.unsent.pop_front() {
                room.send(message);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headwater_apiserver::ApiServer;
    use headwater_event::ResourceKey;
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster_objects::{Change, ClusterObjects, Uses};

    /// Objects of the test, on one page.
    const OBJECTS: usize = 40;

    /// Objects on two pages.
    const TWO_PAGES: usize = 300;

    /// The time limit of lists, in virtual time.
    const LISTED_WITHIN: Duration = Duration::from_secs(600);

    fn server() -> ApiServer {
        ApiServer::new(|| 1_700_000_000_000, || 7)
    }

    /// Creates an object in the namespace `default`.
    fn put(server: &ApiServer, plural: &str, object: &Value) {
        let path = format!("/api/v1/namespaces/default/{plural}");
        let (code, answer) = server.request(Method::POST, &path, Some(object));
        assert_eq!(code, 201, "{answer}");
    }

    fn service(name: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
    }

    /// The watch of a kind; its source is busy, and takes one message at a time.
    fn kind_watch(
        server: &ApiServer,
        kind: Kind,
        cluster: &str,
    ) -> (KindWatch, watch::Sender<KindOrders>, mpsc::Receiver<KindMessage>) {
        let (orders, receiver) = watch::channel(KindOrders::default());
        let (messages, taken) = mpsc::channel(1);
        let watch = KindWatch {
            connection: Connection::over(server.clone(), "the server in memory"),
            kind,
            selection: Selection::default(),
            cluster: cluster.into(),
            messages,
            orders: receiver,
            begun: KindOrders::default(),
            behind: None,
            unsent: VecDeque::new(),
            refusals: 0,
            is_unsure: false,
        };
        (watch, orders, taken)
    }

    /// No stream names any object.
    struct NoUses;

    impl Uses for NoUses {
        fn is_used(&self, _: &ResourceKey) -> bool {
            false
        }
    }

    /// What the messages of a kind came to.
    struct Listing {
        taken: mpsc::Receiver<KindMessage>,
        objects: ClusterObjects<NoUses>,
        /// Lists that began, and lists that were complete.
        begun: usize,
        complete: usize,
        applied: usize,
        deleted: usize,
    }

    impl Listing {
        fn new(taken: mpsc::Receiver<KindMessage>) -> Self {
            let objects = ClusterObjects::new(NoUses);
            Self { taken, objects, begun: 0, complete: 0, applied: 0, deleted: 0 }
        }

        /// Takes messages until that many lists began and were complete.
        async fn until(&mut self, begun: usize, complete: usize) {
            let taking = async {
                while (self.begun, self.complete) != (begun, complete) {
                    let message = self.taken.recv().await.expect("it runs");
                    let KindNews::Step(step) = message.news else { continue };
                    match &step {
                        Step::Init => self.begun += 1,
                        Step::InitDone { .. } => self.complete += 1,
                        _ => {}
                    }
                    for change in self.objects.step(message.kind, step) {
                        match change {
                            Change::Apply(_) => self.applied += 1,
                            Change::Delete { .. } => self.deleted += 1,
                        }
                    }
                }
            };
            timeout(LISTED_WITHIN, taking).await.expect("the lists end");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_page_that_expired_is_listed_anew_and_nothing_is_deleted() {
        let server = server();
        for number in 0..TWO_PAGES {
            put(&server, "services", &service(&format!("s{number}")));
        }
        let connection = Connection::over(server.clone(), "the server in memory");
        let cluster = look(&connection.client).await.expect("it answers").cluster;
        let (watch, orders, taken) = kind_watch(&server, Kind::Service, &cluster);
        let running = tokio::spawn(watch.run());
        let mut listing = Listing::new(taken);
        listing.until(1, 1).await;
        assert_eq!(listing.applied, TWO_PAGES, "the second page is read, too");

        orders.send_replace(KindOrders { relists: 1, takeover: 0 });
        // The first page is read, and waits for the source. The token of the second one expires meanwhile.
        listing.until(2, 1).await;
        put(&server, "services", &service("late"));
        server.compact();
        listing.until(3, 2).await;
        assert_eq!((listing.applied, listing.deleted), (TWO_PAGES + 1, 0));
        running.abort();
    }

    /// An order interrupts a turn wherever it waits. What the turn has read is in the reflector's version then, and
    /// is not requested again.
    #[tokio::test(start_paused = true)]
    async fn an_order_in_the_middle_of_a_page_loses_nothing_of_it() {
        let server = server();
        for number in 0..OBJECTS {
            put(&server, "configmaps", &json!({"metadata": {"name": format!("c{number}")}}));
        }
        let (watch, orders, mut taken) = kind_watch(&server, Kind::ConfigMap, "c");
        let running = tokio::spawn(watch.run());
        let mut applied = 0;
        let mut has_listed = false;
        for takeover in 1.. {
            let message = taken.recv().await.expect("it runs");
            match message.news {
                KindNews::Step(Step::InitApply(_)) => applied += 1,
                KindNews::Step(Step::InitDone { .. }) => has_listed = true,
                KindNews::CaughtUp { .. } => break,
                _ => {}
            }
            if takeover < 10 {
                orders.send_replace(KindOrders { takeover, relists: 0 });
                // The order interrupts the turn before the next message is taken.
                tokio::task::yield_now().await;
            }
        }
        assert_eq!((applied, has_listed), (OBJECTS, true));
        running.abort();
    }
}
