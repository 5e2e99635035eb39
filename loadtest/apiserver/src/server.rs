//! The server that tests hold: its state, its faults, and what an operator does to it.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Method, Request};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::api::{Answer, Api, Surroundings};
use crate::chance::Chance;
use crate::faults::{Faults, Way};
use crate::request::ApiRequest;
use crate::store::{Change, Store};

/// A Kubernetes API server in memory. Clones are the same server.
///
/// It is a [`tower::Service`] of HTTP requests, of which any client can be made. What tests do to its
/// objects themselves they do by [`ApiServer::request`], which no fault befalls.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Notified after each change of the state, so that watches look again. They wake in the order in which
    /// they began to wait, so that a run in a simulation is the same again.
    turns: Notify,
}

/// What is called with each change.
type Observer = Box<dyn FnMut(&Change) + Send>;

/// The state of a server.
pub(crate) struct State {
    pub(crate) api: Api,
    pub(crate) chance: Chance,
    clock: Box<dyn Fn() -> i64 + Send>,
    pub(crate) faults: Faults,
    /// How often it began anew. Nothing that is open survives that.
    pub(crate) starts: u64,
    pub(crate) is_up: bool,
    pub(crate) is_frozen: bool,
    /// How long a server that has just started refuses every client, and until when it does, milliseconds.
    start_refusal_ms: i64,
    refuses_until_ms: i64,
    observer: Option<Observer>,
    observed: u64,
}

/// The data of a server at one moment.
#[derive(Clone, Debug)]
pub struct Backup(Store);

impl ApiServer {
    /// A server of a new cluster. `clock` gives the milliseconds since the Unix epoch, `draw` any number:
    /// the same numbers make the same run.
    pub fn new(
        clock: impl Fn() -> i64 + Send + 'static,
        draw: impl FnMut() -> u64 + Send + 'static,
    ) -> Self {
        let mut chance = Chance::new(draw);
        let api = Api::new(clock(), &mut chance);
        let observed = api.store.version();
        let state = State {
            api,
            chance,
            clock: Box::new(clock),
            faults: Faults::default(),
            starts: 0,
            is_up: true,
            is_frozen: false,
            start_refusal_ms: 0,
            refuses_until_ms: i64::MIN,
            observer: None,
            observed,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), turns: Notify::new() }))
    }

    /// Calls `observer` with each change of an object, in order, before any client sees it. It must not
    /// call the server.
    pub fn observe(&self, observer: impl FnMut(&Change) + Send + 'static) {
        self.change(|state| state.observer = Some(Box::new(observer)));
    }

    /// Answers a request at once, without faults, even while the server is down: the HTTP status and the
    /// object. A body of a PATCH is a JSON merge patch. A watch is not answered.
    pub fn request(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Arc<Value>) {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let mut request = Request::new(());
        *request.method_mut() = method;
        let Ok(uri) = path.parse() else { return (0, Arc::new(Value::Null)) };
        *request.uri_mut() = uri;
        let (parts, ()) = request.into_parts();
        let mut request = ApiRequest::new(&parts, Bytes::from(body));
        if request.method == Method::PATCH {
            request.content_type = "application/merge-patch+json".to_owned();
        }
        match self.change(|state| state.answer(&request)) {
            Answer::Json(code, object) => (code, object),
            Answer::Text(code, text) => (code, Arc::new(text.into())),
            Answer::Watch(_) => (200, Arc::new(Value::Null)),
        }
    }

    /// The objects of a resource, by its plural, in their order.
    pub fn objects(&self, plural: &str) -> Vec<Arc<Value>> {
        let state = self.lock();
        let objects = state.api.store.objects().iter();
        objects.filter(|(place, _)| place.plural == plural).map(|(_, one)| one.clone()).collect()
    }

    /// The version of the last write.
    pub fn version(&self) -> u64 {
        self.lock().api.store.version()
    }

    /// Replaces what may befall requests and watches from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.change(|state| state.faults = faults);
    }

    /// Takes a right from every user: `verb` as in `list`, by the plural of the resource.
    pub fn deny(&self, verb: &str, plural: &str) {
        self.change(|state| state.api.denied.push((verb.to_owned(), plural.to_owned())));
    }

    /// Serves a resource no longer, as a cluster without its API: by its plural.
    pub fn withdraw(&self, plural: &str) {
        self.change(|state| state.api.withdrawn.push(plural.to_owned()));
    }

    /// Everything is allowed again.
    pub fn allow_all(&self) {
        self.change(|state| state.api.denied.clear());
    }

    /// How long a server refuses every client after each start from now on, by its clock: it has not read the roles yet.
    pub fn set_start_refusal(&self, milliseconds: u32) {
        self.change(|state| state.start_refusal_ms = milliseconds.into());
    }

    /// The server stops answering, with all connections open, or goes on.
    pub fn set_frozen(&self, is_frozen: bool) {
        self.change(|state| state.is_frozen = is_frozen);
    }

    /// The server ends, with all connections. Its data stay.
    pub fn stop(&self) {
        self.change(|state| state.is_up = false);
    }

    /// The server starts on its data, if it is down. No watch continues from before.
    pub fn start(&self) {
        self.change(|state| {
            if !state.is_up {
                state.is_up = true;
                state.is_frozen = false;
                state.begin_anew();
            }
        });
    }

    /// Ends the server and starts it.
    pub fn restart(&self) {
        self.stop();
        self.start();
    }

    /// Forgets the history: tokens and versions from before now are too old.
    pub fn compact(&self) {
        self.change(|state| state.api.store.compact());
    }

    /// Copies the data.
    pub fn backup(&self) -> Backup {
        Backup(self.lock().api.store.clone())
    }

    /// The server starts anew on the data of a backup: versions go back. The observer gets the differences.
    pub fn restore(&self, backup: &Backup) {
        self.change(|state| {
            let before = std::mem::replace(&mut state.api.store, backup.0.clone());
            state.begin_anew();
            state.observe_restore(&before);
        });
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and has watches look at it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = {
            let mut state = self.lock();
            let result = change(&mut state);
            state.observe();
            result
        };
        self.0.turns.notify_waiters();
        result
    }

    /// The next change of the state after this call.
    pub(crate) fn turn(&self) -> Pin<Box<Notified<'_>>> {
        let mut turn = Box::pin(self.0.turns.notified());
        turn.as_mut().enable();
        turn
    }
}

