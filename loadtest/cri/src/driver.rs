//! A storage driver in memory that speaks CSI on real sockets, with faults. A volume is a file of its target, or a file
//! system of its own that is mounted there; one that is a block device is a node of a device of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_csi::proto::node_server::{Node, NodeServer};
use headwater_csi::proto::node_service_capability::rpc::Type;
use headwater_csi::proto::node_service_capability::{Rpc, Type as Capability};
use headwater_csi::proto::registration::registration_server::{Registration, RegistrationServer};
use headwater_csi::proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use headwater_csi::proto::volume_capability::AccessType;
use headwater_csi::proto::volume_usage::Unit;
use headwater_csi::proto::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest,
    NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, VolumeUsage,
};
use headwater_daemon::DaemonError;
use nix::sys::stat::{Mode, SFlag, mknod};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::error::LabError;

/// The file of a published volume.
pub const VOLUME_FILE: &str = "volume";

/// The size of every volume, as the driver measures it.
pub const VOLUME_BYTES: i64 = 1 << 30;

/// What is used of every volume, as the driver measures it.
pub const VOLUME_BYTES_USED: i64 = 1 << 20;

/// A fault of one call.
#[derive(Clone, Debug)]
pub enum DriverFault {
    /// It acts after this time.
    Slow(Duration),
    /// It never answers, and does not act.
    Hangs,
    /// It acts, and its answer is lost.
    Lost,
    /// It does not act, and says so.
    Refused,
    /// It does not act, and another call for the volume is under way.
    Pending,
}

/// What a driver says of itself.
#[derive(Clone, Debug)]
pub struct DriverSettings {
    /// Its name.
    pub name: String,
    /// Its versions.
    pub versions: Vec<String>,
    /// Volumes are staged.
    pub stages: bool,
    /// Volumes are mounted in the namespace of this process, as the machine outside counts.
    pub mounts_in: Option<u32>,
    /// The device of the machine that every volume without a file system is.
    pub device: Option<PathBuf>,
}

/// A running driver; it ends when dropped.
#[derive(Debug)]
pub struct Driver {
    core: Arc<Core>,
    endpoint: PathBuf,
    registration: PathBuf,
    servers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Core {
    settings: DriverSettings,
    endpoint: PathBuf,
    state: Mutex<State>,
}

/// What the driver holds.
#[derive(Debug, Default)]
struct State {
    /// The staged volumes, with their paths.
    staged: BTreeMap<String, String>,
    /// The paths of published volumes.
    published: BTreeSet<String>,
    /// Every call, with the volume.
    calls: Vec<(&'static str, String)>,
    faults: Vec<(&'static str, DriverFault)>,
    /// The latest request to publish.
    last: Option<NodePublishVolumeRequest>,
    /// The answers to its registration.
    answers: Vec<Result<(), String>>,
    /// What must not happen: a call out of its order.
    wrongs: Vec<String>,
}

#[derive(Clone, Debug)]
struct Service(Arc<Core>);

impl DriverSettings {
    /// A driver of this name that stages its volumes.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            versions: vec!["1.0.0".to_owned()],
            stages: true,
            mounts_in: None,
            device: None,
        }
    }
}

impl Driver {
    /// Starts one, which registers in this folder by a socket of its name. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// A socket cannot be bound.
    pub fn start(settings: DriverSettings, registrations: &Path) -> Result<Self, LabError> {
        let socket = registrations.join(format!("{}-reg.sock", settings.name));
        Self::start_at(settings, &socket)
    }

    /// The same, with this socket.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn start_at(settings: DriverSettings, socket: &Path) -> Result<Self, LabError> {
        let registration = socket.to_owned();
        // Hidden: it is no registration.
        let name = format!(".{}.csi", registration.file_name().unwrap_or_default().display());
        let endpoint = registration.with_file_name(name);
        let core =
            Core { settings, endpoint: endpoint.clone(), state: Mutex::new(State::default()) };
        let mut driver = Self { core: Arc::new(core), endpoint, registration, servers: Vec::new() };
        driver.serve()?;
        Ok(driver)
    }

