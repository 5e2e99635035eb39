//! Which edge has seen which turn of which object, and how long after its intended moment.
//!
//! A turn that an edge did not see is explained if it saw a later one of the same object: a catch-up
//! delivers the latest of each. What such a turn made is there with the later one, and so late it
//! was. A turn without a later one is missing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use headwater_proto::local::Object;
use serde::{Deserialize, Serialize};

use crate::inventory::Inventory;
use crate::latency::Latency;
use crate::lock::lock;
use crate::object::turn_of;
use crate::schedule::Turn;
use crate::watching::{Group, Witness};

/// Findings that are kept in words; the rest is counted.
const FINDINGS_MAX: usize = 20;

/// See the module.
#[derive(Debug)]
pub struct Sightings {
    inventory: Arc<Inventory>,
    objects: HashMap<String, u32>,
    /// The first edge that is measured.
    first_measured: usize,
    plan: RwLock<Plan>,
    edges: Vec<Mutex<EdgeSightings>>,
    sightings: AtomicU64,
    measured: AtomicU64,
    last: Mutex<Option<Instant>>,
    findings: Mutex<Findings>,
}

/// What is intended so far.
#[derive(Debug, Default)]
struct Plan {
    /// The turns of all loads; the first is turn 1.
    turns: Vec<Turn>,
    /// The turns of each object, rising.
    of_object: HashMap<u32, Vec<u32>>,
    /// The objects that were sent at all.
    sent: HashSet<u32>,
    /// How many of them every edge has, and how many each has for itself.
    shared: usize,
    own: Vec<usize>,
    /// The load that goes on, and its first turn.
    load: Option<Load>,
    first_of_load: u32,
}

/// A load whose turns are measured.
#[derive(Clone, Debug)]
pub struct Load {
    /// When it begins.
    pub began: Instant,
    /// Its turns before this moment warm up.
    pub measured_from: Duration,
    /// Where the latencies of the others go.
    pub latency: Arc<Latency>,
}

/// What an edge has seen.
#[derive(Debug, Default)]
struct EdgeSightings {
    objects: HashMap<u32, Sighting>,
    /// How many of the objects are as they end.
    at_rest: usize,
}

/// What an edge has seen of an object.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    /// The last turn.
    last: u32,
    /// Whether the object is gone.
    gone: bool,
    /// How many turns, those of the first state aside.
    count: u32,
}

/// What was seen that must never be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// How many.
    pub count: u64,
    /// The first ones, in words.
    pub first: Vec<String>,
}

/// How intended turns and sightings add up, over all edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Turns times the edges that have their object.
    pub intended: u64,
    /// Of these, seen.
    pub seen: u64,
    /// Not seen, but a later turn of the same object was.
    pub overwritten: u64,
    /// Not seen, and nothing explains it.
    pub missing: u64,
}

impl Findings {
    /// Notes one.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < FINDINGS_MAX {
            self.first.push(what());
        }
    }

    /// Notes what another found.
    pub fn extend(&mut self, other: Self) {
        self.count += other.count;
        let room = FINDINGS_MAX.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }
}

impl Sightings {
    /// Of one edge for each node of `inventory`; only what those from `first_measured` on see is
    /// measured.
    pub fn new(inventory: Arc<Inventory>, first_measured: usize) -> Self {
        let edges = inventory.nodes.len();
        let objects = inventory.objects.iter().map(|object| (object.key.clone(), object.index));
        Self {
            objects: objects.collect(),
            first_measured,
            plan: RwLock::new(Plan { own: vec![0; edges], ..Plan::default() }),
            edges: std::iter::repeat_with(Mutex::default).take(edges).collect(),
            sightings: AtomicU64::new(0),
            measured: AtomicU64::new(0),
            last: Mutex::default(),
            findings: Mutex::default(),
            inventory,
        }
    }

    /// These objects are sent as they are before the first change: turn 0.
    pub fn expect(&self, objects: impl IntoIterator<Item = u32>) {
        self.change_plan(|plan| objects.into_iter().for_each(|object| plan.send(object, self)));
    }