impl State {
    pub(crate) fn answer(&mut self, request: &ApiRequest) -> Answer {
        let stale_by = match self.faults.stale_versions_max {
            0 => 0,
            most => self.chance.below(most + 1),
        };
        let now_ms = (self.clock)();
        let mut around = Surroundings { now_ms, chance: &mut self.chance, stale_by };
        self.api.answer(request, &mut around)
    }

    /// Answers a request of a client, which has no right while the server has not read the roles.
    pub(crate) fn serve(&mut self, request: &ApiRequest) -> Answer {
        if (self.clock)() < self.refuses_until_ms {
            return Api::refuse(request);
        }
        self.answer(request)
    }

    pub(crate) fn way(&mut self) -> Way {
        self.faults.way(&mut self.chance)
    }

    fn begin_anew(&mut self) {
        self.starts += 1;
        self.refuses_until_ms = (self.clock)().saturating_add(self.start_refusal_ms);
        self.api.store.begin_anew();
    }

    fn observe(&mut self) {
        let store = &self.api.store;
        if let Some(observer) = &mut self.observer {
            store.changes_after(self.observed).for_each(observer);
        }
        self.observed = store.version();
    }

    /// Sends the observer what a restore changed.
    fn observe_restore(&mut self, old: &Store) {
        let store = &self.api.store;
        let version = store.version();
        self.observed = version;
        let Some(observer) = &mut self.observer else { return };
        let places: BTreeSet<_> = old.objects().keys().chain(store.objects().keys()).collect();
        for place in places {
            let (before, after) = (old.get(place).cloned(), store.get(place).cloned());
            if before != after {
                observer(&Change { version, place: place.clone(), before, after });
            }
        }
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("version", &self.version()).finish_non_exhaustive()
    }
}
