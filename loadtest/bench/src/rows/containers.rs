//! Row 21: pods as containers, beside raw calls of the container runtime.
//!
//! containerd, Kafka, controller, hub and edge are processes. The image is there, and the pods are in the network of
//! the host, as those were that KubeEdge and a kubelet were measured with.

use std::thread;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use headwater_loadtest::failure::Failure;

use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::gateway::Gateway;
use crate::limit::cri::{RawPod, SystemCalls};
use crate::pods::PODS_PER_NODE;
use crate::run::Run;
use crate::samples::Samples;

/// Pods that a raw client starts at once, as many as the pod worker.
const STARTS_AT_ONCE: usize = 5;

/// The pods of the machine that starts again.
const AFTER_POWER_CUT: u32 = 20;

/// From the last change to a gateway that is idle.
const REST: Duration = Duration::from_secs(10);

/// Measures it.
///
/// # Errors
/// When something is not seen at all.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let mut measured = RowResult::default();
    run.step("every part starts");
    let mut gateway = Gateway::start()?;
    run.step("one pod after the other");
    one_by_one(run, &mut gateway, &mut measured)?;
    run.step("pods at once");
    at_once(run, &mut gateway, &mut measured)?;
    run.step("idle");
    create_all(&mut gateway, PODS_PER_NODE)?;
    idle(run, &gateway, &mut measured)?;
    clear(&mut gateway, PODS_PER_NODE)?;
    run.step("the machine starts again, without a network");
    machine_start(&mut gateway, &mut measured)?;
    measured.set("pods", "one container of busybox in the network of the host; the image is there");
    measured.set("parts", "containerd, Kafka, controller, hub, edge: a process each; no TLS");
    measured.set(
        "floor",
        "a kubelet, or KubeEdge where a kubelet was not measured, on a machine like this",
    );
    Ok(measured)
}

/// A pod from the source to Ready in the picture, and its container killed until the picture shows it; by turns with
/// the same pod by raw calls.
fn one_by_one(
    run: &mut Run,
    gateway: &mut Gateway,
    measured: &mut RowResult,
) -> Result<(), Failure> {
    let rounds = run.pick(20, 200);
    let (mut ready, mut killed) = (Samples::default(), Samples::default());
    let mut raw = Samples::default();
    let mut number = 0;
    let taken = run.turns.take(rounds, [true, false], |is_ours| {
        number += 1;
        let name = format!("one-{number}");
        if is_ours { ours(gateway, &name) } else { Ok((one_raw(gateway, &name)?, 0.0)) }
    })?;
    for [(to_ready, to_status), (bare, _)] in taken {
        ready.push(to_ready);
        killed.push(to_status);
        raw.push(bare);
    }
    let limit = "raw calls of the runtime";
    let beyond = Samples::from(ready.median() - raw.median());
    let figure = Figure::excess("a pod, source to Ready: ms more, p50", ready.clone(), limit, raw);
    measured.push(figure.judged_by(beyond).held_to(Bound::at_most(130.0, 80.0)).latency());
    for (what, ms, floor, target) in [
        ("a pod, source to Ready: ms, max", ready.max(), 1_030.0, 350.0),
        ("a container killed, to its status: ms, p50", killed.median(), 473.0, 25.0),
        ("a container killed, to its status: ms, max", killed.max(), 1_000.0, 50.0),
    ] {
        let figure = Figure::alone(what, ms.into());
        measured.push(figure.held_to(Bound::at_most(floor, target)).latency());
    }
    gateway.picture.wait_empty()
}

/// Milliseconds from the source to Ready, and from the end of its container to the status.
fn ours(gateway: &mut Gateway, name: &str) -> Result<(f64, f64), Failure> {
    let began = Instant::now();
    gateway.create(name, "Never")?;
    let ready = gateway.picture.wait_for(name, |view| view.ready)?;
    let killed = gateway.kill_container()?;
    let failed = gateway.picture.wait_for(name, |view| view.failed)?;
    gateway.delete(name)?;
    gateway.picture.wait_empty()?;
    let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    Ok((ms(began, ready), ms(killed, failed)))
}

/// Milliseconds of the same pod by raw calls.
fn one_raw(gateway: &Gateway, name: &str) -> Result<f64, Failure> {
    let parent = gateway.containerd.cgroup_parent();
    gateway.runtime.block_on(async {
        let began = Instant::now();
        let pod = RawPod::start(&gateway.client, name, &parent, SystemCalls::All).await?;
        let taken = began.elapsed();
        pod.remove(&gateway.client).await?;
        Ok(taken.as_secs_f64() * 1e3)
    })
}

