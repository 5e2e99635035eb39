//! The source: it runs the watches and the requests, and sends the controller what follows from them.
//!
//! ```text
//! look at the server ──► list in waves ──► complete? ──► InitDone ──► follow
//! (until it answers)     (per kind)        (nothing on its way)
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_controller::{
    Cause, Notice, NoticeKind, PublishedReader, Source, SourceContext, SourceError, SourceEvent,
    SourceKind, SourceState, Wanted, WriterRole, read_published,
};
use headwater_object::Object;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep};

use crate::access::{AccessError, Connection};
use crate::act_as::ActAs;
use crate::catch_up::CatchUp;
use crate::cluster_objects::{Change, ClusterObjects, FetchAnswer};
use crate::cluster_view::ClusterView;
use crate::failure::RequestError;
use crate::fetches::Fetch;
use crate::kind::Kind;
use crate::kind_watch::{KindMessage, KindNews, KindOrders, KindWatch};
use crate::object_requests::request_objects;
use crate::reflector::Step;
use crate::request::Selection;
use crate::rights_review::{REVIEW_INTERVAL, RightsReview};
use crate::server::{
    LOOK_INTERVAL, ServerHistory, ServerLook, ServerRefusal, Verdict, check_version, identity_key,
    look,
};
use crate::settings::KubernetesSettings;
use crate::sink::{KubernetesSink, SinkDependencies};

/// The part of the source that names missing rights.
const RIGHTS: &str = "rights";

/// The messages of watches that may wait: enough to hide a page, few beside the objects held.
const MESSAGES_MAX: usize = 64;

/// The pause before the server is looked at again at the start.
const START_PAUSE: Duration = Duration::from_secs(1);

/// How often missing objects on their way are looked at, and unused ones are forgotten.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
const TICKS_PER_SWEEP: u64 = 10;

/// A Kubernetes API as a source of objects.
pub struct KubernetesSource {
    connection: Connection,
    settings: KubernetesSettings,
    view: ClusterView,
    /// The rights to ask the server about, and as whom the controller writes.
    rights: Option<RightsReview>,
}

/// The first list of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstList {
    Running,
    Complete,
    /// A right is missing, or the kind is not served.
    Refused,
}

/// The end of a request.
enum Done {
    Fetched(Fetch, FetchAnswer),
    /// A look, and the highest version when it was sent.
    Looked(Option<u64>, Result<ServerLook, RequestError>),
    Reviewed(Result<Option<String>, RequestError>),
}

/// The source while it runs.
struct Running {
    connection: Connection,
    settings: KubernetesSettings,
    rights: Option<RightsReview>,
    published: Arc<dyn PublishedReader>,
    context: RunningContext,
    wanted: Wanted,
    objects: ClusterObjects<Wanted>,
    view: ClusterView,
    history: ServerHistory,
    first_lists: BTreeMap<Kind, FirstList>,
    /// The kinds of which the objects of an earlier run were taken over.
    carried: BTreeSet<Kind>,
    /// What was logged of each kind that fails.
    logged: BTreeMap<Kind, String>,
    /// The next wave of the first list.
    wave: u8,
    has_listed: bool,
    watches: JoinSet<()>,
    requests: JoinSet<Done>,
    messages: mpsc::Sender<KindMessage>,
    orders: KindOrders,
    /// Takes the orders of each kind. Each has a channel of its own, so that they wake in order: a run in a
    /// simulation is the same again.
    order_senders: BTreeMap<Kind, watch::Sender<KindOrders>>,
    role: watch::Receiver<WriterRole>,
    catch_up: Option<CatchUp>,
    unfit: Vec<Notice>,
    began: Instant,
}

/// The ways to the controller.
struct RunningContext {
    events: headwater_controller::SourceEventSender,
    states: headwater_controller::SourceStateSender,
}

impl KubernetesSource {
    /// A source of the objects behind `connection`.
    pub fn new(connection: Connection, settings: KubernetesSettings) -> Self {
        Self { connection, settings, view: ClusterView::default(), rights: None }
    }

    /// The sink that writes to the API of this source, which it sees through the watches of this source.
    pub fn sink(&self, dependencies: SinkDependencies) -> KubernetesSink {
        let selector = self.settings.node_selector.clone();
        KubernetesSink::new(self.connection.clone(), selector, self.view.clone(), dependencies)
    }

