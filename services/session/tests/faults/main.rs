//! An edge shows a prefix of its streams during any faults, and both ends converge after the faults
//! stop.

mod cloud;
mod edge;
mod hub;
mod world;

use proptest::prelude::*;

use world::{Tampering, World};

/// One step of the simulation.
#[derive(Clone, Debug)]
enum Action {
    Set { stream: usize, key: u8, size: Option<u16> },
    Head { stream: usize },
    Assign { edge: usize, assigned: bool },
    Claim,
    Reconcile { steps: usize },
    Truncate { records: usize },
    RecreateLog(bool),
    Fold { hub: usize, records: usize },
    RestartHub { hub: usize, compacted: usize },
    Connect { edge: usize, hub: usize },
    Cut { edge: usize },
    Run { edge: usize, hub: usize, rounds: usize },
    Up { edge: usize, link: usize, messages: usize },
    Down { edge: usize, messages: usize },
    Work { edge: usize, steps: usize },
    Sync { edge: usize },
    Crash { edge: usize, is_wiped: bool },
    Report { edge: usize, key: u8 },
    Append { is_confirmed: bool },
    Tick { ms: u64 },
    Tamper { edge: usize, is_up: bool, tampering: Tampering },
    Miscompute { edge: usize },
}

fn action() -> impl Strategy<Value = Action> {
    let stream = 0..3usize;
    let edge = 0..2usize;
    let hub = 0..2usize;
    let size = prop::option::weighted(0.7, 0..600u16);
    let tampering =
        prop_oneof![Just(Tampering::Repeat), Just(Tampering::Swap), Just(Tampering::Lose)];
    prop_oneof![
        40 => (stream.clone(), 0..5u8, size)
            .prop_map(|(stream, key, size)| Action::Set { stream, key, size }),
        3 => stream.prop_map(|stream| Action::Head { stream }),
        8 => (edge.clone(), any::<bool>())
            .prop_map(|(edge, assigned)| Action::Assign { edge, assigned }),
        2 => Just(Action::Claim),
        10 => (1..6usize).prop_map(|steps| Action::Reconcile { steps }),
        1 => (1..8usize).prop_map(|records| Action::Truncate { records }),
        1 => prop::bool::weighted(0.3).prop_map(Action::RecreateLog),
        20 => (hub.clone(), 1..8usize).prop_map(|(hub, records)| Action::Fold { hub, records }),
        2 => (hub.clone(), 0..60usize)
            .prop_map(|(hub, compacted)| Action::RestartHub { hub, compacted }),
        2 => (edge.clone(), hub.clone()).prop_map(|(edge, hub)| Action::Connect { edge, hub }),
        20 => (edge.clone(), hub, 1..20usize)
            .prop_map(|(edge, hub, rounds)| Action::Run { edge, hub, rounds }),
        1 => edge.clone().prop_map(|edge| Action::Cut { edge }),
        20 => (edge.clone(), 0..3usize, 1..4usize)
            .prop_map(|(edge, link, messages)| Action::Up { edge, link, messages }),
        20 => (edge.clone(), 1..4usize).prop_map(|(edge, messages)| Action::Down { edge, messages }),
        20 => (edge.clone(), 1..5usize).prop_map(|(edge, steps)| Action::Work { edge, steps }),
        8 => edge.clone().prop_map(|edge| Action::Sync { edge }),
        2 => (edge.clone(), prop::bool::weighted(0.2))
            .prop_map(|(edge, is_wiped)| Action::Crash { edge, is_wiped }),
        6 => (edge.clone(), any::<u8>()).prop_map(|(edge, key)| Action::Report { edge, key }),
        6 => prop::bool::weighted(0.8).prop_map(|is_confirmed| Action::Append { is_confirmed }),
        3 => (0..8_000u64).prop_map(|ms| Action::Tick { ms }),
        1 => (edge.clone(), any::<bool>(), tampering)
            .prop_map(|(edge, is_up, tampering)| Action::Tamper { edge, is_up, tampering }),
        1 => edge.prop_map(|edge| Action::Miscompute { edge }),
    ]
}

fn perform(world: &mut World, action: &Action) {
    match *action {
        Action::Set { stream, key, size } => {
            let key = format!("ns/pod/p{key}").parse().expect("well-formed");
            world.cloud.set(&world.streams[stream].clone(), key, size);
        }
        Action::Head { stream } => world.cloud.head(&world.streams[stream].clone()),
        Action::Assign { edge, assigned } => {
            let node = world.cloud.nodes[edge].clone();
            world.cloud.assign(&node, assigned);
        }
        Action::Claim => world.cloud.claim(),
        Action::Reconcile { steps } => world.cloud.reconcile(steps),
        Action::Truncate { records } => world.cloud.truncate(records),
        Action::RecreateLog(is_done) if is_done => world.cloud.recreate_log(),
        Action::RecreateLog(_) => {}
        Action::Fold { hub, records } => world.fold(hub, records),
        Action::RestartHub { hub, compacted } => world.restart_hub(hub, compacted),
        Action::Connect { edge, hub } => world.connect(edge, hub),
        Action::Cut { edge } => world.cut(edge),
        Action::Run { edge, hub, rounds } => world.run(edge, hub, rounds),
        Action::Up { edge, link, messages } => {
            (0..messages).for_each(|_| world.deliver_up(edge, link));
        }
        Action::Down { edge, messages } => {
            (0..messages).for_each(|_| world.deliver_down(edge));
        }
        Action::Work { edge, steps } => (0..steps).for_each(|_| world.work(edge)),
        Action::Sync { edge } => world.sync(edge),
        Action::Crash { edge, is_wiped } => world.crash(edge, is_wiped),
        Action::Report { edge, key } => world.report(edge, key),
        Action::Append { is_confirmed } => world.append(is_confirmed),
        Action::Tick { ms } => world.tick(ms),
        Action::Tamper { edge, is_up, tampering } => world.tamper(edge, is_up, tampering),
        Action::Miscompute { edge } => world.miscompute(edge),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn an_edge_shows_a_prefix_whatever_breaks(actions in prop::collection::vec(action(), 0..300)) {
        let mut world = World::new();
        for action in &actions {
            perform(&mut world, action);
            world.check();
        }
        world.settle();
    }
}
