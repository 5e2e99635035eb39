//! How a part is spoken to on its unix socket.

use std::path::Path;

use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::{EdgeStatus, StatusRequest};
use tonic::transport::{Channel, Endpoint, Error};

/// A channel to the server at `socket`.
///
/// # Errors
/// There is no server, or the path cannot be an address.
pub async fn connect(socket: &Path) -> Result<Channel, Error> {
    Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect().await
}

/// What the edge behind `socket` says of itself; `None`: it does not answer.
pub async fn edge_status(socket: &Path) -> Option<EdgeStatus> {
    let mut client = MetaClient::new(connect(socket).await.ok()?);
    Some(client.status(StatusRequest {}).await.ok()?.into_inner())
}
