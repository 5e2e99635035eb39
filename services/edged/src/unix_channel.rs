//! gRPC over a unix socket.

use std::path::Path;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A channel to the server at `socket`. It connects with the first call, and again whenever the connection is lost; a
/// call whose connection fails gets the error. Must be called inside a Tokio runtime.
pub fn unix_channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // HTTP/2 wants a host, which no server here reads. It is never resolved: the connector opens the socket.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}
