//! The client of a container runtime's socket. Every call has a deadline, and an error says what the caller
//! knows afterwards.

use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_edged::unix_channel;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::proto;
use crate::proto::containerd::events_client::EventsClient;
use crate::proto::image_service_client::ImageServiceClient;
use crate::proto::runtime_service_client::RuntimeServiceClient;

/// The largest message, as a kubelet's: a list of all containers with their labels.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A list or a status takes milliseconds. On a loaded machine it takes a second.
const QUICK: Duration = Duration::from_secs(20);

/// As a kubelet's runtimeRequestTimeout: the runtime sets up networks and starts processes.
const SLOW: Duration = Duration::from_mins(2);

/// A pull over a thin line. The runtime itself gives up a pull without progress.
const PULL: Duration = Duration::from_hours(2);

/// The words of a containerd that has just started.
const STARTING: &str = "server is not initialized yet";

/// The words of a containerd that starts the container, for a caller that may have gone away.
const IS_STARTING: &str = "in starting state";

/// A container runtime's socket. Cheap to clone.
#[derive(Clone)]
pub struct CriClient {
    socket: PathBuf,
    channel: Channel,
}

/// A call to the runtime failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The runtime cannot be reached. A call that it had received may have acted.
    #[error("the container runtime at {} cannot be reached: {cause}", socket.display())]
    Away {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The runtime did not respond in time. The call may have acted, or act later.
    #[error("the container runtime did not end {call} within {} s", within.as_secs())]
    TimedOut {
        /// The call.
        call: &'static str,
        /// Its deadline.
        within: Duration,
    },
    /// The runtime does not have the sandbox, container or image.
    #[error("{call}: {message}")]
    NotFound {
        /// The call.
        call: &'static str,
        /// The runtime's words.
        message: String,
    },
    /// The runtime does not have this call.
    #[error("the container runtime does not have the call {call}")]
    Unimplemented {
        /// The call.
        call: &'static str,
    },
    /// The runtime refused the call, or failed at it.
    #[error("{call}: {message}")]
    Failed {
        /// The call.
        call: &'static str,
        /// The kind of the failure.
        code: Code,
        /// The runtime's words.
        message: String,
    },
}

impl CallError {
    /// Whether the call may have acted: the caller looks what is there.
    pub fn may_have_acted(&self) -> bool {
        match self {
            Self::Away { .. } | Self::TimedOut { .. } => true,
            // An earlier call with an unknown outcome holds the name (containerd, CRI-O).
            Self::Failed { message, .. } => {
                message.contains("is reserved for") || message.contains("name is reserved")
            }
            Self::NotFound { .. } | Self::Unimplemented { .. } => false,
        }
    }

    /// Whether the runtime has just started, and serves soon.
    pub fn is_starting(&self) -> bool {
        matches!(self, Self::Away { cause, .. } if cause.contains(STARTING))
    }

    /// Whether an earlier call starts the container: it runs soon, or its start ends with an error.
    pub fn is_during_start(&self) -> bool {
        matches!(self, Self::Failed { message, .. } if message.contains(IS_STARTING))
    }

    /// Whether the runtime cannot be reached.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }

    /// On the way down, what is not there is done.
    ///
    /// # Errors
    /// Any other error.
    pub fn done_if_absent(self) -> Result<(), Self> {
        if matches!(self, Self::NotFound { .. }) { Ok(()) } else { Err(self) }
    }
}

