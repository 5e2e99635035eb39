//! An edge that was away comes back through another hub: for what changed meanwhile, and little
//! more. Bytes are counted at the socket.

use std::time::Duration;

use headwater_e2e::fleet::Fleet;
use headwater_e2e::invariants::Invariants;
use headwater_e2e::proxy::{Conditions, Proxy, Traffic};
use serde_json::Value;

use crate::site::{
    Objects, invariants, settle, wait_until_folded, wait_until_has, wait_until_logged,
};
use crate::{PARTITIONS, PLAIN};

const NODE: &str = "gw-1";

/// What the topic of events is called.
const DOWNSTREAM: &str = "headwater.downstream.v1";

/// With the ConfigMaps a thousand objects: a pod names so many of them.
const PODS: usize = 100;
const MAPS_PER_POD: usize = 9;

/// Bytes of a ConfigMap's settings.
const MAP_BYTES: usize = 1_000;

/// Both ends send a heartbeat at this interval; its bytes on the connection, up and down.
const HEARTBEAT: Duration = Duration::from_secs(10);
const HEARTBEAT_BYTES: [u64; 2] = [29, 42];

/// An edge between two hubs, of which it reaches one, or none.
struct Between {
    fleet: Fleet,
    objects: Objects,
    invariants: Invariants,
    hops: [Proxy; 2],
    /// Events of the node's stream.
    events: usize,
    /// The hub that it is at.
    at: usize,
}

/// What a return took.
#[derive(Debug)]
struct Return {
    traffic: Traffic,
    /// From the connection to the state of the log.
    took: Duration,
    /// The heartbeats in it: none, unless the machine is busy.
    heartbeats: u64,
    /// The changed objects, each once, compressed by zstd, and 64 bytes for the framing.
    ideal: u64,
}

fn map(n: usize) -> String {
    format!("settings-{n:03}")
}

impl Between {
    fn start() -> Self {
        let mut fleet = Fleet::on_one_broker(PARTITIONS);
        let mut objects = Objects::new(7);
        for pod in 0..PODS {
            let maps: Vec<_> = (0..MAPS_PER_POD).map(|n| map(pod * MAPS_PER_POD + n)).collect();
            maps.iter().for_each(|map| objects.settings(map, MAP_BYTES));
            objects.pod(NODE, &format!("app-{pod:02}"), &maps);
        }
        assert_eq!(objects.len(), 1_000);
        objects.write(&fleet);
        fleet.add_controller("controller");
        fleet.add_hub("hub-0");
        fleet.add_hub("hub-1");
        // The node's streams, and an event for each object.
        let events = objects.len() + 1;
        wait_until_logged(&fleet, NODE, events);
        let hops = ["hub-0", "hub-1"].map(|hub| Proxy::start(fleet.hub_address(hub)));
        hops[1].set(Conditions { closed: true, ..Conditions::default() });
        let addresses = hops.each_ref().map(Proxy::address);
        fleet.add_edge_with(NODE, &addresses, &PLAIN);
        let mut invariants = invariants(&[]);
        wait_until_has(&fleet, NODE, events);
        settle(&fleet, &mut invariants);
        Self { fleet, objects, invariants, hops, events, at: 0 }
    }

    /// The edge is away while `changed` ConfigMaps change and `removed` others go, and comes back
    /// through the other hub.
    fn away_while(&mut self, changed: usize, removed: usize, delay: Duration) -> Return {
        let events = self.leave(changed, removed);
        self.come_back(&events, delay)
    }

    /// The same; before it comes back, the log is deleted and made again, so that its position
    /// leads nowhere.
    fn away_while_the_log_is_made_again(&mut self, changed: usize, removed: usize) -> Return {
        let events = self.leave(changed, removed);
        self.fleet.kafka.delete(&[DOWNSTREAM]).expect("it is deleted");
        self.fleet.make_topics(PARTITIONS);
        for hub in ["hub-0", "hub-1"] {
            self.fleet.wait_for("the next life", |fleet| {
                let status = fleet.part(hub).status()?;
                status["log_id"].as_str()?.starts_with("2-").then_some(())
            });
        }
        self.events = self.objects.len() + 1;
        wait_until_logged(&self.fleet, NODE, self.events);
        for hub in ["hub-0", "hub-1"] {
            wait_until_folded(&self.fleet, hub, NODE, self.events);
        }
        // What was seen so far is of another log.
        self.invariants = invariants(&[]);
        self.come_back(&events, Duration::ZERO)
    }

