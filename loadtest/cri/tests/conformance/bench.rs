//! The runtime under test, and the pod of one case.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_cri::proto::containerd::events_client::EventsClient;
use headwater_cri::proto::image_service_client::ImageServiceClient;
use headwater_cri::proto::runtime_service_client::RuntimeServiceClient;
use headwater_cri::proto::*;
use headwater_cri_lab::{BUSYBOX_IMAGE, ContainerdVersion, Life};
use headwater_edged::unix_channel;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The time limit of whatever a case waits for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The interval between two looks.
const POLL: Duration = Duration::from_millis(10);

/// The images that the registries have, or would have.
pub(crate) struct Registries {
    pub(crate) good: String,
    /// Needs a password.
    pub(crate) closed: String,
    /// Nothing listens there.
    pub(crate) away: String,
    /// The registry has no such image.
    pub(crate) missing: String,
}

impl Default for Registries {
    fn default() -> Self {
        Self {
            good: "127.0.0.1:5000/team/web:1".to_owned(),
            closed: "127.0.0.1:5001/team/web:1".to_owned(),
            away: "127.0.0.1:5999/team/web:1".to_owned(),
            missing: "127.0.0.1:5000/team/web:9".to_owned(),
        }
    }
}

/// A runtime.
pub(crate) struct Bench {
    channel: Channel,
    data: PathBuf,
    cgroup: String,
    version: ContainerdVersion,
}

/// A runtime and the pod of one case.
pub(crate) struct Case {
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) events: EventsClient<Channel>,
    pub(crate) pod: PodSandboxConfig,
    pub(crate) registries: Registries,
    version: ContainerdVersion,
}

impl Bench {
    pub(crate) fn new(
        socket: &Path,
        data: &Path,
        cgroup: String,
        version: ContainerdVersion,
    ) -> Self {
        Self { channel: unix_channel(socket), data: data.to_owned(), cgroup, version }
    }

    pub(crate) fn case(&self, name: &str) -> Case {
        let network = NamespaceOption { network: NamespaceMode::Node.into(), ..Default::default() };
        let security =
            LinuxSandboxSecurityContext { namespace_options: Some(network), ..Default::default() };
        let pod = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: "pod".to_owned(),
                namespace: "shop".to_owned(),
                uid: name.to_owned(),
                attempt: 0,
            }),
            labels: [("case".to_owned(), name.to_owned())].into(),
            annotations: [("note".to_owned(), "n".to_owned())].into(),
            log_directory: self.data.join("logs").join(name).display().to_string(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup),
                security_context: Some(security),
                ..Default::default()
            }),
            ..Default::default()
        };
        Case {
            runtime: RuntimeServiceClient::new(self.channel.clone()),
            images: ImageServiceClient::new(self.channel.clone()),
            events: EventsClient::new(self.channel.clone()),
            pod,
            registries: Registries::default(),
            version: self.version,
        }
    }
}

impl Case {
    /// Whether the runtime is containerd 2, where it differs.
    pub(crate) fn is_two(&self) -> bool {
        self.version == ContainerdVersion::Two
    }

    /// The code by which the runtime refuses a name that is taken.
    pub(crate) fn reserved_code(&self) -> Code {
        if self.is_two() { Code::FailedPrecondition } else { Code::Unknown }
    }

    /// Checks the answer to the stop of what there is not: containerd 2 takes it for done.
    pub(crate) fn assert_stop_of_unknown(&self, answer: Result<(), Status>) {
        if self.is_two() {
            answer.expect("it is done");
        } else {
            assert_fails(answer, Code::NotFound, "not found");
        }
    }

