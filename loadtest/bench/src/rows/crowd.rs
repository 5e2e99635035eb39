//! Rows 5, 6 and 16: what a hub needs for edges that are idle, for what it delivers, and for
//! those that do not listen.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use headwater_e2e::proxy::Conditions;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::kernel::processor_time;
use headwater_loadtest::object::{Kind, ObjectSpec};
use headwater_loadtest::scenario::EdgeKind;
use headwater_loadtest::schedule::{at_once, at_rate};

use crate::bound::Bound;
use crate::cluster::{Cluster, Nodes, Taken};
use crate::figure::{Figure, RowResult};
use crate::kafka::runtime;
use crate::limit::h2::BareServer;
use crate::pods::{content, pods};
use crate::process::memory_at_rest;
use crate::run::Run;
use crate::samples::Samples;
use crate::thread_time::ThreadTime;

const OBJECT_BYTES: usize = 2 << 10;

/// A pace at which hardly two messages of one edge meet.
const STEADY_PER_SECOND: u32 = 2_000;

/// The process that is measured.
const HUB: &str = "hub";

/// Light edges, with a pod each.
fn light(count: usize) -> Nodes {
    Nodes { count, kind: EdgeKind::Light, behind_hops: 0, unmeasured: 0 }
}

/// Row 5: memory and time of a hub for each edge that is idle.
///
/// # Errors
/// When the edges do not connect.
pub(crate) fn idle(run: &mut Run) -> Result<RowResult, Failure> {
    let step: usize = run.pick(500, 2_000);
    let steps: usize = run.pick(2, 4);
    let first = 200;
    let watched = run.pick(Duration::from_secs(30), Duration::from_secs(120));
    let nodes = first + steps * step;
    let mut crowd = Cluster::start(light(nodes), pods(nodes, 1, OBJECT_BYTES))?;
    let hub = crowd.process(HUB)?;
    crowd.set_up(0..nodes as u32)?;
    crowd.connect(first)?;
    let mut before = memory_at_rest(hub)?;
    let mut slope = Samples::default();
    for _ in 0..steps {
        crowd.connect(step)?;
        let now = memory_at_rest(hub)?;
        slope.push((now - before) / step as f64 / 1024.0);
        before = now;
    }
    let processor = processor_time(hub).tried("the hub runs")?;
    thread::sleep(watched);
    let processor = processor_time(hub).tried("the hub runs")?.saturating_sub(processor);
    let us = processor.as_secs_f64() * 1e6 / watched.as_secs_f64() / nodes as f64;
    crowd.end()?;

    let mut measured = RowResult::default();
    let bare = bare_slope(first, steps, step)?;
    let what = "KiB of the hub's memory an idle edge";
    let figure = Figure::ratio(what, slope.clone(), "a bare HTTP/2 stream", bare);
    measured.push(figure.judged_by(slope).held_to(Bound::at_most(32.0, 16.0)));
    measured.push(Figure::alone("us of the hub an idle edge and second", us.into()));
    measured.push(Figure::alone("MB of the hub in all", (before / 1e6).into()));
    measured
        .set("edges", format!("{first}, then {step} more {steps} times; light, in one process"));
    measured.set("memory", "PSS from smaps_rollup at rest: the slope, not the sum");
    measured.set("keepalive", "the hub's defaults: a heartbeat each 10 s");
    Ok(measured)
}

/// The same of a server that does nothing, in KiB a stream.
fn bare_slope(first: usize, steps: usize, step: usize) -> Result<Samples, Failure> {
    let server = BareServer::start()?;
    let of_clients = runtime("clients", 2)?;
    let mut held = of_clients.block_on(server.connect(first))?;
    let mut before = memory_at_rest(server.process_id())?;
    let mut slope = Samples::default();
    for _ in 0..steps {
        held.extend(of_clients.block_on(server.connect(step))?);
        let now = memory_at_rest(server.process_id())?;
        slope.push((now - before) / step as f64 / 1024.0);
        before = now;
    }
    Ok(slope)
}

/// How messages come.
#[derive(Clone, Copy)]
enum Side {
    Steady,
    Burst,
    Bare,
}

/// Row 6: a hub's time on a processor for each event that it delivers.
///
/// # Errors
/// When something is not delivered.
pub(crate) fn delivery(run: &mut Run) -> Result<RowResult, Failure> {
    let nodes: u32 = 100;
    let count: u32 = run.pick(6_000, 120_000);
    let rounds = run.pick(5, 9);
    let mut objects = pods(nodes as usize, 1, OBJECT_BYTES);
    let shop = "shop".to_owned();
    objects.push(ObjectSpec::new(nodes, Kind::Service, shop, None, content(OBJECT_BYTES)));
    let mut crowd = Cluster::start(light(nodes as usize), objects)?;
    crowd.connect(nodes as usize)?;
    crowd.set_up(0..nodes + 1)?;
    let each = |taken: &Taken, count: f64| {
        let hub = taken.processor.get(HUB).copied().unwrap_or_default();
        hub.as_secs_f64() * 1e6 / count
    };
    let sides = [Side::Steady, Side::Burst, Side::Bare];
    let taken = run.turns.take(rounds, sides, |side| {
        let pods = (0..count).map(|turn| turn % nodes);
        let turns = match side {
            Side::Steady => at_rate(STEADY_PER_SECOND, pods),
            Side::Burst => at_once(pods, false),
            Side::Bare => return bare_writer(nodes, count),
        };
        Ok(each(&crowd.load(turns, Duration::ZERO)?, count.into()))
    })?;
    let broadcasts: u32 = run.pick(300, 3_000);
    let shop = (0..broadcasts).map(|_| nodes);
    // What is overtaken is not shown: most is.
    let broadcast = crowd.load(at_rate(100, shop), Duration::ZERO)?;
    crowd.end()?;
    let of = |side: usize| taken.iter().map(|round| round[side]).collect::<Samples>();
    let mut measured = RowResult::default();
    let (steady, burst, bare) = (of(0), of(1), of(2));
    for (ours, how) in [(burst, "in a burst"), (steady, "one by one")] {
        let what = format!("node-scoped, {how}: us of the hub a message");
        let figure = Figure::ratio(&what, ours.clone(), "a bare TCP writer", bare.clone());
        measured.push(figure.judged_by(ours).held_to(Bound::at_most(10.0, 4.0)));
    }
    let us = each(&broadcast, broadcast.delivered as f64);
    measured.push(Figure::alone("broadcast: us of the hub a message and edge", us.into()));
    measured.set("edges", format!("{nodes}, light"));
    measured.set("messages", format!("{count} of {OBJECT_BYTES} bytes"));
    measured.set("one by one", format!("{STEADY_PER_SECOND} a second: each is a wake of its own"));
    measured.set("in a burst", "all at once: as fast as the controller appends them");
    measured
        .set("counted", "all of the hub's process: reading Kafka, folding into RocksDB, sending");
    Ok(measured)
}

