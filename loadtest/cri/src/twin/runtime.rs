//! CRI's sandboxes and containers on the wire.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_cri::proto::runtime_service_server::RuntimeService;
use headwater_cri::proto::*;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};

use super::feed::{Feed, Happening, Reply};
use super::life::Life;
use super::record::RecordedRequest;
use super::state::Start;
use super::{Core, END_WITHIN, Oom, Services};

/// The exit codes of processes that ended by a signal.
const KILLED: i32 = 137;
const TERMINATED: i32 = 143;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl RuntimeService for Services {
    type GetContainerEventsStream = Reply<ContainerEventResponse>;

    async fn version(&self, _request: Request<VersionRequest>) -> Answer<VersionResponse> {
        self.0
            .call("Version", async || {
                let state = self.0.state();
                Ok(VersionResponse {
                    version: "0.1.0".to_owned(),
                    runtime_name: state.name(),
                    runtime_version: state.version(),
                    runtime_api_version: "v1".to_owned(),
                })
            })
            .await
    }

    async fn status(&self, _request: Request<StatusRequest>) -> Answer<StatusResponse> {
        self.0
            .call("Status", async || {
                let condition = |name: &str, status| RuntimeCondition {
                    r#type: name.to_owned(),
                    status,
                    ..RuntimeCondition::default()
                };
                let network = !self.0.state().has_no_network();
                let conditions =
                    vec![condition("RuntimeReady", true), condition("NetworkReady", network)];
                let status = Some(RuntimeStatus { conditions });
                let runtime_handlers = self.0.state().handlers();
                Ok(StatusResponse { status, runtime_handlers, ..StatusResponse::default() })
            })
            .await
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let request = request.into_inner();
        self.0.record().add(|| RecordedRequest::Sandbox(Box::new(request.clone())));
        let config = request.config.unwrap_or_default();
        self.0
            .call("RunPodSandbox", async || {
                let pod_sandbox_id = self.0.state().run_sandbox(config, request.runtime_handler)?;
                Ok(RunPodSandboxResponse { pod_sandbox_id })
            })
            .await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.0
            .call("StopPodSandbox", async || {
                let running = self.0.state().stop_sandbox(&id)?;
                for container in running {
                    self.0.kill(&container).await?;
                }
                Ok(StopPodSandboxResponse {})
            })
            .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.0
            .call("RemovePodSandbox", async || {
                // One that is gone has nothing to stop.
                let running = self.0.state().stop_sandbox(&id).unwrap_or_default();
                for container in running {
                    self.0.kill(&container).await?;
                }
                let removed = self.0.state().remove_sandbox(&id);
                removed.into_iter().for_each(|one| self.0.happens(Happening::Deleted(one)));
                Ok(RemovePodSandboxResponse {})
            })
            .await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.0
            .call("PodSandboxStatus", async || {
                let status = Some(self.0.state().sandbox_status(&id)?);
                Ok(PodSandboxStatusResponse { status, ..PodSandboxStatusResponse::default() })
            })
            .await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        self.0
            .call("ListPodSandbox", async || {
                let items = self.0.state().list_sandboxes(&filter);
                Ok(ListPodSandboxResponse { items })
            })
            .await
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        self.0.record().add(|| RecordedRequest::Container(Box::new(request.clone())));
        let CreateContainerRequest { pod_sandbox_id, config, .. } = request;
        self.0
            .call("CreateContainer", async || {
                let config = config.unwrap_or_default();
                let logs = self.0.state().log_directory(&pod_sandbox_id);
                check_log_folder(Path::new(&logs), &config.log_path)?;
                let container_id = self.0.state().create(&pod_sandbox_id, config)?;
                self.0.happens(Happening::Created(container_id.clone()));
                Ok(CreateContainerResponse { container_id })
            })
            .await
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.0
            .call("StartContainer", async || {
                let start = self.0.state().start(&id)?;
                let Start::Runs(life) = start else {
                    let text = "failed to create containerd task: failed to create shim task: OCI \
                                runtime create failed: exec: stat: no such file or directory: unknown";
                    return Err(Status::unknown(text));
                };
                self.0.happens(Happening::Started(id.clone()));
                live(&self.0, &id, life);
                Ok(StartContainerResponse {})
            })
            .await
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let StopContainerRequest { container_id: id, timeout } = request.into_inner();
        self.0
            .call("StopContainer", async || {
                self.0.state().end_unknown(&id);
                let Some(life) = self.0.state().running(&id)? else {
                    return Ok(StopContainerResponse {});
                };
                let within = Duration::from_secs(timeout.max(0).cast_unsigned());
                if !within.is_zero() {
                    if life != Life::Stubborn {
                        self.0.end(&id, TERMINATED, Oom::No);
                    }
                    if self.0.ended_within(&id, within).await {
                        return Ok(StopContainerResponse {});
                    }
                }
                self.0.kill(&id).await?;
                Ok(StopContainerResponse {})
            })
            .await
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.0
            .call("RemoveContainer", async || {
                // One that is gone is removed.
                if self.0.state().running(&id).is_ok() {
                    self.0.kill(&id).await?;
                    self.0.state().remove_container(&id);
                    self.0.happens(Happening::Deleted(id));
                }
                Ok(RemoveContainerResponse {})
            })
            .await
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        self.0
            .call("ListContainers", async || {
                let containers = self.0.state().list_containers(&filter);
                Ok(ListContainersResponse { containers })
            })
            .await
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.0
            .call("ContainerStatus", async || {
                self.0.status_is_given(&id).await;
                let status = Some(self.0.state().container_status(&id)?);
                Ok(ContainerStatusResponse { status, ..ContainerStatusResponse::default() })
            })
            .await
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let id = request.into_inner().container_id;
        self.0
            .call("UpdateContainerResources", async || {
                self.0.state().running(&id)?;
                Ok(UpdateContainerResourcesResponse {})
            })
            .await
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.0
            .call("ReopenContainerLog", async || match self.0.state().running(&id)? {
                Some(_) => Ok(ReopenContainerLogResponse {}),
                None => Err(Status::unknown("container is not running")),
            })
            .await
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let ExecSyncRequest { container_id: id, cmd, timeout } = request.into_inner();
        self.0
            .call("ExecSync", async || {
                self.0.state().exec(&id)?;
                if cmd == Life::probe() {
                    return Ok(ExecSyncResponse::default());
                }
                if cmd == Life::greed() {
                    self.0.end(&id, KILLED, Oom::Yes);
                    return Ok(ExecSyncResponse::default());
                }
                match Life::of(&cmd) {
                    Life::Exit { code, .. } => {
                        Ok(ExecSyncResponse { exit_code: code, ..ExecSyncResponse::default() })
                    }
                    Life::Missing => {
                        let text = "failed to exec in container: failed to start exec: OCI runtime \
                                    exec failed: exec failed: no such file or directory: unknown";
                        Err(Status::unknown(text))
                    }
                    Life::Forever | Life::Stubborn | Life::Greedy if timeout > 0 => {
                        tokio::time::sleep(Duration::from_secs(timeout.cast_unsigned())).await;
                        let text =
                            format!("failed to exec in container: timeout {timeout}s exceeded");
                        Err(Status::deadline_exceeded(text))
                    }
                    Life::Forever | Life::Stubborn | Life::Greedy => {
                        Ok(ExecSyncResponse::default())
                    }
                }
            })
            .await
    }

    async fn exec(&self, _request: Request<ExecRequest>) -> Answer<ExecResponse> {
        Err(Status::unimplemented("the twin has no streams"))
    }

    async fn attach(&self, _request: Request<AttachRequest>) -> Answer<AttachResponse> {
        Err(Status::unimplemented("the twin has no streams"))
    }

    async fn port_forward(
        &self,
        _request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        Err(Status::unimplemented("the twin has no streams"))
    }

    async fn runtime_config(
        &self,
        _request: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        Err(Status::unimplemented("unknown method RuntimeConfig"))
    }

    async fn get_container_events(
        &self,
        _request: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        *self.0.calls().entry("GetContainerEvents").or_default() += 1;
        if !self.0.state().has_cri_events() {
            return Err(Status::unimplemented("unknown method GetContainerEvents"));
        }
        let feed = Feed::new(&self.0);
        let shared = Arc::clone(&self.0);
        Ok(Response::new(super::feed::stream(feed, move |happening| shared.message(happening))))
    }
}

