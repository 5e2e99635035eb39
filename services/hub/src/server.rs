//! The hub as a server: from an accepted connection to the hello of an edge.
//!
//! ```text
//!  socket ──────────► peer ─────────────► service ──────────► a session
//!  limit, TLS,        certificate or      hello in time,
//!  hello deadline     none (loopback)     node of the peer
//! ```

mod body;
mod edge_messages;
mod endpoint;
mod peer;
mod service;
mod socket;
mod tunnel;

use std::convert::Infallible;
use std::sync::Arc;

use headwater_identity::{Acceptor, REFRESH_INTERVAL};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use endpoint::ReplicationEndpoint;
use headwater_proto::replication::tunnel_server::TunnelServer;
pub(crate) use peer::{Peer, not_trusted};
pub(crate) use service::{IncomingMessage, OutgoingMessage, open_session};
use tunnel::TunnelEndpoint;

use crate::metrics::HandshakeMetrics;
use crate::session::SessionDependencies;

/// Rapid resets: streams that a peer reset before the hub accepted them. Beyond it the connection
/// ends. The default of h2, set here so that it stays.
const PENDING_RESETS_MAX: usize = 20;

/// Rapid resets: streams that the hub reset for a peer's errors. See [`PENDING_RESETS_MAX`].
const LOCAL_RESETS_MAX: usize = 1024;

/// Serves the edges that connect to `listener` until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Acceptor>,
    hub: Arc<SessionDependencies>,
    stop: CancellationToken,
) {
    let limits = hub.limits.clone();
    let metrics = hub.metrics.clone();
    if let Some(tls) = &tls {
        metrics.handshakes.valid_until(tls.not_after());
    }
    let incoming = socket::incoming(listener, &limits, tls.clone(), &metrics);
    let served = Server::builder()
        .http2_keepalive_interval(Some(limits.keepalive_interval))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout))
        .http2_max_header_list_size(limits.header_list_bytes_max)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(LOCAL_RESETS_MAX))
        .max_concurrent_streams(limits.streams_per_connection)
        // Sessions end in order at their age; this ends connections that outlive them.
        .max_connection_age(limits.age_max())
        .max_connection_age_grace(limits.connection_age_grace)
        .add_service(ReplicationEndpoint::new(hub.clone()))
        .add_service(TunnelServer::new(TunnelEndpoint::new(hub)))
        .serve_with_incoming_shutdown(incoming, stop.cancelled());
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::error!(%error, "the hub no longer listens");
        },
        never = refresh(tls, &metrics.handshakes) => match never {},
    }
}

/// Reads the certificate files while no edge connects, so that new CAs reach the live sessions.
async fn refresh(tls: Option<Acceptor>, metrics: &HandshakeMetrics) -> Infallible {
    let Some(tls) = tls else { return std::future::pending().await };
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        tls.refresh();
        metrics.valid_until(tls.not_after());
    }
}
