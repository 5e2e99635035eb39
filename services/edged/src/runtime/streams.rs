//! The seam to streams of a person: exec, attach and port-forward.
//!
//! The pod worker copies the bytes of an upgraded connection and does not read them.

use async_trait::async_trait;

use super::RuntimeError;
use crate::pod::PodUid;

/// Opens streams to containers and pods.
///
/// Every verb returns an address at which the runtime accepts one upgraded connection.
#[async_trait]
pub trait Streams: Send + Sync + 'static {
    /// Prepares a command in a running container.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn exec(
        &self,
        pod: &PodUid,
        container: &str,
        command: &[String],
        request: StreamRequest,
    ) -> Result<StreamAddress, RuntimeError>;

    /// Prepares a connection to the process of a running container.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn attach(
        &self,
        pod: &PodUid,
        container: &str,
        request: StreamRequest,
    ) -> Result<StreamAddress, RuntimeError>;

    /// Prepares connections to ports of the pod.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn port_forward(
        &self,
        pod: &PodUid,
        ports: &[u16],
    ) -> Result<StreamAddress, RuntimeError>;
}

/// The streams that a person asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamRequest {
    /// The standard input is connected.
    pub stdin: bool,
    /// The standard output is connected.
    pub stdout: bool,
    /// The standard error is connected.
    pub stderr: bool,
    /// The process has a terminal.
    pub tty: bool,
}

/// An address that accepts one upgraded connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAddress {
    /// The URL, which works once.
    pub url: String,
}