/// Seconds of `count` pods by raw calls.
fn raw_at_once(gateway: &Gateway, count: u32, calls: SystemCalls) -> Result<f64, Failure> {
    let (client, parent) = (&gateway.client, gateway.containerd.cgroup_parent());
    gateway.runtime.block_on(async {
        let began = Instant::now();
        let names: Vec<_> = (0..count).map(|number| format!("raw-{number}")).collect();
        let starts =
            futures::stream::iter(&names).map(|name| RawPod::start(client, name, &parent, calls));
        let pods: Vec<_> = starts.buffer_unordered(STARTS_AT_ONCE).try_collect().await?;
        let taken = began.elapsed();
        let removals = futures::stream::iter(pods).map(|pod| pod.remove(client));
        removals.buffer_unordered(STARTS_AT_ONCE).try_collect::<Vec<_>>().await?;
        Ok(taken.as_secs_f64())
    })
}

/// All pods of a node, given at once, by turns with the same number by raw calls.
fn at_once(run: &mut Run, gateway: &mut Gateway, measured: &mut RowResult) -> Result<(), Failure> {
    let rounds = run.pick(3, 7);
    let sides = [None, Some(SystemCalls::All), Some(SystemCalls::Filtered)];
    let taken = run.turns.take(rounds, sides, |side| {
        if let Some(calls) = side {
            return raw_at_once(gateway, PODS_PER_NODE, calls);
        }
        let s = create_all(gateway, PODS_PER_NODE)?;
        clear(gateway, PODS_PER_NODE)?;
        Ok(s)
    })?;
    let of = |side: usize| taken.iter().map(|round| round[side]).collect::<Samples>();
    let what = format!("{PODS_PER_NODE} pods at once, source to the last Ready: s");
    let limit = format!("raw calls, {STARTS_AT_ONCE} at once");
    let figure = Figure::ratio(&what, of(0), &limit, of(1));
    measured.push(figure.held_to(Bound::at_most(1.64, 1.1)).latency());
    // What of the excess is the runtime's work for what a kubelet asks for, too.
    let what = format!("{what}, filtered");
    let limit = format!("{limit}, sandboxes filtered as a kubelet's");
    measured.push(Figure::ratio(&what, of(0), &limit, of(2)).latency());
    Ok(())
}

/// Creates the pods, and returns the seconds until the picture shows the last one Ready.
fn create_all(gateway: &mut Gateway, count: u32) -> Result<f64, Failure> {
    let began = Instant::now();
    (0..count).try_for_each(|number| gateway.create(&all_name(number), "Always"))?;
    let mut last = began;
    for number in 0..count {
        last = last.max(gateway.picture.wait_for(&all_name(number), |view| view.ready)?);
    }
    Ok(last.saturating_duration_since(began).as_secs_f64())
}

fn clear(gateway: &mut Gateway, count: u32) -> Result<(), Failure> {
    (0..count).try_for_each(|number| gateway.delete(&all_name(number)))?;
    gateway.picture.wait_empty()
}

fn all_name(number: u32) -> String {
    format!("all-{number}")
}

fn idle(run: &Run, gateway: &Gateway, measured: &mut RowResult) -> Result<(), Failure> {
    thread::sleep(REST);
    let watched = run.pick(Duration::from_secs(30), Duration::from_secs(300));
    let before = gateway.edge_time()?;
    thread::sleep(watched);
    let busy = gateway.edge_time()?.saturating_sub(before);
    let percent = 100.0 * busy.as_secs_f64() / watched.as_secs_f64();
    let memory = gateway.edge_bytes()? / 1e6;
    let containers = format!("{PODS_PER_NODE} idle containers");
    for (what, value, floor, target) in [
        ("MB of memory, edge and pod worker", memory, 110.0, 30.0),
        ("% of a core, edge and pod worker", percent, 7.0, 1.0),
    ] {
        let figure = Figure::alone(&format!("{containers}: {what}"), value.into());
        measured.push(figure.held_to(Bound::at_most(floor, target)));
    }
    let (containerd, shims) = gateway.runtime_bytes();
    for (what, bytes) in [("containerd", containerd), ("its shims", shims)] {
        let what = format!("{containers}: MB of memory, {what}");
        measured.push(Figure::alone(&what, (bytes / 1e6).into()));
    }
    Ok(())
}

/// From a containerd that serves to pods that are Ready by the edge's own word.
fn machine_start(gateway: &mut Gateway, measured: &mut RowResult) -> Result<(), Failure> {
    let raw = raw_at_once(gateway, AFTER_POWER_CUT, SystemCalls::All)?;
    create_all(gateway, AFTER_POWER_CUT)?;
    let began = gateway.cut_power()?;
    let ready = gateway.wait_ready_again(AFTER_POWER_CUT as usize)?;
    let s = ready.saturating_duration_since(began).as_secs_f64();
    let what = format!("containerd serves again, to {AFTER_POWER_CUT} pods Ready: s more");
    let figure = Figure::excess(&what, s.into(), "raw calls", raw.into());
    measured.push(figure.held_to(Bound::at_most(10.0, 2.0)).latency());
    Ok(())
}