impl CriClient {
    /// The client of this socket. It connects with the first call, and again whenever the connection is lost. Must
    /// be called inside a Tokio runtime.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), channel: unix_channel(socket) }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        let client = RuntimeServiceClient::new(self.channel.clone());
        client.max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        let client = ImageServiceClient::new(self.channel.clone());
        client.max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// containerd's events of the tasks of pods. It returns with the first event only.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn task_events(
        &self,
    ) -> Result<tonic::Streaming<proto::containerd::Envelope>, CallError> {
        let filters = vec!["namespace==k8s.io,topic~=\"^/tasks/(exit|oom)\"".to_owned()];
        let subscribe = proto::containerd::SubscribeRequest { filters };
        let mut request = tonic::Request::new(subscribe);
        let namespace = tonic::metadata::MetadataValue::from_static("k8s.io");
        request.metadata_mut().insert("containerd-namespace", namespace);
        let mut client = EventsClient::new(self.channel.clone());
        let stream = client.subscribe(request).await;
        Ok(stream.map_err(|status| self.error("Subscribe", &status))?.into_inner())
    }

    /// The runtime's events of containers. It returns with the first event only.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn container_events(
        &self,
    ) -> Result<tonic::Streaming<proto::ContainerEventResponse>, CallError> {
        let stream = self.runtime().get_container_events(proto::GetEventsRequest {}).await;
        Ok(stream.map_err(|status| self.error("GetContainerEvents", &status))?.into_inner())
    }

    async fn call<T>(
        &self,
        call: &'static str,
        within: Duration,
        response: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(within, response).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.error(call, &status)),
            Err(_) => Err(CallError::TimedOut { call, within }),
        }
    }

    fn error(&self, call: &'static str, status: &Status) -> CallError {
        let message = status.message().to_owned();
        // A connection that breaks during a call has no code of its own.
        let is_transport = status.source().is_some();
        match status.code() {
            Code::Unavailable => self.away(status),
            // It listens before it has read what it ran before its own start.
            _ if message.contains(STARTING) => self.away(status),
            _ if is_transport => self.away(status),
            Code::NotFound => CallError::NotFound { call, message },
            Code::Unimplemented => CallError::Unimplemented { call },
            code => CallError::Failed { call, code, message },
        }
    }

    fn away(&self, status: &Status) -> CallError {
        let mut cause = status.message().to_owned();
        let mut source = status.source();
        while let Some(error) = source {
            cause = error.to_string();
            source = error.source();
        }
        CallError::Away { socket: self.socket.clone(), cause }
    }
}

impl fmt::Debug for CriClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CriClient({})", self.socket.display())
    }
}

/// The time of a call that ends a container within its grace period.
fn stop(request: &proto::StopContainerRequest) -> Duration {
    SLOW + Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0))
}

/// The time of a call that runs a command within its own limit.
fn command(request: &proto::ExecSyncRequest) -> Duration {
    QUICK + Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0))
}

fn quick<T>(_: &T) -> Duration {
    QUICK
}

fn slow<T>(_: &T) -> Duration {
    SLOW
}

fn pull<T>(_: &T) -> Duration {
    PULL
}

/// A method for each call with one response, and its deadline.
macro_rules! calls {
    ($($service:ident $name:ident($request:ident) -> $response:ident, $within:ident;)*) => {
        impl CriClient {
            $(
                #[doc = concat!("The call with a [`proto::", stringify!($request), "`].")]
                ///
                /// # Errors
                /// See [`CallError`].
                pub async fn $name(
                    &self,
                    request: proto::$request,
                ) -> Result<proto::$response, CallError> {
                    let within = $within(&request);
                    let mut client = self.$service();
                    self.call(stringify!($name), within, client.$name(request)).await
                }
            )*
        }
    };
}

calls! {
    runtime version(VersionRequest) -> VersionResponse, quick;
    runtime status(StatusRequest) -> StatusResponse, quick;
    runtime runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse, quick;
    runtime run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse, slow;
    runtime stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse, slow;
    runtime remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse, slow;
    runtime pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse, quick;
    runtime list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse, quick;
    runtime create_container(CreateContainerRequest) -> CreateContainerResponse, slow;
    runtime start_container(StartContainerRequest) -> StartContainerResponse, slow;
    runtime stop_container(StopContainerRequest) -> StopContainerResponse, stop;
    runtime remove_container(RemoveContainerRequest) -> RemoveContainerResponse, slow;
    runtime list_containers(ListContainersRequest) -> ListContainersResponse, quick;
    runtime container_status(ContainerStatusRequest) -> ContainerStatusResponse, quick;
    runtime update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse, slow;
    runtime reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse, quick;
    runtime exec_sync(ExecSyncRequest) -> ExecSyncResponse, command;
    runtime exec(ExecRequest) -> ExecResponse, quick;
    runtime attach(AttachRequest) -> AttachResponse, quick;
    runtime port_forward(PortForwardRequest) -> PortForwardResponse, quick;
    images list_images(ListImagesRequest) -> ListImagesResponse, quick;
    images image_status(ImageStatusRequest) -> ImageStatusResponse, quick;
    images pull_image(PullImageRequest) -> PullImageResponse, pull;
    images remove_image(RemoveImageRequest) -> RemoveImageResponse, slow;
    images image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse, quick;
}
