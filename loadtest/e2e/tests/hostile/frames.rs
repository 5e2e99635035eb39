//! Bytes that are no HTTP/2, frames out of order, floods, lengths that lie, compressed bombs: at
//! the hub's port, at a node's local API, at the operator's socket.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::Bench;

/// How long an answer is waited for: not to answer is allowed, to hang on is not our concern here.
const ANSWER_WITHIN: Duration = Duration::from_millis(150);

/// Connections to the hub that begin in some way and then say nothing.
const BEGINNINGS: usize = 3;

/// Until when a connection without a hello must be closed by the hub: far more than it takes.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[test]
fn bytes_and_frames_of_any_kind_leave_everything_going_on() {
    let bench = Bench::new();
    let attacks = attacks();
    // Each listener has an attacker of its own, all at once.
    thread::scope(|scope| {
        for address in bench.listens() {
            let attacks = &attacks;
            scope.spawn(move || {
                for (what, bytes) in attacks {
                    let stream = TcpStream::connect(address);
                    let stream = stream.unwrap_or_else(|e| panic!("{address} after {what}: {e}"));
                    let _ = stream.set_read_timeout(Some(ANSWER_WITHIN));
                    let _ = stream.set_write_timeout(Some(ANSWER_WITHIN));
                    throw(&stream, bytes);
                    let _ = stream.shutdown(Shutdown::Both);
                }
            });
        }
        for socket in bench.sockets() {
            let attacks = &attacks;
            scope.spawn(move || {
                for (what, bytes) in attacks {
                    let stream = UnixStream::connect(&socket);
                    let stream = stream.unwrap_or_else(|e| panic!("{socket:?} after {what}: {e}"));
                    let _ = stream.set_read_timeout(Some(ANSWER_WITHIN));
                    let _ = stream.set_write_timeout(Some(ANSWER_WITHIN));
                    throw(&stream, bytes);
                }
            });
        }
    });
    bench.goes_on("all of these bytes");
}

