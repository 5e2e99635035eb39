//! The handlers of hooks and probes: a command in a container, or a request to one of its ports.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    ContainerPort, GRPCAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::http_get;
use crate::pod::PodUid;
use crate::runtime::{CommandBounds, NodeRuntime, RuntimeError};
use headwater_telemetry::error_chain;

/// The container that a hook or probe addresses.
#[derive(Clone)]
pub(crate) struct Target {
    /// The runtime of the container.
    pub(crate) runtime: NodeRuntime,
    /// Its pod.
    pub(crate) pod: PodUid,
    /// Its name.
    pub(crate) container: String,
    /// Its ports, for their names.
    pub(crate) ports: Vec<ContainerPort>,
    /// Its address.
    pub(crate) address: IpAddr,
}

/// The handler of a hook or probe.
#[derive(Clone, Debug)]
pub(crate) enum Handler {
    /// Runs a command, which succeeds with exit code zero.
    Exec(Vec<String>),
    /// Sends an HTTP request, which succeeds with status 200 to 399; see [`http_get::send`].
    HttpGet(HTTPGetAction),
    /// Opens a connection.
    TcpSocket(TCPSocketAction),
    /// Asks gRPC's health service, which succeeds if it is serving.
    Grpc(GRPCAction),
    /// Waits.
    Sleep(Duration),
}

/// Why a handler did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandlerError {
    /// It failed.
    #[error("{0}")]
    Failed(String),
    /// It did not run: the runtime cannot be reached, or the container does not run. The container may be well.
    #[error("{0}")]
    NotRun(String),
}

impl From<String> for HandlerError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl Handler {
    /// The handler of a probe, if it has one.
    pub(crate) fn of_probe(probe: &Probe) -> Option<Self> {
        if let Some(exec) = &probe.exec {
            Some(Self::Exec(exec.command.clone().unwrap_or_default()))
        } else if let Some(action) = &probe.http_get {
            Some(Self::HttpGet(action.clone()))
        } else if let Some(action) = &probe.tcp_socket {
            Some(Self::TcpSocket(action.clone()))
        } else {
            probe.grpc.clone().map(Self::Grpc)
        }
    }

    /// The handler of a hook, if it has one.
    pub(crate) fn of_hook(hook: &LifecycleHandler) -> Option<Self> {
        if let Some(exec) = &hook.exec {
            Some(Self::Exec(exec.command.clone().unwrap_or_default()))
        } else if let Some(action) = &hook.http_get {
            Some(Self::HttpGet(action.clone()))
        } else if let Some(action) = &hook.tcp_socket {
            Some(Self::TcpSocket(action.clone()))
        } else {
            let seconds = u64::try_from(hook.sleep.as_ref()?.seconds).unwrap_or(0);
            Some(Self::Sleep(Duration::from_secs(seconds)))
        }
    }

    /// Runs the handler within `timeout`. Returns a warning, if it succeeds with one.
    ///
    /// # Errors
    /// It failed, or it did not run.
    pub(crate) async fn run(
        &self,
        target: &Target,
        timeout: Duration,
    ) -> Result<Option<String>, HandlerError> {
        let work = async {
            match self {
                Self::Exec(command) => exec(target, command, timeout).await?,
                Self::HttpGet(action) => return Ok(http_get::send(target, action).await?),
                Self::TcpSocket(action) => {
                    connect(target, action.host.as_deref(), &action.port).await.map(drop)?;
                }
                Self::Grpc(action) => grpc(target, action).await?,
                Self::Sleep(duration) => tokio::time::sleep(*duration).await,
            }
            Ok(None)
        };
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(format!("no response in {timeout:?}").into()))
    }
}

async fn exec(target: &Target, command: &[String], timeout: Duration) -> Result<(), HandlerError> {
    let bounds = CommandBounds::of_handler(timeout);
    let output = target.runtime.run(&target.pod, &target.container, command, bounds).await;
    let output = output.map_err(|error| match &error {
        RuntimeError::Away { .. } | RuntimeError::NotRunning { .. } => {
            HandlerError::NotRun(error_chain(&error))
        }
        _ => HandlerError::Failed(error_chain(&error)),
    })?;
    match output.code {
        Some(0) => Ok(()),
        Some(code) => {
            Err(HandlerError::Failed(match String::from_utf8_lossy(&output.output).trim() {
                "" => format!("command exited with {code}"),
                text => format!("command exited with {code}: {text}"),
            }))
        }
        None => Err(HandlerError::Failed(format!("command did not end in {timeout:?}"))),
    }
}

/// Opens a connection to a port of the container, or of another host. Also returns the host's name.
pub(super) async fn connect(
    target: &Target,
    host: Option<&str>,
    port: &IntOrString,
) -> Result<(TcpStream, HostAndPort), String> {
    let port = port_number(target, port)?;
    let host = host.filter(|host| !host.is_empty());
    let host = host.map_or_else(|| target.address.to_string(), str::to_owned);
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|error| format!("cannot connect to {host}:{port}: {error}"))?;
    Ok((stream, HostAndPort { host, port }))
}

/// The other end of a connection. Displayed as in a URL.
pub(super) struct HostAndPort {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

async fn grpc(target: &Target, action: &GRPCAction) -> Result<(), String> {
    let host = match target.address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let address = format!("http://{host}:{}", action.port);
    let channel = tonic::transport::Endpoint::from_shared(address)
        .map_err(|error| error.to_string())?
        .connect()
        .await
        .map_err(|error| error_chain(&error))?;
    let service = action.service.clone().unwrap_or_default();
    let status = HealthClient::new(channel)
        .check(HealthCheckRequest { service })
        .await
        .map_err(|status| status.message().to_owned())?
        .into_inner()
        .status();
    if status == ServingStatus::Serving { Ok(()) } else { Err(format!("{status:?}")) }
}

fn port_number(target: &Target, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => target
            .ports
            .iter()
            .find(|port| port.name.as_deref() == Some(name))
            .map(|port| port.container_port)
            .or_else(|| name.parse().ok()),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("container {} has no port {port:?}", target.container))
}
