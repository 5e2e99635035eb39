//! The resources of pods: of the kernel's files for processes, of the disk for volumes, logs and layers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use headwater_edged::mountinfo::{OWN_MOUNTS, mounts};
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::pod_files::PodFiles;
use headwater_edged::runtime::{
    ContainerDisk, ContainerUsage, DiskUsage, FileSystemUsage, MemoryUsage, PodDisk, PodUsage,
    RuntimeError, Usage, VolumeUsage,
};

use crate::cgroup_files::CgroupFiles;
use crate::client::CallError;
use crate::knowledge::Knowledge;
use crate::proto::ImageFsInfoRequest;
use crate::runtime::CriRuntime;

/// The latest run of a container.
#[derive(Debug)]
struct LatestRun {
    id: String,
    container: String,
    /// Where the logs of the container lie.
    logs: PathBuf,
}

/// The containers of the pods that have a sandbox, a container or files. A pod between two runs keeps its volumes.
type PodContainers = BTreeMap<PodUid, Vec<LatestRun>>;

#[async_trait]
impl Usage for CriRuntime {
    async fn pods(&self) -> Result<Vec<PodUsage>, RuntimeError> {
        let known = self.inner().with(|knowledge| {
            let pods = knowledge.pods().into_iter();
            pods.map(|pod| (pod.clone(), latest_runs(knowledge, &pod))).collect()
        });
        let (files, cgroups) = (self.inner().files.clone(), self.inner().cgroups.files().clone());
        let measuring = move || measure(known, &files, &cgroups);
        let measured = tokio::task::spawn_blocking(measuring).await;
        measured.map_err(|error| RuntimeError::Sandbox { cause: error.to_string() })
    }

    async fn disk(
        &self,
        pod: &PodUid,
        volumes: &[String],
    ) -> Result<Option<PodDisk>, RuntimeError> {
        let (files, cgroups) = (self.inner().files.clone(), self.inner().cgroups.files().clone());
        let (runs, has_sandbox) = self.inner().with(|knowledge| {
            (latest_runs(knowledge, pod), !knowledge.sandboxes_of(pod).is_empty())
        });
        if runs.is_empty() && !has_sandbox && !files.has(pod) {
            return Ok(None);
        }
        let (pod, volumes) = (pod.clone(), volumes.to_vec());
        let measuring = move || {
            let layers = layers(&fs::read(OWN_MOUNTS).unwrap_or_default());
            let place = cgroups.pod(&pod);
            let containers = runs.into_iter().map(|it| {
                let own = place.as_ref().and_then(|place| cgroups.container(place, &it.id));
                let layer = layer_of(&it, own.as_deref(), &layers, &cgroups);
                ContainerDisk {
                    container: it.container,
                    layer: layer.map(|layer| DiskUsage::of(&layer)),
                    logs: DiskUsage::of(&it.logs),
                }
            });
            let volumes = volumes.into_iter().map(|name| {
                let usage = files.volume_usage(&pod, &name);
                (name, usage)
            });
            PodDisk {
                files: files.disk_usage(&pod),
                volumes: volumes.collect(),
                containers: containers.collect(),
            }
        };
        let measured = tokio::task::spawn_blocking(measuring).await;
        measured.map(Some).map_err(|error| RuntimeError::Sandbox { cause: error.to_string() })
    }

    async fn volumes(
        &self,
        pod: &PodUid,
        volumes: &[String],
        of_drivers: &BTreeSet<PathBuf>,
    ) -> BTreeMap<String, VolumeUsage> {
        let files = self.inner().files.clone();
        let (pod, volumes, of_drivers) = (pod.clone(), volumes.to_vec(), of_drivers.clone());
        let measuring = move || {
            let measured = volumes.into_iter().filter_map(|name| {
                let usage = files.volume_statistics(&pod, &name, &of_drivers)?;
                Some((name, usage))
            });
            measured.collect()
        };
        // It ends by itself only when the runtime does.
        tokio::task::spawn_blocking(measuring).await.unwrap_or_default()
    }

