//! The API without time, chance or I/O of its own: a request in, an answer out.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::failure::Failure;
use crate::request::{ApiRequest, Target};
use crate::resource::Resource;
use crate::store::{Place, Store};
use crate::watching::WatchStart;

/// The namespaces that a cluster begins with.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The version that is served: that of the real control plane of the tests.
const MINOR: &str = "36";
const GIT_VERSION: &str = "v1.36.3";

/// See the module.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) store: Store,
    /// The rights that no user has: a verb and a plural.
    pub(crate) denied: Vec<(String, String)>,
    /// The plurals of the resources that are not served.
    pub(crate) withdrawn: Vec<String>,
}

/// What a request needs from outside.
pub(crate) struct Surroundings<'a> {
    /// The wall clock.
    pub(crate) now_ms: i64,
    pub(crate) chance: &'a mut Chance,
    /// By how many versions a list that takes any version is behind.
    pub(crate) stale_by: u64,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Json(u16, Arc<Value>),
    Text(u16, &'static str),
    /// A watch follows from here.
    Watch(Box<WatchStart>),
}

impl Api {
    pub(crate) fn new(now_ms: i64, chance: &mut Chance) -> Self {
        let mut api = Self { store: Store::default(), denied: Vec::new(), withdrawn: Vec::new() };
        let mut around = Surroundings { now_ms, chance, stale_by: 0 };
        for name in NAMESPACES {
            let target = Target::parse("/api/v1/namespaces").expect("namespaces are served");
            let object = json!({"metadata": {"name": name}});
            api.create(&target, object, &mut around).expect("a new name");
        }
        // As after a start on data: no watch begins before.
        api.store.begin_anew();
        api
    }

    /// Answers a request of a user without any right.
    pub(crate) fn refuse(request: &ApiRequest) -> Answer {
        match Target::parse(&request.path) {
            Some(target) => Answer::failure(&forbidden(verb(request, &target), &target)),
            None => Answer::Text(403, "forbidden\n"),
        }
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, request: &ApiRequest, around: &mut Surroundings) -> Answer {
        match request.path.as_str() {
            "/version" => return Answer::ok(version()),
            "/readyz" | "/livez" | "/healthz" => return Answer::Text(200, "ok"),
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                return Answer::of(self.review(request)).created();
            }
            _ => {}
        }
        let Some(target) = Target::parse(&request.path) else {
            return if Resource::serves_group_of(&request.path) {
                Answer::failure(&Failure::no_resource())
            } else {
                Answer::Text(404, "404 page not found\n")
            };
        };
        if self.withdrawn.iter().any(|plural| *plural == target.resource.plural) {
            return Answer::failure(&Failure::no_resource());
        }
        let verb = verb(request, &target);
        if self.is_denied(verb, &target) {
            return Answer::failure(&forbidden(verb, &target));
        }
        match verb {
            "watch" => match self.watch(&target, &request.query) {
                Ok(start) => Answer::Watch(Box::new(start)),
                Err(failure) => Answer::failure(&failure),
            },
            "list" => Answer::of(self.list(&target, &request.query, around)),
            "get" => Answer::of(self.get(&target, &request.query, around)),
            "create" if target.subresource.as_deref() == Some("token") => {
                Answer::of(self.token(&target, request, around)).created()
            }
            "create" => Answer::of(
                required(request).and_then(|object| self.create(&target, object, around)),
            )
            .created(),
            "update" => Answer::of(required(request).and_then(|object| self.put(&target, object))),
            "patch" => Answer::of(self.patch(&target, request)),
            "delete" => Answer::of(self.delete(&target, request, around)),
            _ => Answer::failure(&Failure::method_not_allowed()),
        }
    }

    fn is_denied(&self, verb: &str, target: &Target) -> bool {
        let is_of = |(denied, plural): &(String, String)| {
            denied == verb && plural == target.resource.plural
        };
        self.denied.iter().any(is_of)
    }

    /// Whether a right is there.
    fn review(&self, request: &ApiRequest) -> Result<Arc<Value>, Failure> {
        let mut review = required(request)?;
        let asked = &review["spec"]["resourceAttributes"];
        let is_denied = self
            .denied
            .iter()
            .any(|(verb, plural)| asked["verb"] == **verb && asked["resource"] == **plural);
        review["status"] = json!({"allowed": !is_denied});
        Ok(Arc::new(review))
    }

    /// A token of a service account, which names whose it is.
    fn token(
        &self,
        target: &Target,
        request: &ApiRequest,
        around: &mut Surroundings,
    ) -> Result<Arc<Value>, Failure> {
        let name = target.name.as_deref().unwrap_or_default();
        let place = target.place();
        if self.store.get(&place).is_none() {
            return Err(Failure::not_found(target.resource, name));
        }
        let mut token = required(request)?;
        let seconds = token["spec"]["expirationSeconds"].as_i64().unwrap_or(3_600);
        let end = crate::object::timestamp(around.now_ms.saturating_add(seconds * 1000));
        let text = format!("twin.{}.{}", place.path, around.chance.name_end());
        token["status"] = json!({"token": text, "expirationTimestamp": end});
        Ok(Arc::new(token))
    }
}

impl Answer {
    fn ok(value: Value) -> Self {
        Self::Json(200, Arc::new(value))
    }

    pub(crate) fn failure(failure: &Failure) -> Self {
        Self::Json(failure.code, Arc::new(failure.status()))
    }

    fn of(result: Result<Arc<Value>, Failure>) -> Self {
        match result {
            Ok(value) => Self::Json(200, value),
            Err(failure) => Self::failure(&failure),
        }
    }

    fn created(self) -> Self {
        match self {
            Self::Json(200, value) => Self::Json(201, value),
            other => other,
        }
    }
}

impl Target {
    /// The place of its object.
    pub(crate) fn place(&self) -> Place {
        let name = self.name.as_deref().unwrap_or_default();
        Place::new(self.resource, self.namespace.as_deref(), name)
    }
}

/// The body, which must be there.
pub(crate) fn required(request: &ApiRequest) -> Result<Value, Failure> {
    request.json()?.ok_or_else(|| Failure::bad_request("the request has no body"))
}

fn verb(request: &ApiRequest, target: &Target) -> &'static str {
    let is_object = target.name.is_some();
    match request.method {
        Method::GET if request.query.is_watch => "watch",
        Method::GET if is_object => "get",
        Method::GET => "list",
        Method::POST if !is_object || target.subresource.as_deref() == Some("token") => "create",
        Method::PUT if is_object => "update",
        Method::PATCH if is_object => "patch",
        Method::DELETE if is_object => "delete",
        _ => "",
    }
}

fn forbidden(verb: &str, target: &Target) -> Failure {
    let why = format!(
        "User \"twin\" cannot {verb} resource {:?} in API group {:?} at the cluster scope",
        target.resource.plural, target.resource.group
    );
    let name = target.name.as_deref().unwrap_or_default();
    Failure::forbidden(target.resource, name, &why)
}

fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}
