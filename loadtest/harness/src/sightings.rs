//! Which edge has seen which turn of which object, and how long after its intended moment.
//!
//! A turn that an edge did not see is explained if it saw a later one of the same object: a catch-up
//! delivers the latest of each. A turn without a later one is missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use headwater_proto::local::Object;
use serde::{Deserialize, Serialize};

use crate::latency::Latency;
use crate::lock::lock;
use crate::object::{Kind, turn_of};
use crate::schedule::Schedule;
use crate::watching::{Group, Witness};

/// Findings that are kept in words; the rest is counted.
const FINDINGS_MAX: usize = 20;

/// See the module.
#[derive(Debug)]
pub struct Sightings {
    schedule: Arc<Schedule>,
    /// Turns before this moment of the schedule warm up.
    measured_from: Duration,
    /// The first edge that is measured.
    first_measured: usize,
    objects: HashMap<String, u32>,
    /// The turns of each object, rising.
    turns: HashMap<u32, Vec<u32>>,
    began: OnceLock<Instant>,
    edges: Vec<Mutex<HashMap<u32, Sighting>>>,
    latency: Arc<Latency>,
    /// Pairs of edge and object that were seen at all, and that stand where they will end.
    first_seen: AtomicUsize,
    at_rest: AtomicUsize,
    sightings: AtomicU64,
    findings: Mutex<Findings>,
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
    /// Of `edges` edges; what those from `first_measured` on see of turns from `measured_from` on
    /// goes into `latency`.
    pub fn new(
        schedule: Arc<Schedule>,
        edges: usize,
        first_measured: usize,
        measured_from: Duration,
        latency: Arc<Latency>,
    ) -> Self {
        let mut turns: HashMap<u32, Vec<u32>> = HashMap::new();
        for (turn, number) in schedule.turns.iter().zip(1..) {
            turns.entry(turn.object).or_default().push(number);
        }
        let objects = schedule.objects.iter().map(|object| (object.key.clone(), object.index));
        Self {
            objects: objects.collect(),
            measured_from,
            first_measured,
            turns,
            began: OnceLock::new(),
            edges: std::iter::repeat_with(Mutex::default).take(edges).collect(),
            latency,
            first_seen: AtomicUsize::new(0),
            at_rest: AtomicUsize::new(0),
            sightings: AtomicU64::new(0),
            findings: Mutex::default(),
            schedule,
        }
    }

    /// The schedule's first moment is `began`. Only the first call counts.
    pub fn begin(&self, began: Instant) {
        let _ = self.began.set(began);
    }

    /// Pairs of edge and object that there are.
    pub fn pairs(&self) -> usize {
        let objects = self.schedule.objects.iter();
        objects.map(|object| self.schedule.audience(object.index, self.edges.len())).sum()
    }

    /// Whether every edge has seen every object that it is to have.
    pub fn is_set_up(&self) -> bool {
        self.first_seen.load(Ordering::Relaxed) >= self.pairs()
    }

    /// Whether every edge has the state at the end of the schedule.
    pub fn is_at_rest(&self) -> bool {
        self.at_rest.load(Ordering::Relaxed) >= self.pairs()
    }

    /// Pairs that do not stand there yet.
    pub fn restless(&self) -> usize {
        self.pairs().saturating_sub(self.at_rest.load(Ordering::Relaxed))
    }

    /// How many turns were seen, over all edges.
    pub fn count(&self) -> u64 {
        self.sightings.load(Ordering::Relaxed)
    }

    /// What was seen that must never be.
    pub fn findings(&self) -> Findings {
        lock(&self.findings).clone()
    }