/// Refuses a container whose log has no folder, though its pod's logs have one: CRI-O makes none.
fn check_log_folder(logs: &Path, log: &str) -> Result<(), Status> {
    let folder = logs.join(log).parent().map(Path::to_owned);
    if logs.is_dir() && folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(Status::unknown("failed to open log file: no such file or directory"));
    }
    Ok(())
}

/// Lets a container live: one that ends by itself does so at its time.
fn live(shared: &Arc<Core>, id: &str, life: Life) {
    let Some((time, code)) = life.own_end() else { return };
    let (shared, id) = (Arc::clone(shared), id.to_owned());
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        shared.end(&id, code, Oom::No);
    });
}

impl Core {
    /// Kills a container, and returns when CRI knows of its end.
    async fn kill(self: &Arc<Self>, id: &str) -> Result<(), Status> {
        self.end(id, KILLED, Oom::No);
        if self.ended_within(id, END_WITHIN).await {
            return Ok(());
        }
        Err(Status::deadline_exceeded("the container does not end"))
    }

    /// Whether the container has ended, or is gone, within a time.
    pub(super) async fn ended_within(&self, id: &str, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut ends = self.ends.subscribe();
        loop {
            ends.mark_unchanged();
            if !matches!(self.state().running(id), Ok(Some(_))) {
                return true;
            }
            if timeout_at(deadline, ends.changed()).await.is_err() {
                return false;
            }
        }
    }

    /// Returns once the status of the container comes.
    async fn status_is_given(&self, id: &str) {
        let mut changes = self.ends.subscribe();
        while self.state().holds_status(id) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// What CRI's own stream has of a happening.
    fn message(&self, happening: &Happening) -> Option<ContainerEventResponse> {
        let (id, kind) = match happening {
            Happening::Created(id) => (id, ContainerEventType::ContainerCreatedEvent),
            Happening::Started(id) => (id, ContainerEventType::ContainerStartedEvent),
            Happening::Stopped(id) => (id, ContainerEventType::ContainerStoppedEvent),
            Happening::Deleted(id) => (id, ContainerEventType::ContainerDeletedEvent),
            Happening::Oom(_) | Happening::Exit { .. } => return None,
        };
        Some(ContainerEventResponse {
            container_id: id.clone(),
            container_event_type: kind.into(),
            containers_statuses: self.state().container_status(id).into_iter().collect(),
            ..ContainerEventResponse::default()
        })
    }
}