    /// Asks the server, when it lists, whether the controller has each right that it uses, as itself or
    /// as a node. One that is missing is named in the state of the part `rights` until it is there.
    #[must_use]
    pub fn with_rights(self, act_as: ActAs) -> Self {
        let rights = Some(RightsReview::new(&self.settings, act_as));
        Self { rights, ..self }
    }

    /// Looks at the server once. A server that does not answer is no error: the source waits for it.
    ///
    /// # Errors
    /// The server answers and cannot be used, until a person acts: wrong credentials, a certificate of
    /// another CA, a version that is too old.
    pub async fn check(&self) -> Result<(), AccessError> {
        let Connection { client, server } = &self.connection;
        match check_version(client, server).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refusal)) => Err(AccessError::Refused(refusal.to_string())),
            Err(error) if error.is_final() => Err(AccessError::Refused(error.describe(server))),
            Err(error) => {
                let error = error.describe(server);
                tracing::warn!(
                    error,
                    "the API server does not answer; the controller waits for it"
                );
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Source for KubernetesSource {
    fn kind(&self) -> SourceKind {
        SourceKind::KUBERNETES
    }

    fn sends_only_used(&self) -> bool {
        true
    }

    fn answers_takeover(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, context: SourceContext) -> Result<(), SourceError> {
        let stop = context.stop.clone();
        // Dropped at the stop with everything that it runs.
        let running = async move {
            let first = first_look(&self.connection, &context).await?;
            check_cluster(&self, context.published.clone(), &first).await?;
            Running::new(*self, context, &first).follow().await
        };
        stop.run_until_cancelled(running).await.unwrap_or(Ok(()))
    }
}

/// Waits until the server answers, and refuses one that is too old.
async fn first_look(
    connection: &Connection,
    context: &SourceContext,
) -> Result<ServerLook, SourceError> {
    let Connection { client, server } = connection;
    loop {
        let looked = match check_version(client, server).await {
            Ok(Ok(())) => look(client).await,
            Ok(Err(refusal)) => return Err(SourceError::new("old_server", refusal)),
            Err(error) => Err(error),
        };
        match looked {
            Ok(look) => {
                context.states.set("", SourceState::Listing);
                return Ok(look);
            }
            Err(error) => context.states.fail_for("", error.describe(server), START_PAUSE),
        }
        sleep(START_PAUSE).await;
    }
}

/// Refuses a server of another cluster than that of the objects in the log.
async fn check_cluster(
    source: &KubernetesSource,
    published: Arc<dyn PublishedReader>,
    look: &ServerLook,
) -> Result<(), SourceError> {
    let identity = read_published(published, |published| published.find(&identity_key())).await?;
    let expected = identity.map(|namespace| namespace.uid);
    match expected {
        Some(expected) if expected != look.cluster && !source.settings.allow_other_cluster => {
            Err(other_cluster(&source.connection, expected, look.cluster.clone()))
        }
        _ => Ok(()),
    }
}

fn other_cluster(connection: &Connection, expected: String, found: String) -> SourceError {
    let server = connection.server.clone();
    SourceError::new("other_cluster", ServerRefusal::OtherCluster { server, found, expected })
}

impl Running {
    fn new(source: KubernetesSource, context: SourceContext, first: &ServerLook) -> Self {
        let KubernetesSource { connection, settings, view, rights } = source;
        let SourceContext { published, wanted, workloads, events, states, .. } = context;
        Self {
            connection,
            settings,
            rights,
            published,
            context: RunningContext { events, states },
            objects: ClusterObjects::new(wanted.clone()),
            view,
            wanted,
            history: ServerHistory::new(first),
            first_lists: BTreeMap::new(),
            carried: BTreeSet::new(),
            logged: BTreeMap::new(),
            wave: 0,
            has_listed: false,
            watches: JoinSet::new(),
            requests: JoinSet::new(),
            // Replaced as soon as it follows.
            messages: mpsc::channel(1).0,
            orders: KindOrders::default(),
            order_senders: BTreeMap::new(),
            role: workloads.role,
            catch_up: None,
            unfit: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Lists and follows.
    async fn follow(mut self) -> Result<(), SourceError> {
        let (messages, mut incoming) = mpsc::channel(MESSAGES_MAX);
        self.messages = messages;
        self.context.events.send(SourceEvent::Init).await?;
        self.review_rights(Duration::ZERO);
        self.open_waves().await?;
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = interval_at(Instant::now() + LOOK_INTERVAL, LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut tick, mut is_looking) = (0_u64, false);
        loop {
            // In this order, so that a run in a simulation is the same again. What is rare comes first, so
            // that no stream of messages keeps it waiting.
            tokio::select! {
                biased;
                Some(done) = self.requests.join_next() => {
                    match done.map_err(|error| SourceError::task_ended("request", error))? {
                        Done::Fetched(fetch, answer) => {
                            if let (Fetch::PodsOf(_), FetchAnswer::Objects(pods)) = (&fetch, &answer) {
                                self.view.requested(self.objects.newest(&fetch, pods));
                            }
                            let changes = self.objects.fetched(&fetch, answer);
                            self.send(changes).await?;
                            self.look();
                        }
                        Done::Looked(before, looked) => {
                            is_looking = false;
                            self.looked(before, looked)?;
                        }
                        Done::Reviewed(reviewed) => self.reviewed(reviewed),
                    }
                }
                Some(Err(error)) = self.watches.join_next() => {
                    return Err(SourceError::task_ended("watch", error));
                }
                _ = looks.tick(), if !is_looking => {
                    is_looking = true;
                    let client = self.connection.client.clone();
                    let before = self.history.highest();
                    self.requests.spawn(async move { Done::Looked(before, look(&client).await) });
                }
                _ = ticks.tick() => {
                    tick += 1;
                    if tick % TICKS_PER_SWEEP == 0 {
                        self.objects.forget_unused();
                    }
                    if self.objects.retry_refused() || self.objects.awaits_delivery() {
                        self.look();
                    }
                }
                Ok(()) = self.role.changed() => self.begin_catch_up().await?,
                () = self.wanted.changed(), if self.has_listed => self.look(),
                Some(message) = incoming.recv() => self.take(message).await?,
            }
            self.objects.set_now(self.elapsed_ms());
            self.start_fetches();
            if !self.has_listed {
                self.advance().await?;
            }
            self.name_unfit();
        }
    }

    /// Takes a message of a kind.
    async fn take(&mut self, message: KindMessage) -> Result<(), SourceError> {
        let KindMessage { kind, relists, news } = message;
        let part = kind.plural();
        let is_of_lost_history = relists != self.orders.relists;
        let is_of_objects =
            matches!(news, KindNews::Step(_) | KindNews::Reached(_) | KindNews::CaughtUp { .. });
        if is_of_lost_history && is_of_objects {
            return Ok(());
        }
        match news {
            KindNews::Step(step) => {
                if matches!(step, Step::InitDone { .. }) {
                    self.first_lists.insert(kind, FirstList::Complete);
                }
                // A watch goes on from the version of its list, too.
                match &step {
                    Step::Apply(raw) | Step::Delete(raw) => self.history.note(raw.order()),
                    Step::InitDone { order } => self.history.note(*order),
                    Step::Init | Step::InitApply(_) => {}
                }
                self.view.step(kind, &step);
                let changes = self.objects.step(kind, step);
                self.send(changes).await
            }
            KindNews::Reached(order) => {
                self.history.note(order);
                Ok(())
            }
            KindNews::Open => {
                if self.logged.remove(&kind).is_some() {
                    tracing::info!(kind = part, "the watch is open again");
                }
                self.context.states.set(part, SourceState::Following);
                Ok(())
            }
            KindNews::Failed { cause, is_refused, lasts, pause } => {
                // Once, although the request is repeated every few seconds.
                if self.logged.get(&kind) != Some(&cause) {
                    tracing::warn!(kind = part, cause, "a list or a watch failed");
                    self.logged.insert(kind, cause.clone());
                }
                self.context.states.fail_for(part, cause, pause);
                let first = self.first_lists.entry(kind).or_insert(FirstList::Running);
                if *first != FirstList::Complete {
                    let refused = if is_refused { FirstList::Refused } else { FirstList::Running };
                    *first = refused;
                }
                if !is_refused {
                    return Ok(());
                }
                if lasts && let Some(catch_up) = &mut self.catch_up {
                    catch_up.note_lasting_refusal(kind);
                }
                self.answer_takeover().await
            }
            KindNews::CaughtUp { epoch } => {
                if let Some(catch_up) = &mut self.catch_up {
                    catch_up.note_caught_up(kind, epoch);
                }
                self.answer_takeover().await
            }
            KindNews::OtherCluster { found } => {
                let expected = self.history.cluster().to_owned();
                Err(other_cluster(&self.connection, expected, found))
            }
        }
    }

    /// Begins to catch up, where another controller may have published what no watch has sent here.
    async fn begin_catch_up(&mut self) -> Result<(), SourceError> {
        let role = self.role.borrow_and_update().clone();
        let WriterRole::Writer { takeover: Some(takeover) } = role else { return Ok(()) };
        let epoch = takeover.epoch;
        if !takeover.is_live {
            return self.context.events.send(SourceEvent::TakenOver { epoch }).await;
        }
        self.catch_up = Some(CatchUp::new(epoch, self.followed()));
        self.order(KindOrders { takeover: epoch, ..self.orders });
        self.answer_takeover().await
    }

    /// The kinds that are followed. One that may not be read is not.
    fn followed(&self) -> BTreeSet<Kind> {
        let followed = self.first_lists.iter();
        let followed = followed.filter(|(_, first)| **first == FirstList::Complete);
        followed.map(|(kind, _)| *kind).collect()
    }

    fn order(&mut self, orders: KindOrders) {
        self.orders = orders;
        for sender in self.order_senders.values() {
            sender.send_replace(orders);
        }
    }

    /// Answers the takeover once no kind is behind.
    async fn answer_takeover(&mut self) -> Result<(), SourceError> {
        if let Some(caught_up) = self.catch_up.take_if(|catch_up| catch_up.is_over()) {
            let epoch = caught_up.epoch();
            self.context.events.send(SourceEvent::TakenOver { epoch }).await?;
        }
        Ok(())
    }

    /// Opens the waves of the first list whose turn it is.
    async fn open_waves(&mut self) -> Result<(), SourceError> {
        while self.wave < Kind::WAVES
            && self.first_lists.values().all(|first| *first != FirstList::Running)
        {
            self.carry_over().await?;
            let wave = self.wave;
            self.wave += 1;
            for kind in Kind::ALL {
                if kind.wave() == wave && kind.is_watched(&self.settings) {
                    self.first_lists.insert(kind, FirstList::Running);
                    self.context.states.set(kind.plural(), SourceState::Listing);
                    let watch = self.kind_watch(kind);
                    self.watches.spawn(watch.run());
                }
            }
        }
        Ok(())
    }

    fn kind_watch(&mut self, kind: Kind) -> KindWatch {
        let orders = watch::Sender::new(self.orders);
        let receiver = orders.subscribe();
        self.order_senders.insert(kind, orders);
        KindWatch {
            connection: self.connection.clone(),
            kind,
            selection: Selection::of(kind, &self.settings),
            cluster: self.history.cluster().into(),
            messages: self.messages.clone(),
            orders: receiver,
            begun: self.orders,
            behind: None,
            unsent: VecDeque::new(),
            refusals: 0,
            is_unsure: false,
        }
    }

    /// Brings the first list forward, and ends it when it is complete.
    async fn advance(&mut self) -> Result<(), SourceError> {
        self.open_waves().await?;
        let is_running = self.first_lists.values().any(|first| *first == FirstList::Running);
        if is_running || self.wave < Kind::WAVES {
            return Ok(());
        }
        let first_lists = &self.first_lists;
        let is_complete =
            self.objects.complete(|kind| first_lists.get(&kind) == Some(&FirstList::Complete));
        self.start_fetches();
        if !is_complete {
            return Ok(());
        }
        self.carry_over().await?;
        self.objects.end_first_list();
        self.context.events.send(SourceEvent::InitDone).await?;
        self.has_listed = true;
        self.look();
        Ok(())
    }

    /// Sends what is published of the kinds that cannot be listed, so that it stays.
    async fn carry_over(&mut self) -> Result<(), SourceError> {
        let is_refused = |kind: &Kind| self.first_lists.get(kind) == Some(&FirstList::Refused);
        let refused: BTreeSet<Kind> = Kind::ALL.into_iter().filter(is_refused).collect();
        let new: BTreeSet<Kind> = refused.difference(&self.carried).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        let kinds = new.clone();
        let carried = read_published(self.published.clone(), move |published| {
            let mut objects = BTreeMap::new();
            published.read(&mut |key, object| {
                let kind = Kind::of_key(key.kind()).filter(|kind| kinds.contains(kind));
                if let Some(kind) = kind.filter(|_| !objects.contains_key(&key))
                    && let Ok(object) =
                        Object::of_cluster(kind.object_type(), object.versioned_value())
                {
                    objects.insert(key, (kind, object));
                }
                ControlFlow::Continue(())
            })?;
            Ok(objects)
        })
        .await?;
        let mut changes = Vec::new();
        for (kind, object) in carried.into_values() {
            changes.extend(self.objects.carry_over(kind, object));
        }
        self.carried.extend(new);
        self.send(changes).await
    }

    /// Requests what the controller misses.
    fn look(&mut self) {
        if self.has_listed {
            self.objects.set_now(self.elapsed_ms());
            self.objects.look(self.wanted.missing());
            self.start_fetches();
        }
    }

    fn start_fetches(&mut self) {
        while let Some(fetch) = self.objects.next_fetch() {
            let connection = self.connection.clone();
            self.requests.spawn(async move {
                let answer = request_objects(&connection, &fetch).await;
                Done::Fetched(fetch, answer)
            });
        }
    }

    /// Takes a look at the server. `before` is the highest version when the look was sent.
    fn looked(
        &mut self,
        before: Option<u64>,
        looked: Result<ServerLook, RequestError>,
    ) -> Result<(), SourceError> {
        let server = &self.connection.server;
        let now = match looked {
            Ok(now) => now,
            Err(error) => {
                self.context.states.fail_for("", error.describe(server), LOOK_INTERVAL);
                return Ok(());
            }
        };
        let state = if self.has_listed { SourceState::Following } else { SourceState::Listing };
        self.context.states.set("", state);
        self.objects.forget_absent();
        match self.history.take(before, &now) {
            Verdict::Continues => {}
            Verdict::WentBack => {
                tracing::warn!(
                    server,
                    "the data of the API server went back, as after a restore from a backup; \
                     everything is listed anew"
                );
                self.objects.forget_versions();
                self.view.forget_versions();
                // All of it is listed anew before a takeover is answered.
                let followed = self.followed();
                if let Some(catch_up) = &mut self.catch_up {
                    catch_up.list_anew(followed);
                }
                self.order(KindOrders { relists: self.orders.relists + 1, ..self.orders });
            }
            Verdict::OtherCluster => {
                let expected = self.history.cluster().to_owned();
                return Err(other_cluster(&self.connection, expected, now.cluster));
            }
        }
        self.look();
        Ok(())
    }

    /// Asks the server for the rights after `wait`.
    fn review_rights(&mut self, wait: Duration) {
        let Some(rights) = self.rights.clone() else { return };
        let client = self.connection.client.clone();
        self.requests.spawn(async move {
            sleep(wait).await;
            Done::Reviewed(rights.ask(&client).await)
        });
    }

    /// Names what the controller may not do, until it may.
    fn reviewed(&mut self, reviewed: Result<Option<String>, RequestError>) {
        let states = &self.context.states;
        match reviewed {
            Ok(None) => return states.set(RIGHTS, SourceState::Following),
            Ok(Some(cause)) => {
                let server = &self.connection.server;
                tracing::warn!(server, cause, "the controller lacks rights");
                states.fail_for(RIGHTS, format!("{server}: {cause}"), REVIEW_INTERVAL);
            }
            Err(error) => {
                // The kinds name a server that is away.
                let error = error.describe(&self.connection.server);
                tracing::debug!(error, "the server does not say which rights there are");
            }
        }
        self.review_rights(REVIEW_INTERVAL);
    }

    /// Sends changes to the controller.
    async fn send(&mut self, changes: Vec<Change>) -> Result<(), SourceError> {
        for change in changes {
            let cause = Cause { source: SourceKind::KUBERNETES, ..Cause::default() };
            let event = match change {
                Change::Apply(object) if self.has_listed => SourceEvent::Apply(object, cause),
                Change::Apply(object) => SourceEvent::InitApply(object),
                Change::Delete { key, uid } => SourceEvent::Delete { key, uid, cause },
            };
            self.context.events.send(event).await?;
        }
        Ok(())
    }

    /// Names the objects that cannot be carried, as long as they cannot.
    fn name_unfit(&mut self) {
        if !self.objects.take_unfit_change() {
            return;
        }
        let unfit: Vec<Notice> = self
            .objects
            .unfit()
            .map(|text| Notice { file: None, line: None, kind: NoticeKind::Invalid, text })
            .collect();
        if unfit != self.unfit {
            for notice in unfit.iter().filter(|notice| !self.unfit.contains(notice)) {
                tracing::warn!(%notice, "an object of the cluster cannot be carried");
            }
            self.context.states.set_documents(unfit.iter());
            self.unfit = unfit;
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
