//! A device plugin with faults, on a real socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use headwater_devices::SOCKET;
use headwater_devices::proto::device_plugin_server::{DevicePlugin, DevicePluginServer};
use headwater_devices::proto::registration_client::RegistrationClient;
use headwater_devices::proto::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse,
    ContainerPreferredAllocationResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest,
};
use headwater_edged::unix_channel;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What a plugin does.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    pub(crate) options: DevicePluginOptions,
    /// What each container is given.
    pub(crate) gives: ContainerAllocateResponse,
    /// It answers no Allocate.
    pub(crate) hangs: bool,
    /// It says no word of what it can do.
    pub(crate) is_mute: bool,
    /// It sends the same list again and again.
    pub(crate) floods: bool,
}

/// A plugin that serves. Dropping it ends it.
pub(crate) struct FakePlugin {
    pub(crate) socket: PathBuf,
    devices: watch::Sender<Vec<Device>>,
    calls: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

struct Service {
    conduct: Conduct,
    devices: watch::Receiver<Vec<Device>>,
    calls: Arc<Mutex<Vec<String>>>,
}

/// Devices that work, unless their id begins with `-`.
pub(crate) fn devices(ids: &str) -> Vec<Device> {
    let of = |id: &str| Device {
        id: id.trim_start_matches('-').to_owned(),
        health: if id.starts_with('-') { "Unhealthy" } else { "Healthy" }.to_owned(),
        topology: None,
    };
    ids.split_whitespace().map(of).collect()
}

impl FakePlugin {
    /// Serves at this socket of the folder.
    pub(crate) fn start(dir: &Path, name: &str, ids: &str, conduct: Conduct) -> Self {
        let socket = dir.join(name);
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (devices, watched) = watch::channel(devices(ids));
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let service = Service { conduct, devices: watched, calls: calls.clone() };
        let server = Server::builder().add_service(DevicePluginServer::new(service));
        let server = server.serve_with_incoming(UnixListenerStream::new(listener));
        let task = tokio::spawn(async move { server.await.expect("it serves") });
        Self { socket, devices, calls, task }
    }

    /// Says which devices there are.
    pub(crate) fn set(&self, ids: &str) {
        self.devices.send_replace(devices(ids));
    }

    /// The calls to it so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn register(&self, resource: &str) -> Result<(), Status> {
        let name = self.socket.file_name().expect("a name").to_string_lossy().into_owned();
        let dir = self.socket.parent().expect("a folder");
        register(dir, "v1beta1", resource, &name).await
    }
}

impl Drop for FakePlugin {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Registers at the node's socket.
pub(crate) async fn register(
    dir: &Path,
    version: &str,
    resource: &str,
    endpoint: &str,
) -> Result<(), Status> {
    let channel = unix_channel(&dir.join(SOCKET));
    let request = RegisterRequest {
        version: version.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    RegistrationClient::new(channel).register(request).await.map(drop)
}

impl Service {
    fn note(&self, call: String) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        if self.conduct.is_mute {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.conduct.options))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let list = |devices| Ok(ListAndWatchResponse { devices });
        if self.conduct.floods {
            let devices = self.devices.clone();
            let calls = self.calls.clone();
            let endless = tokio_stream::iter(std::iter::from_fn(move || {
                calls.lock().unwrap_or_else(PoisonError::into_inner).push("list".to_owned());
                Some(list(devices.borrow().clone()))
            }));
            return Ok(Response::new(Box::pin(endless)));
        }
        let lists = WatchStream::new(self.devices.clone()).map(list);
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let all = request.into_inner().container_requests.into_iter();
        let last = all.map(|it| {
            let mut ids = it.available_device_i_ds;
            ids.reverse();
            ContainerPreferredAllocationResponse { device_i_ds: ids }
        });
        Ok(Response::new(PreferredAllocationResponse { container_responses: last.collect() }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let all = request.into_inner().container_requests;
        self.note(format!("allocate {}", all[0].devices_ids.join(" ")));
        if self.conduct.hangs {
            std::future::pending::<()>().await;
        }
        let gives = all.iter().map(|_| self.conduct.gives.clone()).collect();
        Ok(Response::new(AllocateResponse { container_responses: gives }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.note(format!("prepare {}", request.into_inner().devices_ids.join(" ")));
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
