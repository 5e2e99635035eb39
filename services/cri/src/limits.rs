//! The limits of pods and containers that change beside their sandbox and their start.

use std::io;

use headwater_edged::container::cpu_set::CpuSet;
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::RuntimeError;

use crate::proto::{LinuxContainerResources, UpdateContainerResourcesRequest};
use crate::runtime::{CriRuntime, failed};

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

    /// Moves a running container to these processors. As under a kubelet, what is not stated stays.
    pub(crate) async fn set_cpus(
        &self,
        pod: &PodUid,
        container: &str,
        cpus: &CpuSet,
    ) -> Result<(), RuntimeError> {
        let container_id = self.running(pod, container)?;
        let linux = LinuxContainerResources { cpuset_cpus: cpus.to_string(), ..Default::default() };
        let request = UpdateContainerResourcesRequest {
            container_id,
            linux: Some(linux),
            ..UpdateContainerResourcesRequest::default()
        };
        let updated = self.client().update_container_resources(request).await;
        updated.map(drop).map_err(|error| failed(&error))
    }
}
