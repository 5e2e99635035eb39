//! A hop of the network, on loopback: it counts every byte that passes, and can be far, slow, deaf
//! or cut.
//!
//! Put it before a hub, and give its address to an edge. What it counts is what a socket carries:
//! HTTP/2 and, where there is TLS, that too; not the headers of TCP.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as SystemInstant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes that are taken up at once.
const CHUNK_BYTES: usize = 16 << 10;

/// Chunks that are on their way at once in one direction: with a delay of a second, 4 MiB a second.
const ON_THE_WAY: usize = 256;

/// What the kernel may hold of a connection whose rate is bounded: the least that it takes, so that
/// the hub notices soon.
const SLOW_BUFFER_BYTES: u32 = 4 << 10;

/// How a hop is. By default bytes pass as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// How long a byte is on its way, in each direction: half a round trip.
    pub delay: Duration,
    /// How many bytes a second the edge reads. A connection that is there keeps what the kernel
    /// holds of it: for a reader that is slow from its first byte, say so before it connects.
    pub reads_per_second: Option<u32>,
    /// Nothing passes and no end is notified, as when a radio is out of reach: bytes wait in the
    /// kernel until the fault ends. New connections are accepted and receive nothing.
    pub black_hole: bool,
    /// New connections are closed at once, as at a port without a listener.
    pub closed: bool,
}

/// What has passed since the hop was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes from edges to the hub.
    pub up: u64,
    /// Bytes from the hub to edges.
    pub down: u64,
    /// Connections that came.
    pub connections: u64,
}

/// A hop that runs, in a thread of its own. Dropped, it ends with all its connections.
pub struct Proxy {
    address: SocketAddr,
    hop: Arc<Hop>,
    runtime: Option<Runtime>,
}

/// What the tasks of a hop share.
struct Hop {
    target: SocketAddr,
    conditions: watch::Sender<Conditions>,
    /// How often it was cut.
    cuts: watch::Sender<u64>,
    up: AtomicU64,
    down: AtomicU64,
    arrivals: Mutex<Vec<SystemInstant>>,
}

impl Proxy {
    /// A hop before `target`, at any free port of loopback.
    ///
    /// # Panics
    /// When the system gives no port or no thread.
    pub fn start(target: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let address = listener.local_addr().expect("the address of our own listener");
        let hop = Arc::new(Hop {
            target,
            conditions: watch::Sender::default(),
            cuts: watch::Sender::default(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            arrivals: Mutex::default(),
        });
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener).expect("a listener");
        drop(entered);
        runtime.spawn(accept(listener, hop.clone()));
        Self { address, hop, runtime: Some(runtime) }
    }

    /// Where edges connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the hop is from now on.
    pub fn set(&self, conditions: Conditions) {
        self.hop.conditions.send_replace(conditions);
    }

    /// Breaks every connection that there is.
    pub fn cut(&self) {
        self.hop.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// What has passed so far: counted when it is taken up, before any delay.
    pub fn traffic(&self) -> Traffic {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Hop { up, down, .. } = &*self.hop;
        Traffic { up: of(up), down: of(down), connections: self.arrivals().len() as u64 }
    }

    /// When each connection came.
    pub fn arrivals(&self) -> Vec<SystemInstant> {
        self.hop.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Traffic {
    /// What has passed since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            up: self.up - before.up,
            down: self.down - before.down,
            connections: self.connections - before.connections,
        }
    }
}

async fn accept(listener: TcpListener, hop: Arc<Hop>) {
    while let Ok((edge, _)) = listener.accept().await {
        hop.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(SystemInstant::now());
        if !hop.conditions.borrow().closed {
            tokio::spawn(carry(edge, hop.clone()));
        }
    }
}

/// Carries one connection to its end; where the target cannot be had, the edge's is closed.
async fn carry(edge: TcpStream, hop: Arc<Hop>) {
    let mut cuts = hop.cuts.subscribe();
    let whole = async {
        hop.until(|conditions| !conditions.black_hole).await;
        let Ok(hub) = connect(&hop).await else { return };
        let _ = (edge.set_nodelay(true), hub.set_nodelay(true));
        let (from_edge, to_edge) = edge.into_split();
        let (from_hub, to_hub) = hub.into_split();
        tokio::join!(
            pass(&hop, from_edge, to_hub, &hop.up, |_| None),
            pass(&hop, from_hub, to_edge, &hop.down, |conditions| conditions.reads_per_second),
        );
    };
    tokio::select! {
        () = whole => {}
        _ = cuts.changed() => {}
    }
}

async fn connect(hop: &Hop) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if hop.conditions.borrow().reads_per_second.is_some() {
        socket.set_recv_buffer_size(SLOW_BUFFER_BYTES)?;
    }
    socket.connect(hop.target).await
}

