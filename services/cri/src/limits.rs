//! The limits of pods and containers that change beside their sandbox and their start.

use std::io;

use headwater_edged::container::cpu_set::CpuSet;
use headwater_edged::pod::{PodRecord, PodUid, every_container};
use headwater_edged::runtime::RuntimeError;
use k8s_openapi::api::core::v1::Pod;

use crate::proto::{LinuxContainerResources, UpdateContainerResourcesRequest};
use crate::runtime::{CriRuntime, failed};
use crate::spec::{pod_resources, resources as resources_of, sandbox_config};

impl CriRuntime {
    /// Changes the cgroup of a pod.
    pub(crate) async fn on_cgroups(
        &self,
        change: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), RuntimeError> {
        let changed = tokio::task::spawn_blocking(change).await.map_err(io::Error::other);
        changed.flatten().map_err(|error| RuntimeError::Sandbox {
            cause: format!("its cgroup cannot be set up: {error}"),
        })
    }

    /// Gives a pod and these of its containers the processor time and the memory of its spec. The pod's own limits rise
    /// before those of its containers, and fall after them: a kernel refuses a part that is larger than the whole.
    pub(crate) async fn resize_pod(
        &self,
        pod: &PodRecord,
        spec: &Pod,
        containers: &[String],
    ) -> Result<(), RuntimeError> {
        let (inner, node) = (self.inner(), self.inner().node());
        let refused = |reason| RuntimeError::Refused { reason };
        let attempt = inner.with(|knowledge| {
            knowledge.sandboxes_of(&pod.uid).pop().map_or(0, |(_, sandbox)| sandbox.attempt)
        });
        let config = sandbox_config(spec, pod, attempt, &node).map_err(refused)?;
        let parent = config.linux.map(|linux| linux.cgroup_parent).unwrap_or_default();
        let resources = pod_resources(spec, node.has_static_cpus);
        self.on_cgroups({
            let (cgroups, parent) = (inner.cgroups.clone(), parent.clone());
            move || cgroups.raise(&parent, &resources)
        })
        .await?;
        for container in every_container(spec).filter(|it| containers.contains(&it.name)) {
            let linux = stated(resources_of(spec, &container, &node));
            self.check_memory(pod, &container.name, linux.memory_limit_in_bytes).await?;
            self.update(&pod.uid, &container.name, linux).await?;
        }
        let cgroups = inner.cgroups.clone();
        self.on_cgroups(move || cgroups.resize(&parent, &resources)).await
    }

    /// Refuses a limit below what the container uses, with the words of a kubelet: the kernel would end it for memory, or take
    /// no such limit.
    async fn check_memory(
        &self,
        pod: &PodRecord,
        container: &str,
        limit: i64,
    ) -> Result<(), RuntimeError> {
        let Ok(limit) = u64::try_from(limit) else { return Ok(()) };
        let id = self.running(&pod.uid, container)?;
        let (files, uid) = (self.inner().cgroups.files().clone(), pod.uid.clone());
        let used = tokio::task::spawn_blocking(move || {
            let place = files.container(&files.pod(&uid)?, &id)?;
            Some(files.usage(&place).memory_used_bytes)
        });
        match used.await.ok().flatten() {
            Some(used) if used > limit => Err(RuntimeError::Sandbox {
                cause: format!(
                    "attempting to set container {container:?} memory limit ({limit}) below current \
                     usage ({used})"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Moves a running container to these processors. As under a kubelet, what is not stated stays.
    pub(crate) async fn set_cpus(
        &self,
        pod: &PodUid,
        container: &str,
        cpus: &CpuSet,
    ) -> Result<(), RuntimeError> {
        let linux = LinuxContainerResources { cpuset_cpus: cpus.to_string(), ..Default::default() };
        self.update(pod, container, linux).await
    }

    async fn update(
        &self,
        pod: &PodUid,
        container: &str,
        linux: LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        let container_id = self.running(pod, container)?;
        let request = UpdateContainerResourcesRequest {
            container_id,
            linux: Some(linux),
            ..UpdateContainerResourcesRequest::default()
        };
        let updated = self.client().update_container_resources(request).await;
        updated.map(drop).map_err(|error| failed(&error))
    }
}

/// No limit, where zero would mean that the limit stays.
const UNLIMITED: i64 = -1;

/// The same resources, with every limit stated: a limit that goes is none.
fn stated(resources: LinuxContainerResources) -> LinuxContainerResources {
    let limit = |limit: i64| if limit == 0 { UNLIMITED } else { limit };
    LinuxContainerResources {
        cpu_quota: limit(resources.cpu_quota),
        memory_limit_in_bytes: limit(resources.memory_limit_in_bytes),
        ..resources
    }
}
