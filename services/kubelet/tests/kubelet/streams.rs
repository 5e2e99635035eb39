//! Streams: bytes both ways, ends, idleness.

use std::time::Duration;

use headwater_kubelet::{Door, KubeletLimits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::bench::{Bench, UPGRADE, WITHIN};

/// What goes each way.
const BULK_BYTES: usize = 100 << 20;

/// The time limit of that.
const BULK_WITHIN: Duration = Duration::from_secs(300);

/// The bytes of one write.
const WRITE_BYTES: usize = 64 << 10;

fn byte(at: usize) -> u8 {
    u8::try_from((at / 7 + at / 255) % 256).expect("a byte")
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_go_both_ways_and_the_end_of_one_way_leaves_the_other() {
    let bench = Bench::start(KubeletLimits::default(), Door::Loopback).await;
    let (mut from, mut to) = bench.stream().await.into_split();
    let sending = tokio::spawn(async move {
        for start in (0..BULK_BYTES).step_by(WRITE_BYTES) {
            let bytes: Vec<u8> = (start..start + WRITE_BYTES).map(byte).collect();
            to.write_all(&bytes).await.expect("sent");
        }
        to.shutdown().await.expect("half closed");
        // Dropped later, it would be closed whole.
        to
    });
    let mut received = Vec::with_capacity(BULK_BYTES);
    let receiving = timeout(BULK_WITHIN, from.read_to_end(&mut received));
    receiving.await.expect("in time").expect("whole");
    assert_eq!(received.len(), BULK_BYTES + "the end".len());
    assert!(received.ends_with(b"the end"), "the server did not learn of the end");
    received.truncate(BULK_BYTES);
    assert!(received.iter().enumerate().all(|(at, one)| *one == byte(at)));
    drop(sending.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_and_one_that_ends_leaves_its_place() {
    let limits = KubeletLimits { streams: 3, ..KubeletLimits::default() };
    let bench = Bench::start(limits, Door::Loopback).await;
    let mut streams = vec![bench.stream().await, bench.stream().await, bench.stream().await];
    let closing = UPGRADE.replace("POST", "GET").replace("content-length: 0\r\n", "");
    let mut refused = bench.connect().await;
    refused.write_all(closing.as_bytes()).await.expect("sent");
    let words = timeout(WITHIN, crate::bench::head(&mut refused)).await.expect("in time");
    assert!(words.starts_with("HTTP/1.1 429") && words.contains("retry-after: 5"), "{words}");
    let metrics = bench.get("/metrics").await;
    assert!(metrics.contains("kubelet_running_containers{container_state=\"running\"} 1"));
    streams.pop();
    let again = async {
        loop {
            let mut stream = bench.connect().await;
            stream.write_all(UPGRADE.as_bytes()).await.expect("sent");
            if crate::bench::head(&mut stream).await.starts_with("HTTP/1.1 101") {
                break;
            }
        }
    };
    timeout(WITHIN, again).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_on_which_nothing_moves_ends() {
    let mut stream_idle = Duration::from_millis(100);
    loop {
        let limits = KubeletLimits { stream_idle, ..KubeletLimits::default() };
        let bench = Bench::start(limits, Door::Loopback).await;
        let mut stream = bench.stream().await;
        let sent = stream.write_all(b"x").await;
        let mut all = Vec::new();
        let ended = timeout(WITHIN, stream.read_to_end(&mut all)).await.expect("it ends");
        if sent.is_ok() && ended.is_ok() && all.starts_with(b"x") {
            break;
        }
        // On a busy machine the time is over before the byte has come back.
        stream_idle *= 2;
        assert!(stream_idle < WITHIN / 2, "{sent:?} {ended:?} {all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_another_machine_is_not_dialled_and_a_missing_verb_is_501() {
    let bench = Bench::start(KubeletLimits::default(), Door::Loopback).await;
    let attach = UPGRADE.replace("/exec/", "/attach/").replace("Upgrade\r\n", "Upgrade, close\r\n");
    let answer = bench.send(attach.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains("192.0.2.1"), "{answer}");
    let forward = attach.replace("/attach/shop/web/main", "/portForward/shop/web");
    let answer = bench.send(forward.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
}