    /// A client for one call.
    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        self.runtime.clone()
    }

    /// A client for one call.
    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        self.images.clone()
    }

    pub(crate) async fn run_pod(&self) -> Result<String, Status> {
        self.run(self.pod.clone(), "").await
    }

    pub(crate) async fn run(&self, pod: PodSandboxConfig, handler: &str) -> Result<String, Status> {
        let request =
            RunPodSandboxRequest { config: Some(pod), runtime_handler: handler.to_owned() };
        let answer = self.runtime().run_pod_sandbox(request).await?;
        Ok(answer.into_inner().pod_sandbox_id)
    }

    /// What a container is asked to be.
    pub(crate) fn container(&self, name: &str, life: Life) -> ContainerConfig {
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(image(BUSYBOX_IMAGE)),
            command: life.command(),
            labels: [("container".to_owned(), name.to_owned())].into(),
            log_path: format!("{name}.log"),
            linux: Some(LinuxContainerConfig::default()),
            ..Default::default()
        }
    }

    pub(crate) async fn create(
        &self,
        sandbox: &str,
        config: ContainerConfig,
    ) -> Result<String, Status> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(self.pod.clone()),
        };
        Ok(self.runtime().create_container(request).await?.into_inner().container_id)
    }

    pub(crate) async fn start(&self, container: &str) -> Result<(), Status> {
        let request = StartContainerRequest { container_id: container.to_owned() };
        self.runtime().start_container(request).await.map(drop)
    }

    /// A running container in a sandbox of its own; both ids.
    pub(crate) async fn running(&self, life: Life) -> (String, String) {
        let sandbox = self.run_pod().await.expect("a sandbox");
        let config = self.container("main", life);
        let container = self.create(&sandbox, config).await.expect("a container");
        self.start(&container).await.expect("it starts");
        if matches!(life, Life::Forever | Life::Stubborn) {
            let ready = || async {
                let code = self.exec(&container, Life::probe(), 30).await.expect("it runs");
                (code == 0).then_some(())
            };
            until("the signals of a container", ready).await;
        }
        (sandbox, container)
    }

    /// The exit code of a command in a container.
    pub(crate) async fn exec(
        &self,
        container: &str,
        command: Vec<String>,
        seconds: i64,
    ) -> Result<i32, Status> {
        let container_id = container.to_owned();
        let request = ExecSyncRequest { container_id, cmd: command, timeout: seconds };
        Ok(self.runtime().exec_sync(request).await?.into_inner().exit_code)
    }

    pub(crate) async fn stop(&self, container: &str, seconds: i64) -> Result<(), Status> {
        let request = StopContainerRequest { container_id: container.to_owned(), timeout: seconds };
        self.runtime().stop_container(request).await.map(drop)
    }

    pub(crate) async fn remove(&self, container: &str) -> Result<(), Status> {
        let request = RemoveContainerRequest { container_id: container.to_owned() };
        self.runtime().remove_container(request).await.map(drop)
    }

    /// Stops a sandbox. containerd 2 may answer before its status and its list show the end: they
    /// have different sources.
    pub(crate) async fn stop_pod(&self, sandbox: &str) -> Result<(), Status> {
        let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.runtime().stop_pod_sandbox(request).await?;
        if self.is_two() {
            let shows_end = || async {
                let is_ready =
                    |status: PodSandboxStatus| status.state() == PodSandboxState::SandboxReady;
                let status_shows_it = !self.pod_status(sandbox).await.is_ok_and(is_ready);
                let ready = self.sandboxes(PodSandboxFilter {
                    id: sandbox.to_owned(),
                    state: Some(PodSandboxStateValue {
                        state: PodSandboxState::SandboxReady.into(),
                    }),
                    ..Default::default()
                });
                (status_shows_it && ready.await.is_empty()).then_some(())
            };
            until("the end of a sandbox", shows_end).await;
        }
        Ok(())
    }

    pub(crate) async fn sandboxes(&self, filter: PodSandboxFilter) -> Vec<PodSandbox> {
        let request = ListPodSandboxRequest { filter: Some(filter) };
        self.runtime().list_pod_sandbox(request).await.expect("a list").into_inner().items
    }

    pub(crate) async fn remove_pod(&self, sandbox: &str) -> Result<(), Status> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.runtime().remove_pod_sandbox(request).await.map(drop)
    }

    /// Stops and removes the sandbox, with what is in it.
    pub(crate) async fn clean(&self, sandbox: &str) {
        let end = Instant::now() + DEADLINE;
        // containerd 1.6 fails if the shim of a container ends by itself meanwhile.
        while let Err(error) = self.stop_pod(sandbox).await {
            assert!(Instant::now() < end, "it stops: {error}");
            tokio::time::sleep(POLL).await;
        }
        self.remove_pod(sandbox).await.expect("it is removed");
    }

    pub(crate) async fn pod_status(&self, sandbox: &str) -> Result<PodSandboxStatus, Status> {
        let request =
            PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
        let answer = self.runtime().pod_sandbox_status(request).await?;
        Ok(answer.into_inner().status.expect("a status"))
    }

    pub(crate) async fn status(&self, container: &str) -> Result<ContainerStatus, Status> {
        let request = ContainerStatusRequest { container_id: container.to_owned(), verbose: false };
        let answer = self.runtime().container_status(request).await?;
        Ok(answer.into_inner().status.expect("a status"))
    }

    /// The status of a container that ends by itself.
    pub(crate) async fn ended(&self, container: &str) -> ContainerStatus {
        until("the end of the container", || async {
            let status = self.status(container).await.expect("a status");
            (status.state() == ContainerState::ContainerExited).then_some(status)
        })
        .await
    }

    pub(crate) async fn list(&self, filter: ContainerFilter) -> Vec<Container> {
        let request = ListContainersRequest { filter: Some(filter) };
        let answer = self.runtime().list_containers(request).await.expect("a list");
        answer.into_inner().containers
    }

    /// The containers of a sandbox.
    pub(crate) async fn containers_of(&self, sandbox: &str) -> Vec<Container> {
        let pod_sandbox_id = sandbox.to_owned();
        self.list(ContainerFilter { pod_sandbox_id, ..Default::default() }).await
    }

    pub(crate) async fn image_status(&self, name: &str) -> Option<Image> {
        let request = ImageStatusRequest { image: Some(image(name)), verbose: false };
        self.images().image_status(request).await.expect("a status").into_inner().image
    }
}

pub(crate) fn image(name: &str) -> ImageSpec {
    ImageSpec { image: name.to_owned(), ..Default::default() }
}

/// Waits until `found` finds something.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut found: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} for {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Checks that a call failed with this code and these words.
pub(crate) fn assert_fails<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, words: &str) {
    let status = answer.expect_err("a refusal");
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(words), "{status:?} without {words:?}");
}
