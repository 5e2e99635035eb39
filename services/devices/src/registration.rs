//! The socket at which plugins register, and what they may register.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_edged::FileError;
use headwater_edged::devices::{DeviceServer, Devices, is_extended};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::authority::connections;
use crate::plugin::Plugin;
use crate::proto::registration_server::{Registration, RegistrationServer};
use crate::proto::{Empty, RegisterRequest};
use crate::watch::follow;

/// The name of the node's socket, a kubelet's: plugins know it.
pub const SOCKET: &str = "kubelet.sock";

/// The version of the interface.
const VERSION: &str = "v1beta1";

/// The longest path of a socket (`sun_path` with its final zero).
const PATH_BYTES_MAX: usize = 107;

/// A registration is three short words.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Registrations of one connection at a time: a plugin makes one.
const CALLS_MAX: usize = 4;

/// Plugins that register at a time: each is called back, and may take its time.
const CONNECTING_MAX: usize = 64;

/// The time of a registration: nothing in it waits.
const CALL: Duration = Duration::from_secs(10);

/// The root and its group may enter, as a kubelet sets it.
const DIR_MODE: u32 = 0o750;

/// The folder of device plugins.
#[derive(Clone, Debug)]
pub struct DevicePlugins {
    dir: PathBuf,
}

/// Serves registrations.
struct Registrar {
    dir: PathBuf,
    devices: Devices,
    /// The plugins that were not reached yet, by resource.
    connecting: Mutex<BTreeMap<String, CancellationToken>>,
    /// One permit for each of them.
    permits: Arc<Semaphore>,
    cancel: CancellationToken,
}

/// Why a plugin is refused, in a kubelet's words where it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal(String);

impl DevicePlugins {
    /// Plugins in this folder.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Makes the socket. Sockets of earlier plugins go: a plugin that finds its own gone registers again.
    fn listen(&self) -> Result<UnixListener, FileError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| FileError { action, path, source }
        };
        let dir = &self.dir;
        if !dir.exists() {
            fs::create_dir_all(dir).map_err(failed("create", dir))?;
            let mode = fs::Permissions::from_mode(DIR_MODE);
            fs::set_permissions(dir, mode).map_err(failed("protect", dir))?;
        }
        let socket = dir.join(SOCKET);
        if UnixStream::connect(&socket).is_ok() {
            let what = "another agent serves it: a node has one agent for its device plugins";
            return Err(failed("listen on", &socket)(io::Error::other(what)));
        }
        for entry in fs::read_dir(dir).map_err(failed("list", dir))? {
            let entry = entry.map_err(failed("list", dir))?;
            if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
                let path = entry.path();
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        UnixListener::bind(&socket).map_err(failed("listen on", &socket))
    }
}

impl DeviceServer for DevicePlugins {
    fn serve(&self, devices: Devices, cancel: CancellationToken) -> Result<(), FileError> {
        let incoming = connections(self.listen()?);
        let (dir, stop) = (self.dir.clone(), cancel.clone());
        let permits = Arc::new(Semaphore::new(CONNECTING_MAX));
        let registrar = Registrar { dir, devices, connecting: Mutex::default(), permits, cancel };
        let service =
            RegistrationServer::new(registrar).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let server = Server::builder()
            .concurrency_limit_per_connection(CALLS_MAX)
            .timeout(CALL)
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, stop.cancelled_owned());
        tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "device plugins cannot register any more");
            }
        });
        Ok(())
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let endpoint = check(&request, &self.dir).map_err(|Refusal(why)| {
            let resource = shown(&request.resource_name);
            tracing::warn!(resource, why, "a device plugin is refused");
            Status::invalid_argument(why)
        })?;
        let resource = request.resource_name;
        tracing::info!(resource, endpoint = %endpoint.display(), "a device plugin registers");
        let connecting = self.cancel.child_token();
        {
            let mut all = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, task| !task.is_cancelled());
            // One that registers again and again is reached once.
            if let Some(before) = all.insert(resource.clone(), connecting.clone()) {
                before.cancel();
            }
        }
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Status::resource_exhausted("too many plugins register"))?;
        let (devices, cancel) = (self.devices.clone(), self.cancel.clone());
        tokio::spawn(async move {
            let plugin = connecting.run_until_cancelled(Plugin::connect(&endpoint)).await;
            connecting.cancel();
            drop(permit);
            let followed = match plugin {
                None => return,
                Some(Ok(plugin)) => follow(&resource, plugin, &devices, &cancel).await,
                Some(Err(error)) => Err(error),
            };
            match followed {
                Ok(()) => tracing::info!(resource, "a device plugin is gone"),
                Err(error) => tracing::warn!(resource, %error, "a device plugin is given up"),
            }
        });
        Ok(Response::new(Empty {}))
    }
}