    /// The edge is away, and the log has all that happens meanwhile: the events.
    fn leave(&mut self, changed: usize, removed: usize) -> Vec<Value> {
        for hop in &self.hops {
            hop.set(Conditions { closed: true, ..Conditions::default() });
            hop.cut();
        }
        self.fleet.wait_for("the edge alone", |fleet| {
            (fleet.part(NODE).status()?["nodes"][0]["connected"] == false).then_some(())
        });
        (0..changed).for_each(|n| self.objects.settings(&map(n), MAP_BYTES));
        // From the end, so that none of them is one that changed.
        let there = self.objects.len() - PODS;
        (there - removed..there).for_each(|n| self.objects.remove(&map(n)));
        self.objects.write(&self.fleet);
        let before = self.events;
        self.events += changed + removed;
        let events = wait_until_logged(&self.fleet, NODE, self.events).split_off(before);
        for hub in ["hub-0", "hub-1"] {
            wait_until_folded(&self.fleet, hub, NODE, self.events);
        }
        events
    }

    /// The edge comes back, through the other hub, and has `events` at least to take.
    fn come_back(&mut self, events: &[Value], delay: Duration) -> Return {
        self.at = 1 - self.at;
        let hop = &self.hops[self.at];
        let traffic = hop.traffic();
        hop.set(Conditions { delay, ..Conditions::default() });
        wait_until_has(&self.fleet, NODE, self.events);
        let took = hop.arrivals().last().expect("it came").elapsed();
        // Its acknowledgement travels too, and counts.
        let hub = format!("hub-{}", self.at);
        self.fleet.wait_for("the edge's acknowledgement", |fleet| {
            let status = fleet.part(&hub).status()?;
            let nodes = status["nodes"].as_array()?;
            let own = nodes.iter().find(|node| node["name"] == NODE)?;
            let stream = own["streams"].as_array()?.iter().find(|s| s["stream"] == stream())?;
            let acked = stream["acked"] == self.events as u64;
            (own["connected"] == true && acked).then_some(())
        });
        let connected = hop.arrivals().last().expect("it came").elapsed();
        let traffic = hop.traffic().since(traffic);
        let heartbeats = connected.as_secs() / HEARTBEAT.as_secs();
        hop.set(Conditions::default());
        settle(&self.fleet, &mut self.invariants);
        let peaks = [NODE, "hub-0", "hub-1"];
        let peaks = peaks.map(|part| (part, self.fleet.part(part).peak_bytes() >> 10));
        println!("KiB at most: {peaks:?}");
        Return { traffic, took, heartbeats, ideal: ideal(events) }
    }
}

impl Return {
    /// The bytes up and down, without heartbeats.
    fn bytes(&self) -> [u64; 2] {
        let [up, down] = HEARTBEAT_BYTES.map(|bytes| bytes * self.heartbeats);
        [self.traffic.up.saturating_sub(up), self.traffic.down.saturating_sub(down)]
    }
}

fn stream() -> Value {
    format!("node/{NODE}").into()
}

/// See [`Return::ideal`].
fn ideal(events: &[Value]) -> u64 {
    let mut text = Vec::new();
    for event in events {
        match &event["object"] {
            Value::Null => text.extend(event["key"].as_str().expect("a key").bytes()),
            object => text.extend(object.to_string().bytes()),
        }
    }
    let packed = zstd::bulk::compress(&text, zstd::DEFAULT_COMPRESSION_LEVEL);
    packed.expect("it packs").len() as u64 + 64
}

#[test]
fn an_edge_that_was_away_resumes_at_another_hub_for_the_changes_alone() {
    let mut between = Between::start();
    let nothing = between.away_while(0, 0, Duration::ZERO);
    println!("nothing changed: {nothing:?}");
    // The beginning of an HTTP/2 connection takes 200 of them; each of the two streams sends its
    // position and its state hash.
    let [up, down] = nothing.bytes();
    assert!(up <= 375 && down <= 300, "{nothing:?}");

    let few = between.away_while(10, 10, Duration::ZERO);
    println!("10 changed, 10 removed: {few:?}");
    let [up, down] = few.bytes();
    assert!(up <= 512 && 10 * down <= 12 * few.ideal, "{few:?}");

    let delay = Duration::from_secs(3);
    let many = between.away_while(100, 20, delay);
    println!("100 changed, 20 removed: {many:?}");
    let [up, down] = many.bytes();
    assert!(up <= 512 && 10 * down <= 12 * many.ideal, "{many:?}");
    // A round trip takes two delays; with a second one it would have been four.
    assert!(many.took >= 2 * delay && many.took < 4 * delay, "{many:?}");

    // Of 970 objects 10 are others and 10 are gone; what it holds it says in six bytes each.
    let lost = between.away_while_the_log_is_made_again(10, 10);
    println!("made again, 10 changed, 10 removed: {lost:?}");
    let [up, down] = lost.bytes();
    assert!(up <= 6 * 1_000 + 640 && 10 * down <= 15 * lost.ideal, "{lost:?}");
}
