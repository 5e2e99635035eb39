//! What befalls a world, drawn by chance, one thing after the other.

use headwater_apiserver::Faults;
use headwater_event::Partition;
use headwater_log::{MemoryLog, PartitionFault};
use headwater_store::Survival;

use crate::frame::Frame;
use crate::world::World;

/// How many things befall a world.
const FAULTS: u64 = 60;

/// How many kinds of them there are.
const KINDS: u64 = 49;

/// How long at most passes between two of them.
const PAUSE_MS_MAX: u64 = 1_500;

/// How long a process stays frozen at most: long enough that it is taken for dead.
const FROZEN_MS_MAX: u64 = 90_000;

/// What is to end by itself, and when.
#[derive(Default)]
pub(crate) struct Later(Vec<(u64, Ending)>);

/// The end of something.
enum Ending {
    Thaw(usize),
    ThawLog(usize),
    LogReturns(MemoryLog),
    PartitionReturns(MemoryLog, Partition),
    Unstall(usize, usize),
    SwitchOn(usize),
    RemoveClone(usize),
    DeliverLate(usize),
    ApiReturns,
    ApiThaws,
    ApiCalms,
}

/// The work of the world while things go wrong.
pub(crate) async fn strike(world: &mut World) {
    let mut later = Later::default();
    // Each world has faults of its own, so that rare ones meet more often.
    let mask = world.frame.draw() | world.frame.draw();
    for _ in 0..FAULTS {
        if world.frame.first_broken().is_some() {
            return;
        }
        let changes = world.frame.below(4);
        for _ in 0..changes {
            world.cluster.change();
        }
        let pause = world.frame.below(PAUSE_MS_MAX);
        world.pass(pause).await;
        world.restart_what_ended().await;
        later.end_what_is_due(world).await;
        let kind = world.frame.below(KINDS);
        if mask & (1 << kind) != 0 {
            inject_fault(world, &mut later, kind).await;
        }
    }
    later.end_all(world).await;
}

async fn inject_fault(world: &mut World, later: &mut Later, kind: u64) {
    let frame = world.frame.clone();
    let edge = frame.index(world.nodes.len());
    let hub = frame.index(world.hubs.len());
    let controller = frame.index(world.controllers.len());
    let now = frame.now_ms();
    let survives = match frame.below(3) {
        0 => Survival::Synced,
        1 => Survival::Everything,
        _ => Survival::Some { seed: frame.draw() },
    };
    match kind {
        0..=2 => {
            frame.fault("link cut", format_args!("edge {edge} hub {hub}"));
            world.network.cut(edge, hub);
        }
        3..=5 => world.network.restore(edge, hub),
        6 | 7 => {
            frame.fault("link stalled", format_args!("edge {edge} hub {hub}"));
            world.network.stall(edge, hub, true);
            let until = now + frame.below(60_000);
            later.0.push((until, Ending::Unstall(edge, hub)));
        }
        8 => swizzle(world, &frame).await,
        9..=12 => {
            frame.fault("edge lost power", format_args!("{edge} {survives:?}"));
            world.edges[edge].lose_machine(survives);
            switch_on_later(world, later, edge, &frame);
        }
        13 => {
            frame.fault("edge killed", edge);
            world.edges[edge].lose_power(Survival::Everything);
            switch_on_later(world, later, edge, &frame);
        }
        14 => {
            frame.fault("edge disks wiped", edge);
            world.edges[edge].lose_machine(Survival::Synced);
            world.edges[edge].wipe();
            switch_on_later(world, later, edge, &frame);
        }
        15 => {
            frame.fault("edge state wiped", edge);
            world.edges[edge].lose_power(Survival::Synced);
            world.edges[edge].wipe_state();
            switch_on_later(world, later, edge, &frame);
        }
        16 | 17 => {
            frame.count("edge backed up");
            world.edges[edge].lose_machine(Survival::Everything);
            world.edges[edge].back_up();
            world.switch_on(edge);
        }
        18 | 19 => {
            world.edges[edge].lose_machine(survives);
            if world.edges[edge].restore() {
                frame.fault("edge disks restored from a backup", edge);
            }
            switch_on_later(world, later, edge, &frame);
        }
        20 => {
            let is_on = world.edges[edge].is_on();
            if world.edges.len() == world.nodes.len() && is_on {
                frame.fault("edge cloned", edge);
                let index = world.edges.len();
                let clone = world.edges[edge].cloned(index);
                world.edges.push(clone);
                world.switch_on(edge);
                world.switch_on(index);
                let until = now + frame.below(20_000);
                later.0.push((until, Ending::RemoveClone(edge)));
            }
        }
        21 | 22 => {
            let is_full = frame.happens(500);
            frame.fault("edge disk fails", format_args!("{edge} full: {is_full}"));
            world.edges[edge].break_disk(is_full);
        }
        23 | 24 => {
            let keeps = frame.happens(600).then_some(survives);
            frame.fault("hub crashed", format_args!("{hub} {keeps:?}"));
            if keeps.is_none() {
                frame.count("hub disk lost");
            }
            world.hubs[hub].crash(keeps);
            world.pass(frame.below(500)).await;
            world.hubs[hub].start().await;
        }
        25 | 26 => {
            frame.fault("hub lags", hub);
            world.hubs[hub].downstream.handle.set_frozen(true);
            let until = now + frame.below(30_000);
            later.0.push((until, Ending::ThawLog(hub)));
        }
        27 | 28 => {
            let keeps = frame.happens(600).then_some(survives);
            frame.fault("controller crashed", format_args!("{controller} {keeps:?}"));
            if keeps.is_none() {
                frame.count("controller disks lost");
            }
            world.crash_controller(controller, keeps);
            world.pass(frame.below(500)).await;
            world.controllers[controller].start().await;
        }
        29 | 30 if world.controllers[controller].is_on() => {
            frame.fault("controller frozen", controller);
            world.controllers[controller].freeze(true);
            if !world.controllers[1 - controller].is_on() {
                frame.count("second controller");
                world.controllers[1 - controller].start().await;
            }
            let until = now + frame.below(FROZEN_MS_MAX);
            later.0.push((until, Ending::Thaw(controller)));
            if frame.happens(300) {
                world.pass(40_000).await;
            }
        }
        31 | 32 => {
            world.controllers[controller].downstream.confuse();
            later.0.push((now + frame.below(60_000), Ending::DeliverLate(controller)));
        }
        33 => {
            world.hubs[hub].upstream.confuse();
            later.0.push((now + frame.below(60_000), Ending::DeliverLate(2 + hub)));
        }
        34 => {
            let log = if frame.happens(500) { &world.downstream } else { &world.upstream };
            frame.fault("log away", "");
            log.set_available(false);
            later.0.push((now + frame.below(5_000), Ending::LogReturns(log.handle())));
        }
        35 if !world.log_was_lost => world.recreate_log(),
        36 if !world.log_was_lost && !world.has_compacted() => world.truncate_log().await,
        37 => world.jump_clock(),
        38 if !world.was_truncated => {
            // Most often a part is away meanwhile.
            if frame.happens(700) {
                world.edges[edge].lose_machine(survives);
                switch_on_later(world, later, edge, &frame);
            }
            for _ in 0..frame.below(10) {
                world.cluster.change();
            }
            world.pass(1_000).await;
            world.weeks_pass().await;
        }
        40 | 41 => {
            let log = if frame.happens(700) { &world.downstream } else { &world.upstream };
            let partition = world.partition();
            let hangs = frame.happens(500);
            frame.fault("partition away", format_args!("{partition} hangs: {hangs}"));
            let fault = if hangs { PartitionFault::Hangs } else { PartitionFault::Fails };
            log.set_partition_fault(partition, Some(fault));
            later.0.push((
                now + frame.below(40_000),
                Ending::PartitionReturns(log.handle(), partition),
            ));
        }
        42 | 43 => {
            frame.fault("API server restarted", "");
            world.cluster.server.stop();
            later.0.push((now + frame.below(5_000), Ending::ApiReturns));
        }
        44 => {
            frame.fault("API server forgot its history", "");
            world.cluster.server.compact();
        }
        45 | 46 => {
            frame.fault("requests fail", "");
            world.cluster.disturb();
            later.0.push((now + frame.below(30_000), Ending::ApiCalms));
        }
        47 | 48 => {
            frame.fault("API server frozen", "");
            world.cluster.server.set_frozen(true);
            later.0.push((now + frame.below(FROZEN_MS_MAX), Ending::ApiThaws));
        }
        39 if !world.controllers[1 - controller].is_on() => {
            frame.count("second controller");
            world.controllers[1 - controller].start().await;
        }
        _ => {}
    }
}

