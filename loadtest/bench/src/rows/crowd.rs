//! Rows 5, 6 and 16: what a hub needs for edges that are idle, for what it delivers, and for
//! those that do not listen.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use headwater_e2e::proxy::{Conditions, Proxy};
use headwater_loadtest::kernel::processor_time;

use crate::bound::Bound;
use crate::crowd::{Crowd, Taken};
use crate::failure::{Attempt, Failure};
use crate::figure::{Figure, RowResult};
use crate::kafka::runtime;
use crate::limit::h2::BareServer;
use crate::link::wait;
use crate::pace::Pace;
use crate::process::{memory_at_rest, memory_at_rest_of};
use crate::row::Run;
use crate::samples::Samples;
use crate::thread_time::ThreadTime;

const OBJECT_BYTES: usize = 2 << 10;

/// A pace at which hardly two messages of one edge meet.
const STEADY_PER_SECOND: u32 = 2_000;

/// More than anybody takes.
const BURST_PER_SECOND: u32 = 1_000_000;

/// Row 5: memory and time of a hub for each edge that is idle.
///
/// # Errors
/// When the edges do not connect.
pub(crate) fn idle(run: &mut Run) -> Result<RowResult, Failure> {
    let step: u64 = run.pick(500, 2_000);
    let steps: u64 = run.pick(2, 4);
    let first = 200;
    let watched = run.pick(Duration::from_secs(30), Duration::from_secs(120));
    let mut crowd = Crowd::start(first + steps * step, OBJECT_BYTES)?;
    crowd.connect(0..first, None)?;
    let mut before = memory_at_rest(crowd.fleet.part("hub"))?;
    let mut slope = Samples::default();
    for index in 0..steps {
        let from = first + index * step;
        crowd.connect(from..from + step, None)?;
        let now = memory_at_rest(crowd.fleet.part("hub"))?;
        slope.push((now - before) / step as f64 / 1024.0);
        before = now;
    }
    let hub = crowd.fleet.part("hub").process_id().tried("the hub runs")?;
    let processor = processor_time(hub).tried("the hub runs")?;
    thread::sleep(watched);
    let processor = processor_time(hub).tried("the hub runs")?.saturating_sub(processor);
    let edges = crowd.nodes as f64;
    let us = processor.as_secs_f64() * 1e6 / watched.as_secs_f64() / edges;

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
fn bare_slope(first: u64, steps: u64, step: u64) -> Result<Samples, Failure> {
    let server = BareServer::start()?;
    let of_clients = runtime("clients", 2)?;
    let mut held = of_clients.block_on(server.connect(first))?;
    let mut before = memory_at_rest_of(server.process_id())?;
    let mut slope = Samples::default();
    for _ in 0..steps {
        held.extend(of_clients.block_on(server.connect(step))?);
        let now = memory_at_rest_of(server.process_id())?;
        slope.push((now - before) / step as f64 / 1024.0);
        before = now;
    }
    Ok(slope)
}

/// Row 6: a hub's time on a processor for each event that it delivers.
///
/// # Errors
/// When something is not delivered.
pub(crate) fn delivery(run: &mut Run) -> Result<RowResult, Failure> {
    let nodes = 100;
    let count: u64 = run.pick(6_000, 120_000);
    let rounds = run.pick(5, 9);
    let mut crowd = Crowd::start(nodes, OBJECT_BYTES)?;
    crowd.connect(0..nodes, None)?;
    let sides = [Some(STEADY_PER_SECOND), Some(BURST_PER_SECOND), None];
    let taken = run.turns.take(rounds, sides, |pace| {
        let Some(per_second) = pace else { return bare_writer(nodes, count) };
        let taken = crowd.drive(Pace::new(per_second, count, 0), nodes)?;
        Ok(taken.processor.as_secs_f64() * 1e6 / count as f64)
    })?;
    let of = |side: usize| taken.iter().map(|round| round[side]).collect::<Samples>();
    let mut measured = RowResult::default();
    let (steady, burst, bare) = (of(0), of(1), of(2));
    for (ours, how) in [(burst, "in a burst"), (steady, "one by one")] {
        let what = format!("node-scoped, {how}: us of the hub a message");
        let figure = Figure::ratio(&what, ours.clone(), "a bare TCP writer", bare.clone());
        measured.push(figure.judged_by(ours).held_to(Bound::at_most(10.0, 4.0)));
    }
    broadcast(run, &mut crowd, &mut measured)?;
    measured.set("edges", format!("{nodes}, light"));
    measured.set("messages", format!("{count} of {OBJECT_BYTES} bytes"));
    measured.set("one by one", format!("{STEADY_PER_SECOND} a second: each is a wake of its own"));
    measured.set("in a burst", "all at once: as fast as the controller appends them");
    measured
        .set("counted", "all of the hub's process: reading Kafka, folding into RocksDB, sending");
    Ok(measured)
}

/// What a further edge costs that gets what others get too.
fn broadcast(run: &Run, crowd: &mut Crowd, measured: &mut RowResult) -> Result<(), Failure> {
    let count: u64 = run.pick(300, 3_000);
    let hub = crowd.fleet.part("hub").process_id().tried("the hub runs")?;
    let (before, processor) = (crowd.shown(), processor_time(hub).tried("the hub runs")?);
    let pace = Pace::new(100, count, 0);
    pace.drive(|turn| crowd.broadcast(turn))?;
    let wanted = before + count * crowd.nodes * 9 / 10;
    // What is overtaken is not shown: most is.
    wait("the broadcast is seen", || (crowd.shown() >= wanted).then_some(()))?;
    let processor = processor_time(hub).tried("the hub runs")?.saturating_sub(processor);
    let delivered = (crowd.shown() - before) as f64;
    let us = processor.as_secs_f64() * 1e6 / delivered;
    measured.push(Figure::alone("broadcast: us of the hub a message and edge", us.into()));
    Ok(())
}

/// Microseconds of a thread that writes as many bytes to as many sockets, one message a write.
fn bare_writer(sockets: u64, count: u64) -> Result<f64, Failure> {
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
        let index = usize::try_from(turn % sockets).unwrap_or_default();
        writers[index].write_all(&message).tried("writing to a socket")?;
    }
    let taken = me.taken().saturating_sub(before);
    drop(writers);
    for reader in readers {
        // It ends with its socket, whatever it read.
        let _ = reader.join();
    }
    Ok(taken.as_secs_f64() * 1e6 / count as f64)
}