    /// Serves again after [`Driver::stop`]. What it held it holds.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn serve(&mut self) -> Result<(), LabError> {
        let service = Service(self.core.clone());
        let node = Server::builder().add_service(NodeServer::new(service.clone()));
        let plugin = Server::builder().add_service(RegistrationServer::new(service));
        let [nodes, plugins] = [listen(&self.endpoint)?, listen(&self.registration)?];
        self.servers.push(tokio::spawn(async move {
            // It ends with its task.
            let _ = node.serve_with_incoming(UnixListenerStream::new(nodes)).await;
        }));
        self.servers.push(tokio::spawn(async move {
            let _ = plugin.serve_with_incoming(UnixListenerStream::new(plugins)).await;
        }));
        Ok(())
    }

    /// Ends every connection, and takes its sockets away.
    pub fn stop(&mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
        for socket in [&self.registration, &self.endpoint] {
            // It may have gone with its folder.
            let _ = fs::remove_file(socket);
        }
    }

    /// From now on the socket of its calls answers with what is no protocol.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn babble(&mut self) -> Result<(), LabError> {
        if let Some(server) = self.servers.first() {
            server.abort();
        }
        let listener = listen(&self.endpoint)?;
        self.servers[0] = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // A client that has gone does not read it.
                let _ = stream.write_all(&[b'x'; 4096]).await;
            }
        });
        Ok(())
    }

    /// The next call of a method, such as `NodeStageVolume`, has the fault. Those of one method come one by one.
    pub fn fail_next(&self, method: &'static str, fault: DriverFault) {
        self.core.state().faults.push((method, fault));
    }

    /// The faults of calls to come are no longer planned.
    pub fn forget_faults(&self) {
        self.core.state().faults.clear();
    }

    /// How many calls of a method there were.
    pub fn calls(&self, method: &str) -> usize {
        self.core.state().calls.iter().filter(|(called, _)| *called == method).count()
    }

    /// Every call that changes something, in order.
    pub fn changes(&self) -> Vec<&'static str> {
        let state = self.core.state();
        let changes = state.calls.iter().map(|(method, _)| *method);
        changes.filter(|method| method.ends_with("Volume")).collect()
    }

    /// The latest request to publish.
    pub fn last_publish(&self) -> Option<NodePublishVolumeRequest> {
        self.core.state().last.clone()
    }

    /// The answers to its registration, so far.
    pub fn answers(&self) -> Vec<Result<(), String>> {
        self.core.state().answers.clone()
    }

    /// The number of staged volumes, and of published ones.
    pub fn holds(&self) -> (usize, usize) {
        let state = self.core.state();
        (state.staged.len(), state.published.len())
    }

    /// Calls that came out of their order.
    pub fn wrongs(&self) -> Vec<String> {
        self.core.state().wrongs.clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Mounts a file system of its own, and writes the file of the volume into it.
const MOUNT: &str = "mount -t tmpfs volume \"$1\" && printf %s \"$2\" > \"$1/volume\"";

/// Runs a script in the namespace of mounts of a process.
fn run_in(pid: u32, script: &str, arguments: [&str; 2]) -> io::Result<()> {
    let mut command = Command::new("nsenter");
    command.arg("--target").arg(pid.to_string()).args(["--mount", "--", "sh", "-c", script, "sh"]);
    let output = command.args(arguments).output()?;
    let words = || io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
    output.status.success().then_some(()).ok_or_else(words)
}

/// How the pod uses the volume.
fn access(request: &NodePublishVolumeRequest) -> Option<&AccessType> {
    request.volume_capability.as_ref()?.access_type.as_ref()
}

/// Makes a node of the same device at the target, whose folder is there.
fn make_node(target: &str, device: Option<&Path>) -> io::Result<()> {
    let device = device.ok_or_else(|| io::Error::other("the driver has no devices"))?;
    let number = fs::metadata(device)?.rdev();
    Ok(mknod(target, SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, number)?)
}

fn listen(socket: &Path) -> Result<UnixListener, LabError> {
    let _ = fs::remove_file(socket);
    Ok(UnixListener::bind(socket).map_err(DaemonError::file(socket))?)
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts with the next fault of the method.
    async fn act<T>(
        &self,
        method: &'static str,
        volume: &str,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<Response<T>, Status> {
        let fault = {
            let mut state = self.state();
            state.calls.push((method, volume.to_owned()));
            let at = state.faults.iter().position(|(of, _)| *of == method);
            at.map(|at| state.faults.remove(at).1)
        };
        match &fault {
            Some(DriverFault::Slow(time)) => tokio::time::sleep(*time).await,
            Some(DriverFault::Hangs) => std::future::pending().await,
            Some(DriverFault::Refused) => return Err(Status::invalid_argument("a test asked")),
            Some(DriverFault::Pending) => return Err(Status::aborted("an operation is pending")),
            Some(DriverFault::Lost) | None => {}
        }
        let acted = act(&mut self.state());
        let acted = acted.map_err(|error| Status::internal(error.to_string()))?;
        if matches!(fault, Some(DriverFault::Lost)) {
            return Err(Status::unavailable("the connection is lost"));
        }
        Ok(Response::new(acted))
    }
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let DriverSettings { name, versions, .. } = &self.0.settings;
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: name.clone(),
            endpoint: self.0.endpoint.display().to_string(),
            supported_versions: versions.clone(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let answer = if status.plugin_registered { Ok(()) } else { Err(status.error) };
        self.0.state().answers.push(answer);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let NodeStageVolumeRequest { volume_id, staging_target_path, .. } = request.into_inner();
        let id = volume_id.clone();
        let stage = move |state: &mut State| {
            if !Path::new(&staging_target_path).is_dir() {
                state.wrongs.push(format!("no folder to stage {volume_id}"));
            }
            state.staged.insert(volume_id, staging_target_path);
            Ok(NodeStageVolumeResponse {})
        };
        self.0.act("NodeStageVolume", &id, stage).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let NodeUnstageVolumeRequest { volume_id, .. } = request.into_inner();
        let id = volume_id.clone();
        let unstage = move |state: &mut State| {
            state.staged.remove(&volume_id);
            if !state.published.is_empty() {
                state.wrongs.push(format!("{volume_id} is unstaged while it is published"));
            }
            Ok(NodeUnstageVolumeResponse {})
        };
        self.0.act("NodeUnstageVolume", &id, unstage).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, stages) = (request.volume_id.clone(), self.0.settings.stages);
        let DriverSettings { mounts_in, device, .. } = self.0.settings.clone();
        let publish = move |state: &mut State| {
            let is_inline = request.staging_target_path.is_empty();
            if stages && !is_inline && !state.staged.contains_key(&request.volume_id) {
                state.wrongs.push(format!("{} is published and not staged", request.volume_id));
            }
            let (target, volume) = (&request.target_path, &request.volume_id);
            match (access(&request), mounts_in) {
                // What is there stays, however often it is asked for.
                (Some(AccessType::Block(_)), _) if state.published.contains(target) => {}
                (Some(AccessType::Block(_)), _) => make_node(target, device.as_deref())?,
                (_, None) => {
                    fs::create_dir_all(target)?;
                    fs::write(Path::new(target).join(VOLUME_FILE), volume)?;
                }
                (_, Some(_)) if state.published.contains(target) => {}
                (_, Some(pid)) => {
                    fs::create_dir_all(target)?;
                    run_in(pid, MOUNT, [target, volume])?;
                }
            }
            state.published.insert(request.target_path.clone());
            state.last = Some(request);
            Ok(NodePublishVolumeResponse {})
        };
        self.0.act("NodePublishVolume", &id, publish).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        let mounts_in = self.0.settings.mounts_in;
        let unpublish = move |state: &mut State| {
            let is_folder = Path::new(&target_path).is_dir();
            let is_mounted = is_folder && state.published.contains(&target_path);
            if let Some(pid) = mounts_in.filter(|_| is_mounted) {
                run_in(pid, "umount \"$1\"", [&target_path, ""])?;
            }
            let removed = match is_folder {
                true => fs::remove_dir_all(&target_path),
                false => fs::remove_file(&target_path),
            };
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            state.published.remove(&target_path);
            Ok(NodeUnpublishVolumeResponse {})
        };
        self.0.act("NodeUnpublishVolume", &volume_id, unpublish).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let NodeGetVolumeStatsRequest { volume_id, volume_path, .. } = request.into_inner();
        let measure = move |state: &mut State| {
            if !state.published.contains(&volume_path) {
                state.wrongs.push(format!("{volume_path} is measured and not published"));
            }
            let usage = VolumeUsage {
                available: VOLUME_BYTES - VOLUME_BYTES_USED,
                total: VOLUME_BYTES,
                used: VOLUME_BYTES_USED,
                unit: Unit::Bytes.into(),
            };
            Ok(NodeGetVolumeStatsResponse { usage: vec![usage] })
        };
        self.0.act("NodeGetVolumeStats", &volume_id, measure).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let stages = self.0.settings.stages;
        // The last one is of a later version.
        let others = [i32::from(Type::GetVolumeStats), 99];
        let numbers =
            stages.then_some(i32::from(Type::StageUnstageVolume)).into_iter().chain(others);
        let one = |number| NodeServiceCapability {
            r#type: Some(Capability::Rpc(Rpc { r#type: number })),
        };
        let capabilities = numbers.map(one).collect();
        let answer = |_: &mut State| Ok(NodeGetCapabilitiesResponse { capabilities });
        self.0.act("NodeGetCapabilities", "", answer).await
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let answer = |_: &mut State| {
            Ok(NodeGetInfoResponse { node_id: "node-of-test".to_owned(), ..Default::default() })
        };
        self.0.act("NodeGetInfo", "", answer).await
    }
}