    /// A load begins; gives the number of its first turn.
    pub fn begin(&self, turns: &[Turn], load: Load) -> u32 {
        self.change_plan(|plan| {
            let first = u32::try_from(plan.turns.len() + 1).unwrap_or(u32::MAX);
            for (turn, number) in turns.iter().zip(first..) {
                plan.send(turn.object, self);
                plan.of_object.entry(turn.object).or_default().push(number);
            }
            plan.turns.extend(turns);
            (plan.load, plan.first_of_load) = (Some(load), first);
            first
        })
    }

    fn change_plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        let mut plan = self.plan.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut plan);
        for edge in &self.edges {
            let mut edge = lock(edge);
            let rests = |(object, seen): &(&u32, &Sighting)| plan.rests(**object, seen);
            edge.at_rest = edge.objects.iter().filter(rests).count();
        }
        changed
    }

    fn plan(&self) -> RwLockReadGuard<'_, Plan> {
        self.plan.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pairs of edge and object that do not stand where they end, of these edges.
    pub fn restless(&self, edges: Range<usize>) -> usize {
        let plan = self.plan();
        let of_edge = |edge: usize| {
            let at_rest = self.edges.get(edge).map_or(0, |edge| lock(edge).at_rest);
            (plan.shared + plan.own.get(edge).unwrap_or(&0)).saturating_sub(at_rest)
        };
        edges.map(of_edge).sum()
    }

    /// How many turns were seen, over all edges.
    pub fn count(&self) -> u64 {
        self.sightings.load(Ordering::Relaxed)
    }

    /// How many of them are measured.
    pub fn measured(&self) -> u64 {
        self.measured.load(Ordering::Relaxed)
    }

    /// When a turn was seen last.
    pub fn last(&self) -> Option<Instant> {
        *lock(&self.last)
    }

    /// What was seen that must never be.
    pub fn findings(&self) -> Findings {
        lock(&self.findings).clone()
    }

    /// How it adds up now.
    pub fn account(&self) -> Account {
        let plan = self.plan();
        let mut account = Account::default();
        for (index, edge) in self.edges.iter().enumerate() {
            let seen = &lock(edge).objects;
            for (object, turns) in &plan.of_object {
                if self.owner(*object).is_some_and(|node| node != index) {
                    continue;
                }
                let of_object = seen.get(object);
                let count = of_object.map_or(0, |seen| u64::from(seen.count));
                let missing = match of_object {
                    Some(seen) if plan.rests(*object, seen) => 0,
                    Some(seen) => turns.iter().filter(|turn| **turn > seen.last).count() as u64,
                    None => turns.len() as u64,
                };
                account.intended += turns.len() as u64;
                account.seen += count;
                account.missing += missing;
                account.overwritten += (turns.len() as u64).saturating_sub(count + missing);
            }
        }
        account
    }

    /// The one edge that has an object, if not all have it.
    fn owner(&self, object: u32) -> Option<usize> {
        self.inventory.objects[object as usize].node
    }

    fn find(&self, what: impl FnOnce() -> String) {
        lock(&self.findings).note(what);
    }

    /// Notes that the edge saw `turn` of an object, which is `gone` with it.
    fn see(&self, plan: &Plan, edge: usize, object: u32, turn: u32, gone: bool, at: Instant) {
        let Some(seen) = self.edges.get(edge) else { return };
        let mut seen = lock(seen);
        let before = seen.objects.get(&object).copied();
        let Sighting { last, count, .. } = before.unwrap_or(Sighting { last: 0, gone, count: 0 });
        let is_news = turn > last;
        let now = Sighting { last: turn, gone, count: count + u32::from(is_news) };
        seen.objects.insert(object, now);
        match (before.is_some_and(|before| plan.rests(object, &before)), plan.rests(object, &now)) {
            (false, true) => seen.at_rest += 1,
            (true, false) => seen.at_rest -= 1,
            _ => {}
        }
        drop(seen);
        let mut latest = lock(&self.last);
        *latest = latest.max(Some(at));
        drop(latest);
        if is_news {
            self.sightings.fetch_add(1, Ordering::Relaxed);
            if edge >= self.first_measured && plan.measure(object, last, turn, at) {
                self.measured.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn last_of(&self, edge: usize, object: u32) -> Option<Sighting> {
        lock(self.edges.get(edge)?).objects.get(&object).copied()
    }

    fn gone(&self, plan: &Plan, edge: usize, object: u32, at: Instant) {
        let Some(seen) = self.last_of(edge, object).filter(|seen| !seen.gone) else { return };
        let turns = plan.of_object.get(&object).map_or(&[][..], Vec::as_slice);
        let deletes = |turn: &&u32| plan.turn(**turn).is_some_and(|turn| turn.deletes);
        match turns.iter().filter(deletes).find(|turn| **turn > seen.last) {
            Some(turn) => self.see(plan, edge, object, *turn, true, at),
            None => {
                let key = &self.inventory.objects[object as usize].key;
                self.find(|| format!("edge {edge}: {key} is gone, and nobody deleted it"));
            }
        }
    }
}

impl Plan {
    /// The change of this turn; `None` of turn 0, and behind the last.
    fn turn(&self, turn: u32) -> Option<&Turn> {
        self.turns.get((turn as usize).checked_sub(1)?)
    }

    fn send(&mut self, object: u32, sightings: &Sightings) {
        if self.sent.insert(object) {
            match sightings.owner(object) {
                Some(edge) => self.own[edge] += 1,
                None => self.shared += 1,
            }
        }
    }

    /// Whether an object is as it ends.
    fn rests(&self, object: u32, seen: &Sighting) -> bool {
        let last = self.of_object.get(&object).and_then(|turns| turns.last()).copied().unwrap_or(0);
        let ends_gone = self.turn(last).is_some_and(|turn| turn.deletes);
        seen.last == last || (seen.gone && ends_gone)
    }

    /// Measures the turns of an object after `last`, up to `turn`; gives whether `turn` itself is
    /// measured.
    fn measure(&self, object: u32, last: u32, turn: u32, at: Instant) -> bool {
        let Some(load) = &self.load else { return false };
        let turns = self.of_object.get(&object).map_or(&[][..], Vec::as_slice);
        let begins = turns.partition_point(|number| *number <= last.max(self.first_of_load - 1));
        let mut is_measured = false;
        for number in turns[begins..].iter().take_while(|number| **number <= turn) {
            let Some(intended) = self.turn(*number).map(|turn| turn.at) else { continue };
            if intended >= load.measured_from {
                load.latency.record(at.saturating_duration_since(load.began + intended));
                is_measured = *number == turn;
            }
        }
        is_measured
    }
}

impl Witness for Sightings {
    fn applied(&self, edge: usize, object: &Object, at: Instant) {
        let Some(index) = self.objects.get(&object.key).copied() else { return };
        let key = &object.key;
        let Some(turn) = turn_of(&object.object) else {
            return self.find(|| format!("edge {edge}: {key} says no turn"));
        };
        if self.owner(index).is_some_and(|node| node != edge) {
            return self.find(|| format!("edge {edge} was told of {key}, which is another's"));
        }
        match self.last_of(edge, index) {
            Some(seen) if turn < seen.last => {
                let last = seen.last;
                self.find(|| format!("edge {edge}: {key} went back from turn {last} to {turn}"));
            }
            // A listing repeats what was delivered.
            Some(seen) if turn == seen.last && !seen.gone => {}
            _ => self.see(&self.plan(), edge, index, turn, false, at),
        }
    }

    fn removed(&self, edge: usize, key: &str, at: Instant) {
        if let Some(index) = self.objects.get(key) {
            self.gone(&self.plan(), edge, *index, at);
        }
    }

    fn listed(&self, edge: usize, group: Group, keys: &BTreeSet<String>, at: Instant) {
        let Some(seen) = self.edges.get(edge) else { return };
        let held: Vec<u32> = lock(seen).objects.keys().copied().collect();
        let plan = self.plan();
        for object in held {
            let object = &self.inventory.objects[object as usize];
            if Group::of(object.kind) == group && !keys.contains(&object.key) {
                self.gone(&plan, edge, object.index, at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
