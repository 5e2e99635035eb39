//! The handler: carries out MetaManager's operations by asking those who own what they touch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use headwater_session::message::RequestError;
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::connection::session::{CloudResponse, SessionCommand};
use crate::meta::object::Object;
use crate::meta::operation::{Operation, OperationError, Plan, Verb, plan};
use crate::meta::routing::{CloudQuery, Group, OperationSource, Route, route};
use crate::replica::ReplicaCommand;
use crate::replica::watch::{Filter, TooManyWatches, Watch};
use crate::status::EdgeStatus;
use crate::upstream::pod_statuses::PodStatus;
use crate::upstream::{StatusesOf, UpstreamCommand, UpstreamStatus};

/// Who speaks when the edge itself does.
const SOURCE: &str = "meta";

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is done.
    Done { unchanged: bool },
    /// What was asked for.
    Objects(Vec<Object>),
}

/// The ways to those who own things. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ApiHandler {
    pub(crate) node: NodeName,
    pub(crate) query_timeout: Duration,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) session: mpsc::Sender<SessionCommand>,
    pub(crate) replica: mpsc::Sender<ReplicaCommand>,
    pub(crate) upstream: mpsc::Sender<UpstreamCommand>,
    pub(crate) connected: watch::Receiver<bool>,
    pub(crate) upstream_status: watch::Receiver<UpstreamStatus>,
}

