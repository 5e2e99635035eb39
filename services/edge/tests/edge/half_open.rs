//! A half-open link: it carries nothing, and both ends keep it until the silence is too long.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_edge::{Clock, SystemClock};
use headwater_session::EdgeSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::bench::{Bench, node, private};
use crate::hub::Hub;

/// A clock that a test can advance.
#[derive(Debug)]
struct AdvancedClock {
    clock: SystemClock,
    ahead_ms: AtomicU64,
}

impl Clock for AdvancedClock {
    fn wall_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic_ms() + self.ahead_ms.load(Ordering::Relaxed)
    }
}

/// A proxy that forwards bytes, or discards them silently.
struct Middle {
    address: SocketAddr,
    swallows: watch::Sender<bool>,
    _accepting: AbortOnDropHandle<()>,
}

impl Middle {
    async fn before(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (swallows, swallowing) = watch::channel(false);
        let accepting = tokio::spawn(async move {
            loop {
                let (edge, _) = listener.accept().await.expect("accepts");
                let hub = TcpStream::connect(hub).await.expect("the hub listens");
                let ((from_edge, to_edge), (from_hub, to_hub)) =
                    (edge.into_split(), hub.into_split());
                tokio::spawn(pass_on(from_edge, to_hub, swallowing.clone()));
                tokio::spawn(pass_on(from_hub, to_edge, swallowing.clone()));
            }
        });
        Self { address, swallows, _accepting: AbortOnDropHandle::new(accepting) }
    }
}

async fn pass_on(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    swallowing: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    // After a gap, no further bytes of the connection make sense.
    let mut swallowed = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        swallowed |= *swallowing.borrow();
        if !swallowed && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

impl fmt::Debug for Middle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Middle").field("address", &self.address).finish_non_exhaustive()
    }
}

#[tokio::test]
async fn an_edge_abandons_a_silent_hub_and_returns_over_a_new_connection() {
    let hub = Hub::start(&node()).await;
    let middle = Middle::before(hub.address).await;
    let clock = Arc::new(AdvancedClock { clock: SystemClock::new(), ahead_ms: AtomicU64::new(0) });
    let bench = Bench::with_clock(&[middle.address], clock.clone()).await;
    bench.until("a connection", |status| status.connected).await;

    middle.swallows.send_replace(true);
    hub.apply(&private(), "d/pod/web", "u1", "{}");
    let silence_ms_max = EdgeSettings::default().silence_ms_max;
    assert!(silence_ms_max <= 45_000, "a half-open link ends within 45 s");
    assert!(bench.status().await.connected, "the silence is still short");
    clock.ahead_ms.fetch_add(silence_ms_max + 1, Ordering::Relaxed);
    bench.until("the end of the silence", |status| !status.connected).await;

    middle.swallows.send_replace(false);
    let (seq, _) = hub.head(&private());
    // The next silence ends a connection that was opened while the middle swallowed bytes.
    clock.ahead_ms.fetch_add(silence_ms_max + 1, Ordering::Relaxed);
    bench.until_durable(&private(), seq).await;
    bench.until("a connection", |status| status.connected).await;
    bench.edge.stop().await;
}