/// Row 16: what edges that do not listen do to the others.
///
/// # Errors
/// When something is not seen by those that do listen.
pub(crate) fn isolation(run: &mut Run) -> Result<RowResult, Failure> {
    let (nodes, per_second) = (100, 500);
    let count: u64 = run.pick(2_000, 100_000);
    let rounds = run.pick(5, 9);
    let mut crowd = Crowd::start(nodes, OBJECT_BYTES)?;
    let hub = crowd.hub_address()?;
    let listening = nodes - 2;
    let (hole, slow) = (Proxy::start(hub), Proxy::start(hub));
    // One that is slow from its first byte holds no more than the kernel must.
    slow.set(Conditions { reads_per_second: Some(64 << 10), ..Conditions::default() });
    crowd.connect(0..listening, None)?;
    crowd.connect([listening], Some(hole.address()))?;
    crowd.connect([listening + 1], Some(slow.address()))?;
    let before = memory_at_rest(crowd.fleet.part("hub"))?;
    let taken = run.turns.take(rounds, [true, false], |is_broken| {
        hole.set(Conditions { black_hole: is_broken, ..Conditions::default() });
        let rate = is_broken.then_some(1);
        slow.set(Conditions { reads_per_second: rate, ..Conditions::default() });
        crowd.drive(Pace::new(per_second, count, per_second.into()), listening)
    })?;
    let after = memory_at_rest(crowd.fleet.part("hub"))?;
    let of = |side: usize, what: fn(&Taken) -> f64| -> Samples {
        taken.iter().map(|round| what(&round[side])).collect()
    };
    let p99 = |taken: &Taken| taken.latency.ms(0.99);
    let p50 = |taken: &Taken| taken.latency.ms(0.5);
    let limit = "the same without them";
    let mut measured = RowResult::default();
    measured.push(
        Figure::ratio("others: ms, p99", of(0, p99), limit, of(1, p99))
            .held_to(Bound::at_most(1.5, 1.1))
            .latency(),
    );
    measured.push(Figure::ratio("others: ms, p50", of(0, p50), limit, of(1, p50)).latency());
    let lag = |taken: &Taken| taken.lag.ms(0.99);
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