/// Microseconds of a thread that writes as many bytes to as many sockets, one message a write.
fn bare_writer(sockets: u32, count: u32) -> Result<f64, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").tried("finding a free port")?;
    let address = listener.local_addr().tried("finding a free port")?;
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for _ in 0..sockets {
        let mut reader = TcpStream::connect(address).tried("connecting")?;
        readers.push(thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while reader.read(&mut buffer).is_ok_and(|read| read > 0) {}
        }));
        let (writer, _) = listener.accept().tried("accepting")?;
        writer.set_nodelay(true).tried("setting up a socket")?;
        writers.push(writer);
    }
    let message = vec![7; OBJECT_BYTES];
    let me = ThreadTime::current();
    let before = me.taken();
    for turn in 0..count {
        writers[(turn % sockets) as usize].write_all(&message).tried("writing to a socket")?;
    }
    let taken = me.taken().saturating_sub(before);
    drop(writers);
    for reader in readers {
        // It ends with its socket, whatever it read.
        let _ = reader.join();
    }
    Ok(taken.as_secs_f64() * 1e6 / f64::from(count))
}

/// Row 16: what edges that do not listen do to the others.
///
/// # Errors
/// When something is not seen by those that do listen.
pub(crate) fn isolation(run: &mut Run) -> Result<RowResult, Failure> {
    let (nodes, per_second): (u32, u32) = (100, 500);
    let count: u32 = run.pick(2_000, 100_000);
    let rounds = run.pick(5, 9);
    let edges = Nodes { behind_hops: 2, unmeasured: 2, ..light(nodes as usize) };
    let mut crowd = Cluster::start(edges, pods(nodes as usize, 1, OBJECT_BYTES))?;
    let hub = crowd.process(HUB)?;
    // One that is slow from its first byte holds no more than the kernel must.
    crowd.hop(1)?.set(Conditions { reads_per_second: Some(64 << 10), ..Conditions::default() });
    crowd.connect(nodes as usize)?;
    crowd.set_up(0..nodes)?;
    let before = memory_at_rest(hub)?;
    let turns = at_rate(per_second, (0..per_second + count).map(|turn| turn % nodes));
    let measured_from = turns[per_second as usize].at;
    let taken = run.turns.take(rounds, [true, false], |is_broken| {
        crowd.hop(0)?.set(Conditions { black_hole: is_broken, ..Conditions::default() });
        let reads_per_second = is_broken.then_some(1);
        crowd.hop(1)?.set(Conditions { reads_per_second, ..Conditions::default() });
        crowd.load(turns.clone(), measured_from)
    })?;
    let after = memory_at_rest(hub)?;
    for hop in [0, 1] {
        crowd.hop(hop)?.set(Conditions::default());
    }
    crowd.end()?;
    let of = |side: usize, what: fn(&Taken) -> f64| -> Samples {
        taken.iter().map(|round| what(&round[side])).collect()
    };
    let p99 = |taken: &Taken| taken.latency.p99_ms.unwrap_or(f64::NAN);
    let p50 = |taken: &Taken| taken.latency.p50_ms.unwrap_or(f64::NAN);
    let limit = "the same without them";
    let mut measured = RowResult::default();
    measured.push(
        Figure::ratio("others: ms, p99", of(0, p99), limit, of(1, p99))
            .held_to(Bound::at_most(1.5, 1.1))
            .latency(),
    );
    measured.push(Figure::ratio("others: ms, p50", of(0, p50), limit, of(1, p50)).latency());
    let lag = |taken: &Taken| taken.lag.judged_ms();
    let what = "the generator's own lag, ms, p99";
    measured.push(Figure::ratio(what, of(0, lag), limit, of(1, lag)));
    measured
        .push(Figure::alone("MB that the hub's memory grew by", ((after - before) / 1e6).into()));
    let delivered = |taken: &Taken| taken.delivered as f64;
    measured.push(Figure::alone("events shown with them", of(0, delivered)));
    measured
        .set("edges", format!("{nodes}, light; one in a black hole, one reads a byte a second"));
    measured.set("changes", format!("{count} a turn after {per_second}, {per_second} a second"));
    measured.set("object", format!("{OBJECT_BYTES} bytes"));
    Ok(measured)
}
