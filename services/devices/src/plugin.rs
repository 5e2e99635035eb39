//! The calls to a plugin. Each has a deadline, and what the plugin says is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use headwater_edged::container::devices::{ContainerDevices, DeviceMount, DeviceNode};
use headwater_edged::devices::{DevicePlugin, PluginError, PluginOptions};
use headwater_edged::unix_channel;
use prost::Message as _;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::proto::device_plugin_client::DevicePluginClient;
use crate::proto::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Device, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreferredAllocationRequest,
};

/// The largest list, as gRPC's default in Go.
const LIST_BYTES_MAX: usize = 4 << 20;

/// The largest other response: what a container is given is a page of text at most, and the node keeps it.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// Devices of one resource. A kubelet has no bound; a node with more is none of this world.
const DEVICES_MAX: usize = 10_000;

/// The longest id of a device.
const ID_BYTES_MAX: usize = 256;

/// As a kubelet's limit of PreStartContainer, which it has for no other call: a plugin may reset a device.
const CALL: Duration = Duration::from_secs(30);

/// The longest message of a plugin's error.
const ERROR_CHARS_MAX: usize = 1024;

/// The word of a device that works.
const HEALTHY: &str = "Healthy";

/// The letters of permissions.
const PERMISSIONS: [char; 3] = ['r', 'w', 'm'];

/// A plugin at its socket.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    client: DevicePluginClient<Channel>,
    options: PluginOptions,
}

impl Plugin {
    /// Connects with the first call, and asks the plugin what it can do.
    pub(crate) async fn connect(socket: &Path) -> Result<Self, PluginError> {
        let client = client(socket);
        let mut asked = client.clone();
        let options = call("GetDevicePluginOptions", asked.get_device_plugin_options(Empty {}));
        let options = options.await?;
        let options = PluginOptions {
            pre_start: options.pre_start_required,
            prefers: options.get_preferred_allocation_available,
        };
        Ok(Self { client, options })
    }

    /// The lists of the plugin's devices. It returns with the first one only, for which there is no deadline.
    pub(crate) async fn lists(&self) -> Result<Streaming<ListAndWatchResponse>, PluginError> {
        let mut client = self.client.clone().max_decoding_message_size(LIST_BYTES_MAX);
        let stream = client.list_and_watch(Empty {}).await;
        Ok(stream.map_err(|status| of_status(&status))?.into_inner())
    }
}

#[async_trait]
impl DevicePlugin for Plugin {
    fn options(&self) -> PluginOptions {
        self.options
    }

    async fn prefer(
        &self,
        available: &BTreeSet<String>,
        included: &BTreeSet<String>,
        count: usize,
    ) -> Result<Vec<String>, PluginError> {
        let request = ContainerPreferredAllocationRequest {
            available_device_i_ds: available.iter().cloned().collect(),
            must_include_device_i_ds: included.iter().cloned().collect(),
            allocation_size: i32::try_from(count).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest { container_requests: vec![request] };
        let mut client = self.client.clone().max_decoding_message_size(LIST_BYTES_MAX);
        let response = call("GetPreferredAllocation", client.get_preferred_allocation(request));
        let response = response.await?.container_responses.into_iter().next();
        Ok(response.map(|it| it.device_i_ds).unwrap_or_default())
    }

    async fn allocate(&self, ids: &BTreeSet<String>) -> Result<ContainerDevices, PluginError> {
        let request = ContainerAllocateRequest { devices_ids: ids.iter().cloned().collect() };
        let request = AllocateRequest { container_requests: vec![request] };
        let mut client = self.client.clone();
        let response = call("Allocate", client.allocate(request)).await?;
        let count = response.container_responses.len();
        match response.container_responses.into_iter().next() {
            Some(response) if count == 1 => given(response),
            _ => Err(PluginError(format!("Allocate has {count} responses to one request"))),
        }
    }

    async fn pre_start(&self, ids: &BTreeSet<String>) -> Result<(), PluginError> {
        let request = PreStartContainerRequest { devices_ids: ids.iter().cloned().collect() };
        let mut client = self.client.clone();
        call("PreStartContainer", client.pre_start_container(request)).await.map(drop)
    }
}

/// The devices of a list: whether each works.
///
/// # Errors
/// There are too many, or an id is none.
pub(crate) fn devices(list: Vec<Device>) -> Result<BTreeMap<String, bool>, PluginError> {
    if list.len() > DEVICES_MAX {
        let count = list.len();
        return Err(PluginError(format!(
            "the list has {count} devices, and {DEVICES_MAX} at most"
        )));
    }
    let of = |device: Device| {
        if device.id.is_empty() || device.id.len() > ID_BYTES_MAX || device.id.contains('\0') {
            let id: String = device.id.chars().take(ID_BYTES_MAX).collect();
            return Err(PluginError(format!("the id {id:?} is none")));
        }
        Ok((device.id, device.health == HEALTHY))
    };
    list.into_iter().map(of).collect()
}

/// What a container is given.
///
/// # Errors
/// A variable or a path is none.
fn given(response: ContainerAllocateResponse) -> Result<ContainerDevices, PluginError> {
    let bytes = response.encoded_len();
    if bytes > RESPONSE_BYTES_MAX {
        return Err(PluginError(format!("Allocate gives {bytes} bytes: too many")));
    }
    let bad = |what: &str, text: &str| {
        Err(PluginError(format!("Allocate gives the {what} {text:?}, which is none")))
    };
    for (name, value) in &response.envs {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return bad("variable", name);
        }
    }
    let mounts = response.mounts.iter().flat_map(|it| [&it.container_path, &it.host_path]);
    let nodes = response.devices.iter().flat_map(|it| [&it.container_path, &it.host_path]);
    for path in mounts.chain(nodes) {
        let is_within = !path.split('/').any(|part| part == "..");
        if !path.starts_with('/') || !is_within || path.contains('\0') {
            return bad("path", path);
        }
    }
    for node in &response.devices {
        if node.permissions.is_empty()
            || !node.permissions.chars().all(|it| PERMISSIONS.contains(&it))
        {
            return bad("permissions", &node.permissions);
        }
    }
    Ok(ContainerDevices {
        env: response.envs.into_iter().collect(),
        mounts: response
            .mounts
            .into_iter()
            .map(|it| DeviceMount {
                container_path: it.container_path,
                host_path: it.host_path,
                read_only: it.read_only,
            })
            .collect(),
        nodes: response
            .devices
            .into_iter()
            .map(|it| DeviceNode {
                container_path: it.container_path,
                host_path: it.host_path,
                permissions: it.permissions,
            })
            .collect(),
        annotations: response.annotations.into_iter().collect(),
        cdi: response.cdi_devices.into_iter().map(|it| it.name).collect(),
    })
}

