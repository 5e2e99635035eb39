//! How a part is spoken to on its unix socket.

use std::path::Path;

use tonic::transport::{Channel, Endpoint, Error};

/// A channel to the server at `socket`.
///
/// # Errors
/// There is no server, or the path cannot be an address.
pub async fn connect(socket: &Path) -> Result<Channel, Error> {
    Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect().await
}