/// Cuts the links of all edges one by one, and restores them in another order.
async fn swizzle(world: &mut World, frame: &Frame) {
    frame.fault("swizzle-clog", "");
    let hubs = world.hubs.len();
    let mut links: Vec<_> =
        (0..world.nodes.len()).flat_map(|edge| (0..hubs).map(move |hub| (edge, hub))).collect();
    for is_cut in [true, false] {
        for index in (1..links.len()).rev() {
            links.swap(index, frame.index(index + 1));
        }
        for (edge, hub) in links.clone() {
            match is_cut {
                true => world.network.cut(edge, hub),
                false => world.network.restore(edge, hub),
            }
            world.pass(frame.below(400)).await;
        }
    }
}

fn switch_on_later(world: &World, later: &mut Later, edge: usize, frame: &Frame) {
    later.0.push((world.frame.now_ms() + frame.below(5_000), Ending::SwitchOn(edge)));
}

impl Later {
    async fn end_what_is_due(&mut self, world: &mut World) {
        let now = world.frame.now_ms();
        let (due, rest) = std::mem::take(&mut self.0).into_iter().partition(|(at, _)| *at <= now);
        self.0 = rest;
        end(world, due).await;
    }

    async fn end_all(&mut self, world: &mut World) {
        end(world, std::mem::take(&mut self.0)).await;
    }
}

async fn end(world: &mut World, mut due: Vec<(u64, Ending)>) {
    due.sort_by_key(|(at, _)| *at);
    for (_, ending) in due {
        match ending {
            Ending::Thaw(controller) => {
                world.frame.count("frozen writer woke");
                world.controllers[controller].freeze(false);
            }
            Ending::ThawLog(hub) => world.hubs[hub].downstream.handle.set_frozen(false),
            Ending::LogReturns(log) => log.set_available(true),
            Ending::PartitionReturns(log, partition) => log.set_partition_fault(partition, None),
            Ending::Unstall(edge, hub) => world.network.stall(edge, hub, false),
            Ending::SwitchOn(edge) if !world.edges[edge].is_on() => world.switch_on(edge),
            Ending::SwitchOn(_) => {}
            Ending::ApiReturns => world.cluster.server.start(),
            Ending::ApiThaws => world.cluster.server.set_frozen(false),
            Ending::ApiCalms => world.cluster.server.set_faults(Faults::default()),
            Ending::RemoveClone(of) => world.remove_clone(of).await,
            Ending::DeliverLate(who) => {
                let log = match who {
                    0 | 1 => &world.controllers[who].downstream,
                    _ => &world.hubs[who - 2].upstream,
                };
                if log.handle.deliver_late() > 0 {
                    world.frame.count("late append arrived");
                }
            }
        }
    }
}