/// Passes one direction on until it ends, in order, each byte after its delay.
async fn pass(
    hop: &Hop,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    counter: &AtomicU64,
    rate: impl Fn(&Conditions) -> Option<u32>,
) {
    let (taken, mut due) = mpsc::channel::<(Instant, Bytes)>(ON_THE_WAY);
    let take = async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let conditions = hop.until(|conditions| !conditions.black_hole).await;
            let most = rate(&conditions).map_or(CHUNK_BYTES, |rate| rate.max(1) as usize);
            let read = tokio::select! {
                biased;
                // The new conditions apply to the bytes that follow.
                _ = hop.until(|now| *now != conditions) => continue,
                read = from.read(&mut chunk[..most.min(CHUNK_BYTES)]) => read.unwrap_or(0),
            };
            counter.fetch_add(read as u64, Ordering::Relaxed);
            let bytes = Bytes::copy_from_slice(&chunk[..read]);
            if read == 0 || taken.send((Instant::now() + conditions.delay, bytes)).await.is_err() {
                return;
            }
            if let Some(rate) = rate(&conditions) {
                let pause = Duration::from_secs(read as u64) / rate.max(1);
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = hop.until(|now| *now != conditions) => {}
                }
            }
        }
    };
    let give = async move {
        while let Some((at, bytes)) = due.recv().await {
            sleep_until(at).await;
            hop.until(|conditions| !conditions.black_hole).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // The end of one direction; the other may go on.
        let _ = to.shutdown().await;
    };
    tokio::join!(take, give);
}

impl Hop {
    /// Returns when the conditions are so, with how they then are.
    async fn until(&self, are: impl Fn(&Conditions) -> bool) -> Conditions {
        let mut conditions = self.conditions.subscribe();
        let found = conditions.wait_for(|conditions| are(conditions)).await.map(|found| *found);
        match found {
            Ok(found) => found,
            Err(_) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    /// Gives back what it is sent.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut back = stream.try_clone().expect("the same connection");
                thread::spawn(move || std::io::copy(&mut stream, &mut back));
            }
        });
        address
    }

    fn exchange(stream: &mut TcpStream, words: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.write_all(words)?;
        let mut back = vec![0; words.len()];
        stream.read_exact(&mut back).map(|()| back)
    }

    #[test]
    fn it_counts_both_ways_and_keeps_the_order() {
        let proxy = Proxy::start(echo());
        let mut stream = TcpStream::connect(proxy.address()).expect("it listens");
        let words: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut reader = stream.try_clone().expect("the same connection");
        let wanted = words.len();
        let back = thread::spawn(move || {
            let mut back = vec![0; wanted];
            reader.read_exact(&mut back).map(|()| back)
        });
        stream.write_all(&words).expect("it takes them");
        assert!(back.join().expect("it reads").expect("all come back") == words);
        let bytes = words.len() as u64;
        assert_eq!(proxy.traffic(), Traffic { up: bytes, down: bytes, connections: 1 });
    }

    #[test]
    fn a_round_trip_takes_both_delays() {
        let proxy = Proxy::start(echo());
        let delay = Duration::from_millis(150);
        proxy.set(Conditions { delay, ..Conditions::default() });
        let mut stream = TcpStream::connect(proxy.address()).expect("it listens");
        let began = std::time::Instant::now();
        assert_eq!(exchange(&mut stream, b"far").expect("it comes back"), b"far");
        assert!(began.elapsed() >= delay * 2, "{:?}", began.elapsed());
    }

    #[test]
    fn in_a_black_hole_nothing_is_lost_and_a_cut_ends_it() {
        let proxy = Proxy::start(echo());
        let mut stream = TcpStream::connect(proxy.address()).expect("it listens");
        assert_eq!(exchange(&mut stream, b"near").expect("it comes back"), b"near");
        let before = proxy.traffic();
        proxy.set(Conditions { black_hole: true, ..Conditions::default() });
        stream.write_all(b"deep").expect("the kernel takes it");
        let patience = Some(Duration::from_millis(200));
        stream.set_read_timeout(patience).expect("a deadline");
        assert!(stream.read(&mut [0]).is_err(), "nothing comes");
        assert_eq!(proxy.traffic(), before, "and nothing passed");
        proxy.set(Conditions::default());
        stream.set_read_timeout(None).expect("no deadline");
        let mut back = [0; 4];
        stream.read_exact(&mut back).expect("it was only late");
        assert_eq!(&back, b"deep");
        proxy.cut();
        assert!(matches!(stream.read(&mut back), Ok(0) | Err(_)), "it is cut");
        proxy.set(Conditions { closed: true, ..Conditions::default() });
        let mut refused = TcpStream::connect(proxy.address()).expect("the port is there");
        assert!(exchange(&mut refused, b"hello").is_err(), "nobody is behind it");
    }

    #[test]
    fn a_slow_reader_takes_so_many_bytes_a_second_and_holds_the_other_end_back() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let proxy = Proxy::start(listener.local_addr().expect("an address"));
        let slow = Conditions { reads_per_second: Some(1), ..Conditions::default() };
        proxy.set(slow);
        let _reader = TcpStream::connect(proxy.address()).expect("it listens");
        let (mut writer, _) = listener.accept().expect("it is passed on");
        writer.set_nonblocking(true).expect("a socket that does not block");
        let chunk = [0; 64 << 10];
        let full = (0..1024).find_map(|_| writer.write(&chunk).err());
        let full = full.expect("what nobody reads is held back within 64 MiB");
        assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
        assert!(proxy.traffic().down < 10, "{:?}", proxy.traffic());
    }
}
