//! A fleet under a load that never rests.

use std::time::Duration;

use headwater_check::panic::check_words;
use headwater_e2e::fleet::Fleet;
use headwater_e2e::invariants::Invariants;
use headwater_e2e::restless::{ANCHORS, Restless, marker};

/// Few, so that a claim in each is quick.
const PARTITIONS: u32 = 3;

pub(crate) const HUBS: [&str; 2] = ["hub-1", "hub-2"];
pub(crate) const NODES: [&str; 3] = ["gw-1", "gw-2", "gw-3"];

/// How long a part is frozen: longer than all that waits for an answer does.
pub(crate) const FROZEN: Duration = Duration::from_secs(15);

/// See the module.
pub(crate) struct Scene {
    /// It ends before the load, which waits for answers of its parts.
    pub(crate) fleet: Fleet,
    pub(crate) restless: Restless,
    pub(crate) invariants: Invariants,
}

impl Scene {
    /// One broker, two hubs, three edges that know both, and these controllers; a single one takes
    /// objects over its socket too. Everything is in step and the load rests.
    pub(crate) fn start(controllers: &[&str], seed: u64) -> Self {
        let mut fleet = Fleet::on_one_broker(PARTITIONS);
        let restless = match controllers {
            [_] => Restless::new(fleet.folder(), &NODES, seed),
            _ => Restless::on_manifests(fleet.folder(), &NODES, seed),
        };
        let socket = fleet.folder().join("objects.sock").display().to_string();
        let nodes = NODES.join(",");
        let args = ["--nodes", &nodes, "--objects", &socket];
        for name in controllers {
            // Two would quarrel over the socket.
            let args = if controllers.len() == 1 { &args[..] } else { &args[..2] };
            fleet.add_controller_with(name, args);
        }
        HUBS.iter().for_each(|hub| fleet.add_hub(hub));
        NODES.iter().for_each(|node| fleet.add_edge(node, &HUBS));
        let mut invariants = Invariants::new(ANCHORS);
        for node in NODES {
            invariants.mark(node.parse().expect("a node"), &marker(node));
        }
        fleet.settle_and_check(&mut invariants);
        Self { fleet, restless, invariants }
    }

    /// Lets the load rest, and waits until everything is in step and as the source says; all that
    /// must hold is checked.
    pub(crate) fn settle(&mut self) {
        self.restless.settle();
        self.fleet.socket_objects = self.restless.socket_objects();
        self.fleet.settle_and_check(&mut self.invariants);
    }

    /// Checks that no part panicked and that the hashes of each equal those of the log.
    pub(crate) fn end(&self) {
        for (name, part) in self.fleet.parts() {
            check_words(name, &part.output()).expect("no panic");
        }
        for hub in HUBS {
            let verified = self.fleet.part(hub).ask(&["verify"]);
            let output = String::from_utf8_lossy(&verified.stdout);
            assert_eq!(verified.status.code(), Some(0), "{hub}: {output}");
        }
    }
}