/// Checks what a plugin registers, and returns the path of its socket.
fn check(request: &RegisterRequest, dir: &Path) -> Result<PathBuf, Refusal> {
    let RegisterRequest { version, endpoint, resource_name, .. } = request;
    if version != VERSION {
        return Err(Refusal(format!(
            "requested API version {:?} is not supported by kubelet. Supported version is \
             {VERSION:?}",
            shown(version)
        )));
    }
    if !is_extended(resource_name) {
        let name = shown(resource_name);
        return Err(Refusal(format!("the ResourceName {name:?} is invalid")));
    }
    let is_name = !endpoint.is_empty()
        && !endpoint.starts_with('.')
        && !endpoint.contains(['/', '\0'])
        && endpoint != SOCKET;
    let path = dir.join(endpoint);
    if !is_name || path.as_os_str().len() > PATH_BYTES_MAX {
        let endpoint = shown(endpoint);
        return Err(Refusal(format!(
            "the endpoint {endpoint:?} is no name of a socket in {}",
            dir.display()
        )));
    }
    // A link leads anywhere.
    if !fs::symlink_metadata(&path).is_ok_and(|it| it.file_type().is_socket()) {
        return Err(Refusal(format!("the endpoint {} is no socket", path.display())));
    }
    Ok(path)
}

/// The beginning of a plugin's word, for messages.
fn shown(word: &str) -> String {
    /// As long as the longest name that is right.
    const CHARS_MAX: usize = 320;
    word.chars().take(CHARS_MAX).collect()
}

impl std::fmt::Debug for Registrar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registrar({})", self.dir.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_registers_a_resource_of_its_own_with_a_socket_in_the_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path();
        let bind = |name: &str| std::os::unix::net::UnixListener::bind(dir.join(name));
        let _sockets = ["gpu.sock", SOCKET].map(|name| bind(name).expect("a socket"));
        fs::write(dir.join("file"), "").expect("a file");
        std::os::unix::fs::symlink(dir.join("gpu.sock"), dir.join("link")).expect("a link");
        let of = |version: &str, resource: &str, endpoint: &str| {
            let request = RegisterRequest {
                version: version.to_owned(),
                endpoint: endpoint.to_owned(),
                resource_name: resource.to_owned(),
                options: None,
            };
            check(&request, dir).map_err(|Refusal(why)| why)
        };
        assert_eq!(of(VERSION, "e.com/gpu", "gpu.sock"), Ok(dir.join("gpu.sock")));
        let long = "a".repeat(4096);
        for (version, resource, endpoint, words) in [
            ("v1alpha1", "e.com/gpu", "gpu.sock", "Supported version is \"v1beta1\""),
            ("", "e.com/gpu", "gpu.sock", "is not supported by kubelet"),
            (VERSION, "kubernetes.io/gpu", "gpu.sock", "the ResourceName \"kubernetes.io/gpu\""),
            (VERSION, "../gpu", "gpu.sock", "is invalid"),
            (VERSION, "cpu", "gpu.sock", "is invalid"),
            (VERSION, &long, "gpu.sock", "is invalid"),
            (VERSION, "e.com/gpu", "", "no name of a socket"),
            (VERSION, "e.com/gpu", "../gpu.sock", "no name of a socket"),
            (VERSION, "e.com/gpu", "..", "no name of a socket"),
            (VERSION, "e.com/gpu", "/run/gpu.sock", "no name of a socket"),
            (VERSION, "e.com/gpu", "a\0b", "no name of a socket"),
            (VERSION, "e.com/gpu", SOCKET, "no name of a socket"),
            (VERSION, "e.com/gpu", &long, "no name of a socket"),
            (VERSION, "e.com/gpu", "absent.sock", "is no socket"),
            (VERSION, "e.com/gpu", "file", "is no socket"),
            (VERSION, "e.com/gpu", "link", "is no socket"),
        ] {
            let why = of(version, resource, endpoint).expect_err(endpoint);
            assert!(why.contains(words), "{why}");
            assert!(why.len() < 1024, "{}", why.len());
        }
    }
}