    async fn file_systems(&self) -> Result<Vec<FileSystemUsage>, RuntimeError> {
        let info = self.client().image_fs_info(ImageFsInfoRequest {}).await;
        let info =
            info.map_err(|error: CallError| RuntimeError::Sandbox { cause: error.to_string() })?;
        let mut places = vec![self.inner().files.dir().to_owned()];
        let systems = info.image_filesystems.into_iter().chain(info.container_filesystems);
        places.extend(systems.filter_map(|system| Some(system.fs_id?.mountpoint.into())));
        let mut seen = BTreeSet::new();
        places.retain(|place: &PathBuf| seen.insert(place.clone()));
        let measured = tokio::task::spawn_blocking(move || {
            places.iter().filter_map(|place| FileSystemUsage::of(place).ok()).collect()
        });
        measured.await.map_err(|error| RuntimeError::Sandbox { cause: error.to_string() })
    }

    fn memory_of_all(&self) -> Option<MemoryUsage> {
        self.inner().cgroups.files().memory_of_all()
    }
}

fn latest_runs(knowledge: &Knowledge, pod: &PodUid) -> Vec<LatestRun> {
    let names = knowledge.containers(pod).into_iter();
    let latest = names.filter_map(|name| {
        let (id, run) = knowledge.latest_started(pod, name)?;
        let logs = run.log.parent().map(Path::to_owned).unwrap_or_default();
        Some(LatestRun { id: id.to_owned(), container: name.to_owned(), logs })
    });
    latest.collect()
}

fn measure(mut pods: PodContainers, files: &PodFiles, cgroups: &CgroupFiles) -> Vec<PodUsage> {
    for pod in files.pods().unwrap_or_default() {
        pods.entry(pod).or_default();
    }
    let layers = layers(&fs::read(OWN_MOUNTS).unwrap_or_default());
    let measured = pods.into_iter().map(|(pod, runs)| {
        let place = cgroups.pod(&pod);
        let containers = runs.into_iter().map(|it| {
            let own = place.as_ref().and_then(|place| cgroups.container(place, &it.id));
            let layer = layer_of(&it, own.as_deref(), &layers, cgroups);
            ContainerUsage {
                container: it.container,
                processes: own.map(|own| cgroups.usage(&own)).unwrap_or_default(),
                disk: layer.map(|layer| DiskUsage::of(&layer)),
                logs: DiskUsage::of(&it.logs),
            }
        });
        PodUsage {
            processes: place.as_ref().map(|place| cgroups.usage(place)).unwrap_or_default(),
            volumes: files.disk_usage(&pod),
            containers: containers.collect(),
            pod,
        }
    });
    measured.collect()
}

/// The directory in which a container keeps what it writes beside its volumes.
fn layer_of(
    run: &LatestRun,
    cgroup: Option<&Path>,
    layers: &[(PathBuf, PathBuf)],
    cgroups: &CgroupFiles,
) -> Option<PathBuf> {
    let is_own = |point: &Path| point.to_string_lossy().contains(&run.id);
    let shown = layers.iter().find(|(mount_point, _)| is_own(mount_point));
    let layer = shown.map(|(_, layer)| layer.clone());
    // A runtime in a mount namespace of its own: the container's own processes see where it lies.
    layer.or_else(|| own_layer(cgroups.process(cgroup?)?))
}

/// The directory in which the overlay at the root of a process keeps what is written to it.
fn own_layer(process: u32) -> Option<PathBuf> {
    let list = fs::read(format!("/proc/{process}/mountinfo")).ok()?;
    let mut roots = layers(&list).into_iter().filter(|(point, _)| point == Path::new("/"));
    roots.next().map(|(_, layer)| layer)
}

/// The mount points of overlays, and the directory in which each keeps what is written to it. A container's file system
/// is mounted at a place with its id (`/run/containerd/io.containerd.runtime.v2.task/k8s.io/<id>/rootfs`).
fn layers(list: &[u8]) -> Vec<(PathBuf, PathBuf)> {
    let overlays = mounts(list).filter(|mount| mount.file_system == b"overlay");
    let written = overlays.filter_map(|mount| {
        let upper = mount.path_option("upperdir")?;
        Some((mount.point, upper))
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_writes_lies_in_the_upper_directory_of_its_overlay() {
        let text = b"\
            22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            90 22 0:50 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs rw,relatime \
            shared:7 - overlay overlay rw,lowerdir=/l/1:/l/2,upperdir=/s/9/fs,workdir=/s/9/work\n\
            91 22 0:51 / /ro ro - overlay overlay ro,lowerdir=/l/1:/l/2\n\
            nothing\n";
        let place = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs";
        let place = PathBuf::from(place);
        assert_eq!(layers(text), [(place, PathBuf::from("/s/9/fs"))]);
    }
}
