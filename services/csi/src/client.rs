//! The client of a driver's socket. Every call has a deadline and a connection of its own, and an error says what the
//! caller knows afterwards.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use headwater_edged::unix_channel;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::plan::Capabilities;
use crate::proto;
use crate::proto::node_client::NodeClient;
use crate::proto::registration::registration_client::RegistrationClient;
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus};

/// The time of a call that mounts, as a kubelet's. A driver may format a disk meanwhile.
const CALL_WITHIN: Duration = Duration::from_mins(2);

/// The time of a call that only answers, as a kubelet's for a registration.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The longest words of a driver that a status quotes.
const WORDS_CHARS_MAX: usize = 1024;

/// The socket of a driver. Cheap to make.
#[derive(Clone, Debug)]
pub struct DriverClient {
    socket: PathBuf,
    call_within: Duration,
}

/// A call to a driver failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The driver cannot be reached, or its answer is none. A call that it had received may have acted.
    #[error("{call}: no answer of the driver at {}: {cause}", socket.display())]
    Away {
        /// The call.
        call: &'static str,
        /// The socket.
        socket: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The driver did not answer in time. The call may have acted, or act later.
    #[error("{call}: the driver did not answer within {} s", within.as_secs_f64())]
    TimedOut {
        /// The call.
        call: &'static str,
        /// Its deadline.
        within: Duration,
    },
    /// The driver refused the call, or failed at it.
    #[error("{call}: rpc error: code = {code:?} desc = {message}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The kind of the failure.
        code: Code,
        /// The driver's words.
        message: String,
    },
}

impl CallError {
    /// Whether the call has not acted and does not act later, as a kubelet has it (`isFinalError`).
    pub fn is_final(&self) -> bool {
        let is_pending = |code: &Code| {
            matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Unavailable
                    | Code::ResourceExhausted
                    | Code::Aborted
                    | Code::Unknown
            )
        };
        matches!(self, Self::Refused { code, .. } if !is_pending(code))
    }

    /// On the way down, what is not there is done.
    ///
    /// # Errors
    /// Any other error.
    pub fn done_if_absent(self) -> Result<(), Self> {
        if matches!(self, Self::Refused { code: Code::NotFound, .. }) { Ok(()) } else { Err(self) }
    }
}

impl DriverClient {
    /// The client of this socket, whose calls that mount have this time; `None`: a kubelet's.
    pub fn new(socket: PathBuf, call_within: Option<Duration>) -> Self {
        Self { socket, call_within: call_within.unwrap_or(CALL_WITHIN) }
    }

    /// The plugin behind a registration socket.
    pub(crate) async fn info(&self) -> Result<PluginInfo, CallError> {
        let mut client = RegistrationClient::new(unix_channel(&self.socket));
        self.call("GetInfo", ANSWER_WITHIN, client.get_info(InfoRequest {})).await
    }

    /// Notifies the plugin whether it is registered.
    pub(crate) async fn notify(&self, error: Option<String>) -> Result<(), CallError> {
        let status = RegistrationStatus {
            plugin_registered: error.is_none(),
            error: error.unwrap_or_default(),
        };
        let mut client = RegistrationClient::new(unix_channel(&self.socket));
        let response = client.notify_registration_status(status);
        self.call("NotifyRegistrationStatus", ANSWER_WITHIN, response).await.map(drop)
    }

    /// What the driver says of the node.
    pub(crate) async fn node_info(&self) -> Result<proto::NodeGetInfoResponse, CallError> {
        let mut client = self.node();
        let response = client.node_get_info(proto::NodeGetInfoRequest {});
        self.call("NodeGetInfo", ANSWER_WITHIN, response).await
    }

    /// What the driver can do on the node.
    pub(crate) async fn capabilities(&self) -> Result<Capabilities, CallError> {
        let mut client = self.node();
        let response = client.node_get_capabilities(proto::NodeGetCapabilitiesRequest {});
        let response = self.call("NodeGetCapabilities", ANSWER_WITHIN, response).await?;
        Ok(Capabilities::of(&response))
    }

    pub(crate) async fn stage(&self, it: proto::NodeStageVolumeRequest) -> Result<(), CallError> {
        let mut client = self.node();
        self.call("NodeStageVolume", self.call_within, client.node_stage_volume(it)).await.map(drop)
    }

    pub(crate) async fn unstage(
        &self,
        it: proto::NodeUnstageVolumeRequest,
    ) -> Result<(), CallError> {
        let mut client = self.node();
        let response = client.node_unstage_volume(it);
        self.call("NodeUnstageVolume", self.call_within, response).await.map(drop)
    }

    pub(crate) async fn publish(
        &self,
        it: proto::NodePublishVolumeRequest,
    ) -> Result<(), CallError> {
        let mut client = self.node();
        let response = client.node_publish_volume(it);
        self.call("NodePublishVolume", self.call_within, response).await.map(drop)
    }

    pub(crate) async fn unpublish(
        &self,
        it: proto::NodeUnpublishVolumeRequest,
    ) -> Result<(), CallError> {
        let mut client = self.node();
        let response = client.node_unpublish_volume(it);
        self.call("NodeUnpublishVolume", self.call_within, response).await.map(drop)
    }

    /// What a published volume uses.
    pub(crate) async fn statistics(
        &self,
        it: proto::NodeGetVolumeStatsRequest,
    ) -> Result<proto::NodeGetVolumeStatsResponse, CallError> {
        let mut client = self.node();
        self.call("NodeGetVolumeStats", ANSWER_WITHIN, client.node_get_volume_stats(it)).await
    }

    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(unix_channel(&self.socket))
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
        // A connection that breaks during a call, or carries something else, has no code of its own.
        let mut source = status.source();
        if source.is_none() && status.code() != Code::Unavailable {
            let message = words(status.message());
            return CallError::Refused { call, code: status.code(), message };
        }
        let mut cause = status.message().to_owned();
        while let Some(error) = source {
            cause = error.to_string();
            source = error.source();
        }
        CallError::Away { call, socket: self.socket.clone(), cause: words(&cause) }
    }
}

/// The words of a driver as a status quotes them: bounded, in one line.
fn words(text: &str) -> String {
    let clean = text.chars().map(|one| if one.is_control() { ' ' } else { one });
    clean.take(WORDS_CHARS_MAX).collect()
}