    /// How it adds up now.
    pub fn account(&self) -> Account {
        let mut account = Account::default();
        for (index, edge) in self.edges.iter().enumerate() {
            let seen = lock(edge);
            for (object, turns) in &self.turns {
                if self.schedule.objects[*object as usize].node.is_some_and(|node| node != index) {
                    continue;
                }
                let of_object = seen.get(object);
                let count = of_object.map_or(0, |seen| u64::from(seen.count));
                let missing = match of_object {
                    Some(seen) if self.rests(*object, seen) => 0,
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

    fn find(&self, what: impl FnOnce() -> String) {
        lock(&self.findings).note(what);
    }

    /// Whether an object has the state at the end of the schedule.
    fn rests(&self, object: u32, seen: &Sighting) -> bool {
        let last = self.turns.get(&object).and_then(|turns| turns.last()).copied().unwrap_or(0);
        let ends_gone = self.schedule.turn(last).is_some_and(|turn| turn.deletes);
        seen.last == last || (seen.gone && ends_gone)
    }

    /// Notes that the edge saw `turn` of an object, which is `gone` with it.
    fn see(&self, edge: usize, object: u32, turn: u32, gone: bool, at: Instant) {
        let Some(seen) = self.edges.get(edge) else { return };
        let mut seen = lock(seen);
        let before = seen.get(&object).copied();
        let rested = before.is_some_and(|before| self.rests(object, &before));
        let mut now = before.unwrap_or(Sighting { last: 0, gone, count: 0 });
        if before.is_none() {
            self.first_seen.fetch_add(1, Ordering::Relaxed);
        }
        let is_news = turn > now.last;
        now.last = turn;
        now.gone = gone;
        now.count += u32::from(is_news);
        seen.insert(object, now);
        match (rested, self.rests(object, &now)) {
            (false, true) => drop(self.at_rest.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.at_rest.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        drop(seen);
        if is_news {
            self.sightings.fetch_add(1, Ordering::Relaxed);
            if edge >= self.first_measured {
                self.measure(turn, at);
            }
        }
    }

    fn measure(&self, number: u32, at: Instant) {
        let (Some(turn), Some(began)) = (self.schedule.turn(number), self.began.get()) else {
            return;
        };
        if turn.at >= self.measured_from {
            self.latency.record(at.saturating_duration_since(*began + turn.at));
        }
    }

    fn last_of(&self, edge: usize, object: u32) -> Option<Sighting> {
        lock(self.edges.get(edge)?).get(&object).copied()
    }

    fn group_of(&self, object: u32) -> Group {
        match self.schedule.objects[object as usize].kind {
            Kind::Service => Group::Mesh,
            Kind::Pod | Kind::ConfigMap => Group::Edged,
        }
    }

    fn gone(&self, edge: usize, object: u32, at: Instant) {
        let Some(seen) = self.last_of(edge, object).filter(|seen| !seen.gone) else { return };
        let turns = self.turns.get(&object).map_or(&[][..], Vec::as_slice);
        let deletes = |turn: &&u32| self.schedule.turn(**turn).is_some_and(|turn| turn.deletes);
        match turns.iter().filter(deletes).find(|turn| **turn > seen.last) {
            Some(turn) => self.see(edge, object, *turn, true, at),
            None => {
                let key = &self.schedule.objects[object as usize].key;
                self.find(|| format!("edge {edge}: {key} is gone, and nobody deleted it"));
            }
        }
    }
}

impl Witness for Sightings {
    fn applied(&self, edge: usize, object: &Object, at: Instant) {
        let Some(index) = self.objects.get(&object.key).copied() else { return };
        let key = &object.key;
        let Some(turn) = turn_of(&object.object) else {
            return self.find(|| format!("edge {edge}: {key} says no turn"));
        };
        if self.schedule.objects[index as usize].node.is_some_and(|node| node != edge) {
            return self.find(|| format!("edge {edge} was told of {key}, which is another's"));
        }
        match self.last_of(edge, index) {
            Some(seen) if turn < seen.last => {
                let last = seen.last;
                self.find(|| format!("edge {edge}: {key} went back from turn {last} to {turn}"));
            }
            // A listing repeats what was delivered.
            Some(seen) if turn == seen.last && !seen.gone => {}
            _ => self.see(edge, index, turn, false, at),
        }
    }

    fn removed(&self, edge: usize, key: &str, at: Instant) {
        if let Some(index) = self.objects.get(key) {
            self.gone(edge, *index, at);
        }
    }

    fn listed(&self, edge: usize, group: Group, keys: &BTreeSet<String>, at: Instant) {
        let Some(seen) = self.edges.get(edge) else { return };
        let held: Vec<u32> = lock(seen).keys().copied().collect();
        for object in held {
            let key = &self.schedule.objects[object as usize].key;
            if self.group_of(object) == group && !keys.contains(key) {
                self.gone(edge, object, at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