/// The metadata of an object that the cloud answered with.
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
    /// Carries an operation out; `cause` is the trace context that came with it.
    ///
    /// # Errors
    /// When it is not done; see [`OperationError`].
    pub(crate) async fn carry_out(
        &self,
        operation: Operation,
        cause: Option<String>,
    ) -> Result<Outcome, OperationError> {
        let Ok(_room) = self.room.try_acquire() else {
            let reason = "too many operations are under way: ask again".to_owned();
            return Err(OperationError::Unavailable(reason));
        };
        match plan(&self.node, &operation)? {
            Plan::SetStatus { pod, uid, status } => {
                let status = PodStatus { uid, status };
                let changed = ask(&self.upstream, |reply| UpstreamCommand::SetStatus {
                    pod,
                    status,
                    cause,
                    reply,
                });
                changed.await?.map(done_if)
            }
            Plan::RemoveStatus { pod } => {
                ask(&self.upstream, |reply| UpstreamCommand::RemoveStatus { pod, reply })
                    .await?
                    .map(done_if)
            }
            Plan::Report(body) => {
                ask(&self.upstream, |reply| UpstreamCommand::Report { body, reply })
                    .await?
                    .map(|()| done_if(true))
            }
            Plan::Terminate { pod, uid } => {
                ask(&self.upstream, |reply| UpstreamCommand::Terminate { pod, uid, cause, reply })
                    .await?
                    .map(done_if)
            }
            Plan::MetaSync => {
                ask(&self.upstream, |reply| UpstreamCommand::MetaSync { reply }).await?.map(done_if)
            }
            Plan::Deliver(group) => match self.deliver(group, operation).await? {
                0 => Err(OperationError::NoExecutor(format!("nobody of group {group} watches"))),
                _ => Ok(done_if(true)),
            },
            Plan::IsConnected(connected) if *self.connected.borrow() == connected => {
                Ok(done_if(false))
            }
            Plan::IsConnected(_) => Err(OperationError::Forbidden(
                "the connection is what it is: nobody sets it from here".to_owned(),
            )),
            Plan::Find { key, cloud } => self.find(&operation, key, cloud).await,
            Plan::List { namespace, kind } => self.list(namespace, kind).await,
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
        ask(&self.replica, |reply| ReplicaCommand::Watch { filter, reply }).await
    }

    /// Where the edge stands.
    ///
    /// # Errors
    /// When it stops.
    pub(crate) async fn status(&self) -> Result<EdgeStatus, OperationError> {
        let session = ask(&self.session, SessionCommand::Status).await?;
        Ok(EdgeStatus::new(session, &self.upstream_status.borrow()))
    }

    async fn find(
        &self,
        operation: &Operation,
        key: ResourceKey,
        cloud: CloudQuery,
    ) -> Result<Outcome, OperationError> {
        if key.kind() == "podstatus" {
            let of = StatusesOf::Pod(key.with_kind("pod"));
            let found = self.statuses(of).await?;
            return if found.is_empty() {
                Err(not_found(&key))
            } else {
                Ok(Outcome::Objects(found))
            };
        }
        let here = {
            let key = key.clone();
            ask(&self.replica, |reply| ReplicaCommand::Find { key, reply }).await?
        };
        let is_connected = *self.connected.borrow();
        let goes_out = match cloud {
            CloudQuery::Never => false,
            CloudQuery::WhenAbsent => here.is_none(),
            CloudQuery::Always => true,
        };
        let found = match here {
            here if goes_out && is_connected => match (self.ask_cloud(&key).await?, here) {
                (Ok(object), _) => object_of(key, object),
                (Err(RequestError::Unavailable(_)), Some(here)) => here,
                (Err(RequestError::Unavailable(reason)), None) => {
                    return Err(OperationError::Unavailable(format!("{key}: {reason}")));
                }
                (Err(RequestError::NotFound), _) => return Err(not_found(&key)),
                (Err(error @ RequestError::Forbidden), _) => {
                    return Err(OperationError::Forbidden(format!("{key}: {error}")));
                }
            },
            Some(here) => here,
            None if goes_out => {
                let reason = format!("{key} is not here, and there is no connection to the cloud");
                return Err(OperationError::Unavailable(reason));
            }
            None => return Err(not_found(&key)),
        };
        self.wake(operation, &found).await;
        Ok(Outcome::Objects(vec![found]))
    }

    async fn list(
        &self,
        namespace: Option<String>,
        kind: String,
    ) -> Result<Outcome, OperationError> {
        let found = if kind == "podstatus" {
            self.statuses(StatusesOf::Namespace(namespace)).await?
        } else {
            ask(&self.replica, |reply| ReplicaCommand::List { namespace, kind, reply }).await?
        };
        Ok(Outcome::Objects(found))
    }

    async fn statuses(&self, of: StatusesOf) -> Result<Vec<Object>, OperationError> {
        ask(&self.upstream, |reply| UpstreamCommand::Statuses { of, reply }).await
    }

    async fn ask_cloud(&self, key: &ResourceKey) -> Result<CloudResponse, OperationError> {
        let (key, timeout) = (key.clone(), self.query_timeout);
        ask(&self.session, |reply| SessionCommand::Ask { key, timeout, reply }).await
    }

    /// An answer wakes the group it is routed to, unless that is who asked.
    async fn wake(&self, operation: &Operation, found: &Object) {
        let Route::To(group) = route(OperationSource::Cloud, found.key.kind()) else { return };
        if Group::named(&operation.source) == Some(group) {
            return;
        }
        let answer = Operation {
            id: String::new(),
            parent_id: operation.id.clone(),
            source: SOURCE.to_owned(),
            verb: Verb::Response,
            resource: found.key.to_string(),
            content: found.object.clone(),
        };
        // Whoever does not watch is not woken.
        let _ = self.deliver(group, answer).await;
    }

    async fn deliver(&self, group: Group, operation: Operation) -> Result<usize, OperationError> {
        ask(&self.replica, |reply| ReplicaCommand::Deliver { group, operation, reply }).await
    }
}

/// CloudQuery an owner and waits for its answer.
async fn ask<C, T>(
    owner: &mpsc::Sender<C>,
    question: impl FnOnce(oneshot::Sender<T>) -> C,
) -> Result<T, OperationError> {
    let stopping =
        || OperationError::Unavailable("the edge stops: ask again when it runs".to_owned());
    let (reply, answer) = oneshot::channel();
    owner.send(question(reply)).await.map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())
}

fn done_if(changed: bool) -> Outcome {
    Outcome::Done { unchanged: !changed }
}

fn not_found(key: &ResourceKey) -> OperationError {
    OperationError::NotFound(format!("{key}: not found"))
}

fn object_of(key: ResourceKey, object: Bytes) -> Object {
    let CloudObject { metadata } = serde_json::from_slice(&object).unwrap_or_default();
    let Metadata { uid, resource_version } = metadata;
    Object { key, uid, resource_version, object }
}
