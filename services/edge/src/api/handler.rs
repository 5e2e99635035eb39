//! The handler: carries out MetaManager's operations with the help of the owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{AnswerBody, NodeName, RequestError, RequestVerb, ResourceKey};
use headwater_object::TokenClaim;
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::connection::session::{CloudAsk, CloudResponse, SessionCommand};
use crate::meta::cluster_consumers::ClusterConsumers;
use crate::meta::object::Object;
use crate::meta::operation::{Operation, OperationError, Plan, Verb, plan};
use crate::meta::routing::{CloudQuery, Group, OperationSource, Route, route};
use crate::meta::worker::WorkerWatches;
use crate::replica::ReplicaCommand;
use crate::replica::watch::{Filter, TooManyWatches, Watch, WatchCount};
use crate::status::EdgeStatus;
use crate::upstream::pod_statuses::PodStatus;
use crate::upstream::tokens::TokenStanding;
use crate::upstream::{StatusesOf, UpstreamCommand, UpstreamStatus};

/// The source of operations that the edge itself makes.
const SOURCE: &str = "meta";

/// What an operation resulted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Done { unchanged: bool },
    /// The objects of a query.
    Objects(Vec<Object>),
    /// The answer of the cloud to a request for a token or a certificate.
    Answer { key: ResourceKey, answer: AnswerBody },
}

/// The handler of one edge: the channels to the owners and to the session. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ApiHandler {
    pub(crate) node: NodeName,
    pub(crate) query_timeout: Duration,
    /// Bounds the operations in progress.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) session: mpsc::Sender<SessionCommand>,
    pub(crate) replica: mpsc::Sender<ReplicaCommand>,
    pub(crate) upstream: mpsc::Sender<UpstreamCommand>,
    /// The programs that read the shared stream.
    pub(crate) cluster_consumers: ClusterConsumers,
    /// The watches of the pod worker.
    pub(crate) worker_watches: WorkerWatches,
    /// Whether a hub has welcomed the session.
    pub(crate) connected: watch::Receiver<bool>,
    pub(crate) upstream_status: watch::Receiver<UpstreamStatus>,
}

/// What the handler reads of an object from the cloud.
#[derive(Deserialize, Default)]
#[serde(default)]
struct CloudObject {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

impl ApiHandler {
    /// Carries out an operation. `cause` is the caller's trace context.
    ///
    /// # Errors
    /// When the operation is refused; see [`OperationError`].
    pub(crate) async fn carry_out(
        &self,
        operation: Operation,
        cause: Option<String>,
    ) -> Result<Outcome, OperationError> {
        let Ok(_room) = self.room.try_acquire() else {
            let reason = "too many operations are in progress; retry".to_owned();
            return Err(OperationError::Unavailable(reason));
        };
        match plan(&self.node, &operation)? {
            Plan::SetStatus { pod, uid, status } => {
                let status = PodStatus { uid, status };
                self.change(|reply| UpstreamCommand::SetStatus { pod, status, cause, reply }).await
            }
            Plan::RemoveStatus { pod, uid } => {
                self.change(|reply| UpstreamCommand::RemoveStatus { pod, uid, reply }).await
            }
            Plan::Report(body) => {
                self.change(|reply| UpstreamCommand::Report { body, reply }).await
            }
            Plan::Terminate { pod, uid } => {
                self.change(|reply| UpstreamCommand::Terminate { pod, uid, cause, reply }).await
            }
            Plan::MetaSync => self.change(|reply| UpstreamCommand::MetaSync { reply }).await,
            Plan::Deliver(group) => match self.deliver(group, operation).await? {
                0 => Err(OperationError::NoExecutor(format!("group {group} has no subscriber"))),
                _ => Ok(Outcome::Done { unchanged: false }),
            },
            Plan::IsConnected(connected) if *self.connected.borrow() == connected => {
                Ok(Outcome::Done { unchanged: true })
            }
            Plan::IsConnected(_) => {
                Err(OperationError::Forbidden("connection state is read-only".to_owned()))
            }
            Plan::Token(claim) => self.token(claim).await,
            Plan::Csr(signing) => {
                let key = signing.key.clone();
                match self.ask_cloud(RequestVerb::Csr, &key, signing.body()).await? {
                    Ok(answer) => Ok(Outcome::Answer { key, answer }),
                    Err(error) => Err(OperationError::of(&key, error)),
                }
            }
            Plan::Find { key, cloud } => {
                self.queried(key.kind());
                self.find(&operation, key, cloud).await
            }
            Plan::List { namespace, kind } => {
                self.queried(&kind);
                self.list(namespace, kind).await
            }
        }
    }

