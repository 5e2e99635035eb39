//! `headwater port-forward`: local ports that lead to ports of a pod.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use headwater_kubelet::client::{ClientError, NodeClient, PortInput};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::pod_target::{PodPlace, PodTarget};
use crate::args::pods::PortForward;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::render::plain;

/// The bytes of one read of a local connection.
const READ_BYTES: usize = 32 << 10;

/// How long the pod may go on after the local end has nothing more to send: there is no message for
/// that end.
const LINGER: Duration = Duration::from_mins(1);

/// A port of a pod.
struct PodPort {
    node: NodeClient,
    namespace: String,
    pod: String,
    port: u16,
}

pub(super) async fn run(args: PortForward) -> CommandResult {
    let place = PodPlace { namespace: &args.namespace, word: &args.pod };
    // A port is that of the pod, whatever its containers are.
    let target = PodTarget::find(&args.target, &args.hub, place, false).await?;
    let mut listening = JoinSet::new();
    for ports in &args.ports {
        let listener = TcpListener::bind((args.address, ports.local)).await?;
        let to = Arc::new(PodPort {
            node: target.node.clone(),
            namespace: args.namespace.clone(),
            pod: target.name.clone(),
            port: ports.remote,
        });
        let address = listener.local_addr()?;
        writeln!(std::io::stdout(), "Forwarding from {address} -> {}", ports.remote)?;
        listening.spawn(accept(listener, to));
    }
    tokio::select! {
        Some(ended) = listening.join_next() => {
            ended.map_err(|error| Failure::Failed(error.into()))??;
            Ok(Outcome::Done)
        }
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Ok(Outcome::Done)
        }
    }
}

async fn accept(listener: TcpListener, to: Arc<PodPort>) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let to = to.clone();
        tokio::spawn(async move {
            if let Err(error) = forward(stream, &to).await {
                let words = headwater_telemetry::error_chain(&error);
                eprintln!("headwater: port {}: {}", to.port, plain(&words));
            }
        });
    }
}

/// Copies bytes between a local connection and a port of the pod, until the pod ends it.
async fn forward(stream: TcpStream, to: &PodPort) -> Result<(), ClientError> {
    let (input, mut output) = to.node.port(&to.namespace, &to.pod, to.port).await?.split();
    let (local, mut back) = stream.into_split();
    let mut sending = tokio::spawn(send(local, input));
    let mut is_ending = false;
    loop {
        tokio::select! {
            bytes = output.next() => match bytes? {
                Some(bytes) if back.write_all(&bytes).await.is_ok() => {}
                _ => break,
            },
            _ = &mut sending, if !is_ending => is_ending = true,
            () = sleep(LINGER), if is_ending => break,
        }
    }
    sending.abort();
    Ok(())
}

/// Sends what comes from the local end. The connection stays open after it: the pod may have more.
async fn send(mut local: OwnedReadHalf, mut input: PortInput) -> Option<PortInput> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match local.read(&mut bytes).await {
            Ok(0) | Err(_) => return Some(input),
            Ok(read) => input.write(&bytes[..read]).await.ok()?,
        }
    }
}
