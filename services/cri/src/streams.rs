//! Exec, attach and port-forward: addresses that the runtime gives out, each for one connection.

use std::net::IpAddr;

use async_trait::async_trait;
use headwater_edged::pod::PodUid;
use headwater_edged::runtime::{RuntimeError, StreamAddress, StreamRequest, Streams};
use tonic::codegen::http::Uri;

use crate::client::CallError;
use crate::proto::{AttachRequest, ExecRequest, PortForwardRequest};
use crate::runtime::CriRuntime;

#[async_trait]
impl Streams for CriRuntime {
    async fn exec(
        &self,
        pod: &PodUid,
        container: &str,
        command: &[String],
        request: StreamRequest,
    ) -> Result<StreamAddress, RuntimeError> {
        let request = ExecRequest {
            container_id: self.running(pod, container)?,
            cmd: command.to_vec(),
            tty: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            // A terminal has one output.
            stderr: request.stderr && !request.tty,
        };
        address(self.client().exec(request).await.map(|response| response.url))
    }

    async fn attach(
        &self,
        pod: &PodUid,
        container: &str,
        request: StreamRequest,
    ) -> Result<StreamAddress, RuntimeError> {
        let request = AttachRequest {
            container_id: self.running(pod, container)?,
            tty: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr && !request.tty,
        };
        address(self.client().attach(request).await.map(|response| response.url))
    }

    async fn port_forward(
        &self,
        pod: &PodUid,
        ports: &[u16],
    ) -> Result<StreamAddress, RuntimeError> {
        let request = PortForwardRequest {
            pod_sandbox_id: self.ready_sandbox(pod)?,
            port: ports.iter().copied().map(i32::from).collect(),
        };
        address(self.client().port_forward(request).await.map(|response| response.url))
    }
}

fn address(url: Result<String, CallError>) -> Result<StreamAddress, RuntimeError> {
    let refused = |cause: String| RuntimeError::Sandbox { cause };
    let url = url.map_err(|error| refused(error.to_string()))?;
    if !is_loopback(&url) {
        return Err(refused(format!(
            "the runtime offers streams at {url}, which other machines reach: let its streaming \
             server listen on 127.0.0.1"
        )));
    }
    Ok(StreamAddress { url })
}

/// Whether the address is one of this machine alone: the token in it is all that protects the stream.
fn is_loopback(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let Some(host) = uri.host() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_this_machine_is_handed_on() {
        for url in ["http://127.0.0.1:1234/exec/x", "http://[::1]:1/x", "http://localhost:1/x"] {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://10.0.0.1:1/x", "http://[::]:1/x", "http://host:1/x", "", "/exec/x"] {
            assert!(!is_loopback(url), "{url}");
            assert!(address(Ok(url.to_owned())).is_err());
        }
    }
}