    /// Opens a watch.
    ///
    /// # Errors
    /// When there are too many, or the edge stops.
    pub(crate) async fn watch(
        &self,
        filter: Filter,
    ) -> Result<Result<Watch, TooManyWatches>, OperationError> {
        // Before the watch is there: the cloud takes a while to assign the stream.
        let cluster = (filter.group == Group::Mesh)
            .then(|| WatchCount::Cluster(self.cluster_consumers.watch()));
        let is_worker = filter.group == Group::Edged;
        let watch = request(&self.replica, |reply| ReplicaCommand::Watch { filter, reply }).await?;
        Ok(watch.map(|watch| {
            // A watch that was refused is no sign of a worker.
            let worker = is_worker.then(|| WatchCount::Worker(self.worker_watches.open()));
            watch.counted(cluster.or(worker))
        }))
    }

    /// A query for objects of this type came.
    fn queried(&self, kind: &str) {
        if Group::Mesh.sees(kind) {
            self.cluster_consumers.query();
        }
    }

    /// Returns the status of the edge.
    ///
    /// # Errors
    /// When the edge stops.
    pub(crate) async fn status(&self) -> Result<EdgeStatus, OperationError> {
        let session = request(&self.session, SessionCommand::Status).await?;
        Ok(EdgeStatus::new(session, &self.upstream_status.borrow()))
    }

    /// Looks up an object in the view, and in the cloud where `cloud` asks for that.
    async fn find(
        &self,
        operation: &Operation,
        key: ResourceKey,
        cloud: CloudQuery,
    ) -> Result<Outcome, OperationError> {
        if key.kind() == "podstatus" {
            let found = self.statuses(StatusesOf::Pod(key.with_kind("pod"))).await?;
            return if found.is_empty() {
                Err(not_found(&key))
            } else {
                Ok(Outcome::Objects(found))
            };
        }
        let local = {
            let key = key.clone();
            request(&self.replica, |reply| ReplicaCommand::Find { key, reply }).await?
        };
        let is_connected = *self.connected.borrow();
        let queries_cloud = match cloud {
            CloudQuery::Never => false,
            CloudQuery::WhenAbsent => local.is_none(),
        };
        let found = match local {
            Some(local) => local,
            None if queries_cloud && is_connected => self.find_in_cloud(key).await?,
            None if queries_cloud => {
                let reason = format!(
                    "{key}: the view has no such object, and there is no connection to the cloud"
                );
                return Err(OperationError::Unavailable(reason));
            }
            None => return Err(not_found(&key)),
        };
        self.notify(operation, &found).await;
        Ok(Outcome::Objects(vec![found]))
    }

    /// Requests an object from the cloud. Its answer is not kept: the stream brings the object.
    async fn find_in_cloud(&self, key: ResourceKey) -> Result<Object, OperationError> {
        match self.ask_cloud(RequestVerb::Get, &key, Bytes::new()).await? {
            Ok(object) => Ok(cloud_object(key, object.into_bytes())),
            Err(error) => Err(OperationError::of(&key, error)),
        }
    }

    /// The token of a claim: that of the disk while it is fresh, else one from the cloud. An aging one
    /// serves while the cloud issues no other.
    async fn token(&self, claim: TokenClaim) -> Result<Outcome, OperationError> {
        let account = claim.account.clone();
        self.check_token(&claim).await?;
        let standing = {
            let claim = claim.clone();
            request(&self.upstream, |reply| UpstreamCommand::FindToken { claim, reply }).await?
        };
        let aging = match standing {
            TokenStanding::Fresh(answer) => return Ok(Outcome::Answer { key: account, answer }),
            TokenStanding::Aging(answer) => Some(answer),
            TokenStanding::Absent => None,
        };
        let answer = match self.ask_cloud(RequestVerb::Token, &account, claim.body()).await? {
            Ok(answer) => answer,
            Err(error) => return self.token_without_cloud(claim, aging, error).await,
        };
        let is_kept = {
            let answer = answer.clone();
            let keep = |reply| UpstreamCommand::KeepToken { claim, answer, reply };
            request(&self.upstream, keep).await??
        };
        if !is_kept {
            let why = format!("{account}: the cloud's answer has no token");
            return Err(OperationError::Unavailable(why));
        }
        Ok(Outcome::Answer { key: account, answer })
    }

