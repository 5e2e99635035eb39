//! The request that makes a container, with its files in place.

use std::path::Path;

use headwater_edged::container::{LaunchSpec, WaitReason};
use headwater_edged::pod::{PodRecord, every_container};
use headwater_edged::runtime::RuntimeError;
use k8s_openapi::api::core::v1::Pod;

use super::{CriRuntime, error_of, failed};
use crate::proto::{CreateContainerRequest, PodSandboxConfig};
use crate::spec::{
    ContainerRequest, HostMount, ImageFacts, container_config, container_log_path, hosts_file,
    sandbox_config,
};

impl CriRuntime {
    /// What a container is asked to be, with its files in place.
    pub(super) async fn container_request(
        &self,
        pod: &PodRecord,
        spec: &Pod,
        launch: &LaunchSpec,
        attempt: u32,
        sandbox: String,
    ) -> Result<CreateContainerRequest, RuntimeError> {
        let (inner, name) = (&self.inner, launch.container.as_str());
        let refused = |reason| RuntimeError::Refused { reason };
        let container = every_container(spec).find(|container| container.name == name);
        let container = container
            .ok_or_else(|| error_of("the pod has no such container any more".to_owned()))?;
        let image = self.image(launch.image.as_deref().unwrap_or_default()).await?;
        let target = self.target(pod, spec, name).map_err(refused)?;
        let sources = inner.files.mounts(&pod.uid, launch).await?;
        let mounts: Vec<HostMount> = sources
            .iter()
            .map(|it| HostMount { path: it.path.clone(), host_path: it.source.clone() })
            .collect();
        let block_devices = inner.files.block_devices(&pod.uid, launch).await?;
        let (sandbox_attempt, addresses) = inner.with(|knowledge| {
            let sandbox = knowledge.sandbox(&sandbox);
            sandbox.map(|it| (it.attempt, it.addresses.clone())).unwrap_or_default()
        });
        let of_host = tokio::fs::read_to_string("/etc/hosts").await.unwrap_or_default();
        let hosts = hosts_file(spec, pod, &addresses, &of_host, &inner.node()).map_err(refused)?;
        let hosts = inner.files.write_hosts(&pod.uid, hosts).await?;
        let message = inner.files.make_message_file(&pod.uid, name, attempt).await?;
        make_log_folder(&inner.files.log(pod, name, attempt)).await?;
        let request = ContainerRequest {
            pod: spec,
            record: pod,
            container: &container,
            launch,
            attempt,
            image: &image,
            mounts: &mounts,
            block_devices: &block_devices,
            hosts_file: Some(&hosts),
            termination_file: Some(&message),
            target: target.as_deref(),
        };
        let mut config = container_config(&request, &inner.node()).map_err(refused)?;
        for mount in &mut config.mounts {
            // As under a kubelet, no container writes to the files that come from objects.
            let host = Path::new(&mount.host_path);
            mount.readonly |= sources.iter().any(|it| it.is_written_here && it.source == host);
        }
        debug_assert_eq!(config.log_path, container_log_path(name, attempt));
        let sandbox_config: PodSandboxConfig =
            sandbox_config(spec, pod, sandbox_attempt, &inner.node()).map_err(refused)?;
        Ok(CreateContainerRequest {
            pod_sandbox_id: sandbox,
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        })
    }

    /// The id of the container whose processes an ephemeral container sees.
    fn target(
        &self,
        pod: &PodRecord,
        spec: &Pod,
        container: &str,
    ) -> Result<Option<String>, WaitReason> {
        let mut ephemeral =
            spec.spec.iter().flat_map(|it| it.ephemeral_containers.iter().flatten());
        let own = ephemeral.find(|it| it.name == container);
        let target = own.and_then(|own| own.target_container_name.as_deref());
        let Some(target) = target.filter(|target| !target.is_empty()) else { return Ok(None) };
        let id = self.inner.with(|knowledge| {
            let latest = knowledge.latest_started(&pod.uid, target);
            latest.map(|(id, _)| id.to_owned())
        });
        id.map(Some).ok_or_else(|| WaitReason {
            reason: "CreateContainerConfigError",
            message: format!("unable to find target container {target}"),
        })
    }

    async fn image(&self, name: &str) -> Result<ImageFacts, RuntimeError> {
        let image = self.inner.image_cache.status(self.client(), name).await;
        let image = image.map_err(|error| failed(&error))?;
        let image =
            image.ok_or_else(|| error_of(format!("image {name:?} is not on the node any more")))?;
        Ok(ImageFacts {
            id: image.id,
            user_id: image.uid.map(|user| user.value),
            user_name: image.username,
        })
    }
}

/// Makes the folder of a container's logs, as a kubelet does: CRI-O expects it.
async fn make_log_folder(log: &Path) -> Result<(), RuntimeError> {
    let Some(folder) = log.parent() else { return Ok(()) };
    let made = tokio::fs::create_dir_all(folder).await;
    made.map_err(|error| error_of(format!("the folder {} of its logs: {error}", folder.display())))
}
