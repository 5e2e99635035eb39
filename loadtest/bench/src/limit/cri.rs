//! A pod by raw calls of the Container Runtime Interface: the runtime's own time, and nothing else.

use headwater_cri::client::CriClient;
use headwater_cri::proto::security_profile::ProfileType;
use headwater_cri::proto::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec, LinuxContainerConfig,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata, RemovePodSandboxRequest, RunPodSandboxRequest,
    SecurityProfile, StartContainerRequest, StopPodSandboxRequest,
};
use headwater_cri_lab::BUSYBOX_IMAGE;
use headwater_loadtest::failure::{Attempt, Failure};

/// What its one container runs.
pub(crate) const COMMAND: [&str; 2] = ["sleep", "1234567"];

/// The system calls of a sandbox's first process.
#[derive(Clone, Copy)]
pub(crate) enum SystemCalls {
    /// All of them.
    All,
    /// Those of the runtime's own filter, which a kubelet asks for, and so does the pod worker. The filter of each sandbox is
    /// compiled by the runtime.
    Filtered,
}

impl SystemCalls {
    fn profile(self) -> Option<SecurityProfile> {
        let filter = SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            ..SecurityProfile::default()
        };
        matches!(self, Self::Filtered).then_some(filter)
    }
}

/// A sandbox in the network of the host, with one container that runs.
pub(crate) struct RawPod {
    sandbox: String,
}

impl RawPod {
    /// Starts it. When this returns, the container runs.
    ///
    /// # Errors
    /// When the runtime refuses a call.
    pub(crate) async fn start(
        client: &CriClient,
        name: &str,
        cgroup_parent: &str,
        calls: SystemCalls,
    ) -> Result<Self, Failure> {
        let network = NamespaceOption { network: NamespaceMode::Node.into(), ..Default::default() };
        let security = LinuxSandboxSecurityContext {
            namespace_options: Some(network),
            seccomp: calls.profile(),
            ..Default::default()
        };
        let pod = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                namespace: "raw".to_owned(),
                uid: name.to_owned(),
                attempt: 0,
            }),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("{cgroup_parent}/{name}"),
                security_context: Some(security),
                ..Default::default()
            }),
            ..Default::default()
        };
        let run = RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
        let sandbox = client.run_pod_sandbox(run).await.tried("a sandbox")?.pod_sandbox_id;
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(ImageSpec { image: BUSYBOX_IMAGE.to_owned(), ..Default::default() }),
            command: COMMAND.map(str::to_owned).to_vec(),
            linux: Some(LinuxContainerConfig::default()),
            ..Default::default()
        };
        let create = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container),
            sandbox_config: Some(pod),
        };
        let container_id = client.create_container(create).await.tried("a container")?.container_id;
        client.start_container(StartContainerRequest { container_id }).await.tried("its start")?;
        Ok(Self { sandbox })
    }

    /// Ends and removes it.
    ///
    /// # Errors
    /// When the runtime refuses a call.
    pub(crate) async fn remove(self, client: &CriClient) -> Result<(), Failure> {
        let stop = StopPodSandboxRequest { pod_sandbox_id: self.sandbox.clone() };
        client.stop_pod_sandbox(stop).await.tried("the end of a sandbox")?;
        let remove = RemovePodSandboxRequest { pod_sandbox_id: self.sandbox };
        client.remove_pod_sandbox(remove).await.tried("the removal of a sandbox")?;
        Ok(())
    }
}