    /// Checks a claim against the objects of the view.
    async fn check_token(&self, claim: &TokenClaim) -> Result<(), OperationError> {
        let mut known: BTreeMap<ResourceKey, Option<Bytes>> = BTreeMap::new();
        loop {
            // A check ends at the first object that it lacks. It names few, each of which is looked up once.
            let checked = claim.check(|key| known.get(key).cloned().ok_or_else(|| key.clone()));
            match checked {
                Ok(checked) => {
                    return checked.map_err(|error| OperationError::of(&claim.account, error));
                }
                Err(key) => {
                    let find = |reply| ReplicaCommand::Find { key: key.clone(), reply };
                    let found = request(&self.replica, find).await?;
                    known.insert(key, found.map(|found| found.object));
                }
            }
        }
    }

    /// What serves instead of a token that the cloud did not issue: the aging one until its end, as with a kubelet. A
    /// right may be absent for a moment, and each later request asks the cloud again. Only the answer that the pod or
    /// the account is gone, or is another one, takes the old token away.
    async fn token_without_cloud(
        &self,
        claim: TokenClaim,
        aging: Option<AnswerBody>,
        error: RequestError,
    ) -> Result<Outcome, OperationError> {
        let key = claim.account.clone();
        match (error, aging) {
            (error @ (RequestError::NotFound | RequestError::Conflict(_)), _) => {
                // An owner that is gone keeps none.
                let _ = self.upstream.send(UpstreamCommand::RevokeToken(claim)).await;
                Err(OperationError::of(&key, error))
            }
            (error, Some(answer)) => {
                if matches!(error, RequestError::Forbidden(_) | RequestError::Invalid(_)) {
                    tracing::warn!(%key, %error, "no new token; the old one serves until its end");
                }
                Ok(Outcome::Answer { key, answer })
            }
            (error, None) => Err(OperationError::of(&key, error)),
        }
    }

    async fn list(
        &self,
        namespace: Option<String>,
        kind: String,
    ) -> Result<Outcome, OperationError> {
        let found = if kind == "podstatus" {
            self.statuses(StatusesOf::Namespace(namespace)).await?
        } else {
            request(&self.replica, |reply| ReplicaCommand::List { namespace, kind, reply }).await?
        };
        Ok(Outcome::Objects(found))
    }

    async fn statuses(&self, of: StatusesOf) -> Result<Vec<Object>, OperationError> {
        request(&self.upstream, |reply| UpstreamCommand::Statuses { of, reply }).await
    }

    async fn ask_cloud(
        &self,
        verb: RequestVerb,
        key: &ResourceKey,
        body: Bytes,
    ) -> Result<CloudResponse, OperationError> {
        // A hub ends the session of a node that sends a longer one.
        verb.check_body(&body).map_err(|error| OperationError::of(key, error))?;
        let (ask, timeout) = (CloudAsk { verb, key: key.clone(), body }, self.query_timeout);
        request(&self.session, |reply| SessionCommand::Request { ask, timeout, reply }).await
    }

    /// Sends a command to the owner of the outbox, which replies whether it changed anything.
    async fn change(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<bool, OperationError>>) -> UpstreamCommand,
    ) -> Result<Outcome, OperationError> {
        let changed = request(&self.upstream, command).await??;
        Ok(Outcome::Done { unchanged: !changed })
    }

    /// Delivers a found object to the group to which it is routed, unless the caller belongs to it.
    async fn notify(&self, operation: &Operation, found: &Object) {
        let Route::To(group) = route(OperationSource::Cloud, found.key.kind()) else { return };
        if Group::named(&operation.source) == Some(group) {
            return;
        }
        let response = Operation {
            id: String::new(),
            parent_id: operation.id.clone(),
            source: SOURCE.to_owned(),
            verb: Verb::Response,
            resource: found.key.to_string(),
            content: found.object.clone(),
        };
        // A group without subscribers needs no response.
        let _ = self.deliver(group, response).await;
    }

    async fn deliver(&self, group: Group, operation: Operation) -> Result<usize, OperationError> {
        request(&self.replica, |reply| ReplicaCommand::Deliver { group, operation, reply }).await
    }
}

/// Sends a command to an owner, and waits for the reply.
async fn request<C, T>(
    owner: &mpsc::Sender<C>,
    command: impl FnOnce(oneshot::Sender<T>) -> C,
) -> Result<T, OperationError> {
    let stopping =
        || OperationError::Unavailable("the edge stops; retry when it runs again".to_owned());
    let (reply, response) = oneshot::channel();
    owner.send(command(reply)).await.map_err(|_| stopping())?;
    response.await.map_err(|_| stopping())
}

fn not_found(key: &ResourceKey) -> OperationError {
    OperationError::NotFound(format!("{key}: not found"))
}

fn cloud_object(key: ResourceKey, object: Bytes) -> Object {
    let CloudObject { metadata } = serde_json::from_slice(&object).unwrap_or_default();
    let Metadata { uid, resource_version } = metadata;
    Object { key, uid, resource_version, object }
}