fn client(socket: &Path) -> DevicePluginClient<Channel> {
    let client = DevicePluginClient::new(unix_channel(socket));
    client.max_decoding_message_size(RESPONSE_BYTES_MAX)
}

async fn call<T>(
    name: &'static str,
    response: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, PluginError> {
    match tokio::time::timeout(CALL, response).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(of_status(&status)),
        Err(_) => {
            let seconds = CALL.as_secs();
            Err(PluginError(format!("the device plugin did not end {name} within {seconds} s")))
        }
    }
}

/// The words of a kubelet, which are those of gRPC in Go.
fn of_status(status: &Status) -> PluginError {
    let message: String = status.message().chars().take(ERROR_CHARS_MAX).collect();
    PluginError(format!("rpc error: code = {:?} desc = {message}", status.code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{DeviceSpec, Mount};

    #[test]
    fn a_list_is_bounded_and_says_which_devices_work() {
        let device = |id: &str, health: &str| Device {
            id: id.to_owned(),
            health: health.to_owned(),
            topology: None,
        };
        let all = devices(vec![device("a", "Healthy"), device("b", "Unhealthy"), device("c", "")]);
        let all: Vec<_> = all.expect("a list").into_iter().collect();
        assert_eq!(
            all,
            [("a", true), ("b", false), ("c", false)].map(|(id, it)| (id.to_owned(), it))
        );
        for id in ["", "a\0b", &"x".repeat(257)] {
            devices(vec![device(id, "Healthy")]).expect_err(id);
        }
        let many = (0..=DEVICES_MAX).map(|id| device(&id.to_string(), "Healthy")).collect();
        devices(many).expect_err("too many");
    }

    #[test]
    fn what_no_container_can_have_is_refused() {
        let node = |container: &str, host: &str, permissions: &str| ContainerAllocateResponse {
            devices: vec![DeviceSpec {
                container_path: container.to_owned(),
                host_path: host.to_owned(),
                permissions: permissions.to_owned(),
            }],
            ..ContainerAllocateResponse::default()
        };
        let env = |name: &str, value: &str| ContainerAllocateResponse {
            envs: [(name.to_owned(), value.to_owned())].into(),
            ..ContainerAllocateResponse::default()
        };
        let mount = |container: &str, host: &str| ContainerAllocateResponse {
            mounts: vec![Mount {
                container_path: container.to_owned(),
                host_path: host.to_owned(),
                read_only: true,
            }],
            ..ContainerAllocateResponse::default()
        };
        for right in [node("/dev/a", "/dev/b", "rwm"), env("A", "x=y"), mount("/a", "/..a")] {
            given(right).expect("it can");
        }
        let large = "x".repeat(RESPONSE_BYTES_MAX);
        for wrong in [
            node("dev/a", "/dev/b", "rw"),
            node("/dev/a", "/dev/../etc", "rw"),
            node("/dev/a", "/dev/b", ""),
            node("/dev/a", "/dev/b", "rx"),
            env("", "x"),
            env("A=B", "x"),
            env("A", "x\0"),
            env("A", &large),
            mount("", "/a"),
            mount("/a", "a\0"),
        ] {
            given(wrong.clone()).expect_err(&format!("{:.200}", format!("{wrong:?}")));
        }
    }
}