#[test]
fn a_peer_that_sends_nothing_or_reads_nothing_is_disconnected() {
    let bench = Bench::new();
    let mut silent: Vec<TcpStream> = Vec::new();
    for address in bench.listens() {
        for beginning in
            [&b""[..], &PREFACE[..10], &[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()]
        {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(beginning).expect("it takes a few bytes");
            silent.push(stream);
        }
    }
    bench.goes_on("silent connections");
    let deadline = Instant::now() + CLOSED_WITHIN;
    // Others than the hub may listen, and may be more patient.
    while silent.iter().filter(|stream| is_closed(stream)).count() < BEGINNINGS {
        assert!(Instant::now() < deadline, "connections without a hello are kept");
    }
}

/// Whether the other side has closed it, as far as can be seen in a moment.
fn is_closed(mut stream: &TcpStream) -> bool {
    let _ = stream.set_read_timeout(Some(ANSWER_WITHIN));
    let mut buffer = [0; 1024];
    match stream.read(&mut buffer) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// Writes all that is taken, and reads what is answered at once.
fn throw(mut stream: impl Read + Write, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let mut buffer = [0; 4096];
    for _ in 0..4 {
        if !matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
            return;
        }
    }
}

fn attacks() -> Vec<(&'static str, Vec<u8>)> {
    let settings = frame(SETTINGS, 0, 0, &[]);
    let after = |frames: &[Vec<u8>]| [PREFACE, &settings, &frames.concat()].concat();
    let open = |stream| frame(HEADERS, END_HEADERS, stream, &session_headers(&[]));
    let many = |count: u32, one: &dyn Fn(u32) -> Vec<u8>| (0..count).map(one).collect::<Vec<_>>();
    let body_frame = |body: &[u8]| after(&[open(1), frame(DATA, END_STREAM, 1, body)]);
    let zstd_headers = session_headers(&[("grpc-encoding", "zstd")]);
    let mut noise = 1_u64;
    let noise: Vec<u8> = (0..65_536)
        .map(|_| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.to_be_bytes()[0]
        })
        .collect();
    vec![
        ("nothing", Vec::new()),
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("noise", noise.clone()),
        ("a preface with a slip", PREFACE.iter().map(|byte| byte ^ 1).collect()),
        ("half a preface", PREFACE[..12].to_vec()),
        ("noise behind the preface", [PREFACE, &noise].concat()),
        ("half a frame", [PREFACE, &settings[..5]].concat()),
        ("settings of a wrong length", [PREFACE, &frame(SETTINGS, 0, 0, b"12345")].concat()),
        ("a frame of 16 MiB", [PREFACE, &[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]].concat()),
        ("data on no stream", after(&[frame(DATA, 0, 0, b"x")])),
        ("data on a stream that is not open", after(&[frame(DATA, 0, 7, b"x")])),
        ("headers on an even stream", after(&[open(2)])),
        ("a stream that goes back", after(&[open(9), open(1)])),
        ("a continuation of nothing", after(&[frame(CONTINUATION, END_HEADERS, 1, b"")])),
        ("a push promise", after(&[frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])])),
        ("a window that overflows", after(&[frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])])),
        ("a window of nothing", after(&[frame(WINDOW_UPDATE, 0, 0, &[0; 4])])),
        ("headers that do not decode", after(&[frame(HEADERS, END_HEADERS, 1, &noise[..200])])),
        (
            "a giant header",
            after(&many(40, &|n| {
                let kind = if n == 0 { HEADERS } else { CONTINUATION };
                let value = "x".repeat(16_000);
                frame(kind, 0, 1, &header(&format!("x-{n}"), &value))
            })),
        ),
        ("2000 streams", after(&many(2_000, &|n| open(2 * n + 1)))),
        (
            "2000 streams, reset at once",
            after(&many(2_000, &|n| {
                [open(2 * n + 1), frame(RESET, 0, 2 * n + 1, &[0, 0, 0, 8])].concat()
            })),
        ),
        ("5000 pings", after(&many(5_000, &|_| frame(PING, 0, 0, &[0; 8])))),
        ("5000 settings", after(&many(5_000, &|_| settings.clone()))),
        ("a length of 4 GiB", body_frame(&prefixed(0, u32::MAX, b"x"))),
        ("a length beyond what comes", body_frame(&prefixed(0, 100, b"x"))),
        ("a length of nothing", body_frame(&prefixed(0, 0, b""))),
        ("a flag that is none", body_frame(&prefixed(7, 1, b"x"))),
        ("compressed without a named codec", body_frame(&prefixed(1, 1, b"x"))),
        ("no message", body_frame(&prefixed(0, 200, &noise[..200]))),
        (
            "a zstd bomb",
            after(&[
                frame(HEADERS, END_HEADERS, 1, &zstd_headers),
                frame(DATA, END_STREAM, 1, &bomb()),
            ]),
        ),
        (
            "a path that is none",
            after(&[frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers("/x/y", &[]))]),
        ),
        ("a goodbye before a word", after(&[frame(7, 0, 0, &[0; 8])])),
    ]
}

/// 64 MiB of zeros in a few KiB: one zstd frame of blocks that repeat a byte.
fn bomb() -> Vec<u8> {
    // Magic; a descriptor without content size; a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    let (blocks, block_bytes) = (512_u32, 128_u32 << 10);
    for block in 1..=blocks {
        let is_last = u32::from(block == blocks);
        // Kind 1: one byte, repeated.
        let head = is_last | 1 << 1 | block_bytes << 3;
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(0);
    }
    let length = u32::try_from(frame.len()).expect("a few KiB");
    prefixed(1, length, &frame)
}

fn prefixed(compressed: u8, length: u32, bytes: &[u8]) -> Vec<u8> {
    [&[compressed][..], &length.to_be_bytes(), bytes].concat()
}

fn session_headers(more: &[(&str, &str)]) -> Vec<u8> {
    headers("/headwater.replication.v1.Replication/Session", more)
}

fn headers(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fixed = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "hub"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    fixed.iter().chain(more).flat_map(|(name, value)| header(name, value)).collect()
}

/// A header in HPACK's plainest form: a literal that is not indexed.
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        length(text.len(), &mut bytes);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// A length in HPACK's form: seven bits, then the rest in sevens.
fn length(length: usize, into: &mut Vec<u8>) {
    const PREFIX_MAX: usize = 127;
    if length < PREFIX_MAX {
        into.push(u8::try_from(length).expect("seven bits"));
        return;
    }
    into.push(127);
    let mut rest = length - PREFIX_MAX;
    while rest >= 128 {
        into.push(u8::try_from(rest % 128).expect("seven bits") | 128);
        rest /= 128;
    }
    into.push(u8::try_from(rest).expect("seven bits"));
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}
