//! Scenarios: what a run does, as data in `loadtest/scenarios/*.toml`.
//!
//! What the command line says is set in the file's table before it is read, so that a flag is
//! checked as the file is, and both stand in the record of the run.

mod duration;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::failure::{Attempt, Failure};
use crate::object::{Content, Kind};

/// The scenarios of this build, by name.
const SCENARIOS: [(&str, &str); 9] = [
    ("propagation", include_str!("../../scenarios/propagation.toml")),
    ("burst", include_str!("../../scenarios/burst.toml")),
    ("resume", include_str!("../../scenarios/resume.toml")),
    ("metasync", include_str!("../../scenarios/metasync.toml")),
    ("storm", include_str!("../../scenarios/storm.toml")),
    ("isolation", include_str!("../../scenarios/isolation.toml")),
    ("growth", include_str!("../../scenarios/growth.toml")),
    ("soak", include_str!("../../scenarios/soak.toml")),
    ("crash", include_str!("../../scenarios/crash.toml")),
];

/// The most edges of one run.
pub const EDGES_MAX: usize = 20_000;

/// The most objects of one run: each takes some memory in the harness for every edge that has it.
pub const OBJECTS_MAX: usize = 2_000_000;

/// The highest rate, events a second: far above what one objects socket takes.
pub const RATE_MAX: f64 = 200_000.0;

/// The longest run.
pub const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// What the name of a hop begins with; the first is `hop-1`.
const HOP: &str = "hop-";

/// What a run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// What its figures are to be compared with.
    pub limit: String,
    /// The targets that it supports; the first is the default.
    pub targets: Vec<TargetKind>,
    /// For how long load is measured.
    #[serde(with = "duration")]
    pub duration: Duration,
    /// Load before that, which is not.
    #[serde(with = "duration")]
    pub warm_up: Duration,
    /// How long all may take to come to rest when the load has ended.
    #[serde(with = "duration", default = "drain_default")]
    pub drain: Duration,
    /// One run for each value of a key.
    pub series: Option<Values>,
    /// The edges.
    pub edges: Edges,
    /// What there is before the first change.
    pub objects: Objects,
    /// The changes.
    pub load: Load,
    /// What is done to the parts, and when; times count from the first measured moment.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// What is recorded besides what always is.
    #[serde(default)]
    pub record: BTreeSet<RecordKind>,
}

/// A key, and the values that it has in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// The key, dotted.
    pub key: String,
    /// Its values.
    pub values: Vec<f64>,
}

/// What a scenario runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// `headwater up`: everything in one process, log embedded.
    Embedded,
    /// Controller, hub and edges as processes, on a Kafka that the harness starts.
    Cluster,
    /// A deployment that is there already.
    #[value(skip)]
    Attached,
}

/// What an edge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeKind {
    /// With RocksDB; a process each on a cluster.
    Real,
    /// With databases in memory, all in the harness's process.
    Light,
}

/// The edges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edges {
    /// How many.
    pub count: usize,
    /// What they are.
    pub kind: EdgeKind,
    /// Whether a light edge reports a status for every change, which then is awaited at the
    /// cloud.
    #[serde(default)]
    pub echo: bool,
    /// How many of the first ones reach the hub over a hop that faults can make slow or deaf.
    /// They are not measured: the others are.
    #[serde(default)]
    pub behind_hops: usize,
}

/// What there is before the first change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    /// Pods of each edge.
    pub pods_per_edge: usize,
    /// ConfigMaps that a pod of every edge names: each lies in every edge's own stream.
    #[serde(default)]
    pub configmaps: usize,
    /// Services: each lies in the stream that all edges share.
    #[serde(default)]
    pub services: usize,
}

/// The changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// How they come.
    pub arrival: Arrival,
    /// How many a second, over all edges.
    pub rate: f64,
    /// Many at one moment, again and again.
    pub burst: Option<Burst>,
    /// What changes, by share.
    pub mix: Vec<Mix>,
}

/// How changes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// Independently of each other.
    Poisson,
    /// One after the other, at the same distance.
    Fixed,
}

/// Many changes at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// How far apart; the first comes as long after the warm-up.
    #[serde(with = "duration")]
    pub every: Duration,
    /// How many changes, all intended at the same moment.
    pub events: usize,
}

/// A kind of change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Of which objects.
    pub kind: Kind,
    /// Its part of all changes, in relation to the other shares.
    pub share: f64,
    /// Bytes of the object's own content.
    pub bytes: usize,
    /// How many of them are new with each change.
    pub fresh: usize,
    /// The part of its changes that remove the object; the next change makes it anew.
    #[serde(default)]
    pub deletes: f64,
}

/// What is done to a part, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When, counted from the first measured moment.
    #[serde(with = "duration")]
    pub at: Duration,
    /// What.
    #[serde(rename = "do")]
    pub act: Act,
    /// To whom: `hub`, `broker`, `edges`, `hop-1` and so on, or `up`, where all is one.
    pub to: String,
    /// Of `edges`: how many, the first ones.
    #[serde(default)]
    pub edges: Option<usize>,
}

/// What is done to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// `kill -9`.
    Kill,
    /// Started again on its data.
    Start,
    /// StoppedTarget by SIGSTOP.
    Freeze,
    /// Goes on.
    Thaw,
    /// The link of edges is cut.
    Cut,
    /// The link of edges is mended.
    Mend,
    /// A hop passes nothing, and no end is notified.
    BlackHole,
    /// An edge behind a hop reads next to nothing.
    Slow,
    /// Everything passes a hop as it comes.
    Clear,
}

/// What is recorded besides what always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordKind {
    /// From the intended moment to the status of that turn in the cloud's picture.
    RoundTrip,
}

fn drain_default() -> Duration {
    Duration::from_secs(60)
}

/// The names of the scenarios of this build.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name)
}

impl Scenario {
    /// The scenario of this name, or of the file that is named, with `sets` in place of what it
    /// says.
    ///
    /// # Errors
    /// Names the file and the key that is wrong.
    pub fn load(name: &str, sets: &[(String, String)]) -> Result<Self, Failure> {
        if name.ends_with(".toml") {
            let text = fs::read_to_string(name).tried(&format!("{name} cannot be read"))?;
            let stem = Path::new(name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            return Self::parse(name, &stem.unwrap_or_default(), &text, sets);
        }
        let found = SCENARIOS.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            let known = "`headwater-loadtest list` shows them; a file ends with .toml";
            Failure::of(format!("there is no scenario {name:?}: {known}"))
        })?;
        Self::parse(&format!("{name}.toml"), name, text, sets)
    }

    /// Reads one; `file` is what errors call it.
    ///
    /// # Errors
    /// Names the file and the key that is wrong.
    pub fn parse(
        file: &str,
        name: &str,
        text: &str,
        sets: &[(String, String)],
    ) -> Result<Self, Failure> {
        let mut table: Table = text.parse::<Table>().tried(&format!("{file} is no TOML"))?;
        let wrong = |key: &str, reason: String| Failure::of(format!("{file}: {key}: {reason}"));
        for (key, value) in sets {
            set(&mut table, key, value).map_err(|reason| wrong(key, reason))?;
        }
        table.entry("name").or_insert_with(|| name.into());
        let scenario: Self =
            serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
                let key = error.path().to_string();
                wrong(&key, error.into_inner().message().to_owned())
            })?;
        scenario.check().map_err(|(key, reason)| wrong(key, reason))?;
        Ok(scenario)
    }

    /// What it runs on: what is asked for, else its first.
    ///
    /// # Errors
    /// When it does not run there.
    pub fn target(&self, asked: Option<TargetKind>) -> Result<TargetKind, Failure> {
        match asked.or(self.targets.first().copied()) {
            Some(target) if !self.targets.contains(&target) => {
                let (name, supported) = (&self.name, self.supported());
                Err(Failure::of(format!("{name} does not run on {target}, but on {supported}")))
            }
            Some(TargetKind::Attached) if self.edges.kind == EdgeKind::Real => Err(Failure::of(
                "what is attached to has its own real edges; a run brings light ones: --edge-kind \
                 light",
            )),
            Some(TargetKind::Embedded) if self.edges.kind == EdgeKind::Light => Err(Failure::of(
                "embedded has real edges only: its nodes are in its process; light ones want \
                 --target cluster",
            )),
            target => Ok(target.unwrap_or(TargetKind::Embedded)),
        }
    }

    /// The targets, in words.
    pub fn supported(&self) -> String {
        self.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// What makes no sense although every key can be read.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let between = |key, value: usize, least: usize, most: usize| {
            let fits = (least..=most).contains(&value);
            if fits { Ok(()) } else { Err((key, format!("{value} is not in {least}..={most}"))) }
        };
        if self.targets.is_empty() {
            return Err(("targets", "names none".to_owned()));
        }
        between("edges.count", self.edges.count, 1, EDGES_MAX)?;
        if self.edges.echo && self.edges.kind == EdgeKind::Real {
            return Err(("edges.echo", "a real edge reports what its pods do".to_owned()));
        }
        if self.edges.behind_hops > 0 {
            between("edges.behind_hops", self.edges.behind_hops, 0, self.edges.count - 1)?;
            if self.edges.kind == EdgeKind::Real {
                return Err(("edges.behind_hops", "only light edges take a hop".to_owned()));
            }
        }
        if self.record.contains(&RecordKind::RoundTrip) && !self.edges.echo {
            return Err(("record", "round-trip wants edges.echo".to_owned()));
        }
        let objects = self.edges.count.saturating_mul(self.objects.pods_per_edge)
            + self.edges.count.saturating_mul(self.objects.configmaps)
            + self.objects.services;
        between("objects", objects, 1, OBJECTS_MAX)?;
        let Load { rate, burst, mix, .. } = &self.load;
        if !(*rate > 0.0 && *rate <= RATE_MAX) {
            return Err(("load.rate", format!("{rate} is not above 0 and at most {RATE_MAX}")));
        }
        if let Some(burst) = burst {
            between("load.burst.events", burst.events, 1, OBJECTS_MAX)?;
            if burst.every < Duration::from_millis(1) {
                return Err(("load.burst.every", "is less than 1ms".to_owned()));
            }
        }
        if mix.is_empty() {
            return Err(("load.mix", "nothing changes".to_owned()));
        }
        for mix in mix {
            if !(mix.share > 0.0 && mix.share.is_finite()) {
                return Err(("load.mix.share", format!("{} is not above 0", mix.share)));
            }
            if !(0.0..=1.0).contains(&mix.deletes) {
                return Err(("load.mix.deletes", format!("{} is not in 0..=1", mix.deletes)));
            }
            between("load.mix.bytes", mix.bytes, 0, 1 << 20)?;
            between("load.mix.fresh", mix.fresh, 0, mix.bytes)?;
            let there = match mix.kind {
                Kind::Pod => self.objects.pods_per_edge,
                Kind::ConfigMap => self.objects.configmaps,
                Kind::Service => self.objects.services,
            };
            if there == 0 {
                return Err(("load.mix.kind", format!("there is no {} to change", mix.kind)));
            }
        }
        let whole = self.duration.saturating_add(self.warm_up);
        if self.duration.is_zero() || whole > DURATION_MAX {
            return Err(("duration", "is zero, or too long".to_owned()));
        }
        if let Some(late) = self.faults.iter().find(|fault| fault.at > self.duration) {
            return Err(("faults.at", format!("{:?} lies behind the end", late.at)));
        }
        self.faults.iter().try_for_each(|fault| fault.check(&self.edges))
    }
}

impl Mix {
    /// The content of its objects.
    pub fn content(&self) -> Content {
        Content { bytes: self.bytes, fresh: self.fresh, plain: 0 }
    }
}

impl Fault {
    /// The number of the hop that it is done to, from 0; `None`: it is done to something else.
    pub fn hop(&self) -> Option<usize> {
        self.to.strip_prefix(HOP)?.parse::<usize>().ok()?.checked_sub(1)
    }

    fn check(&self, edges: &Edges) -> Result<(), (&'static str, String)> {
        let of_links = matches!(self.act, Act::Cut | Act::Mend);
        let of_hops = matches!(self.act, Act::BlackHole | Act::Slow | Act::Clear);
        let hop = self.hop();
        let possible = match self.to.as_str() {
            _ if hop.is_some_and(|hop| hop < edges.behind_hops) => of_hops,
            _ if of_hops => false,
            // A light edge is no process.
            "edges" => of_links || edges.kind == EdgeKind::Real,
            "hub" | "up" | "broker" => !of_links,
            // Without the controller there is no way in.
            other => return Err(("faults.to", format!("{other:?} is no part that may fail"))),
        };
        if possible {
            return Ok(());
        }
        Err(("faults.do", format!("{} cannot be done to {}", self.act, self.to)))
    }
}

/// Sets a dotted key; what is no TOML value is text.
fn set(table: &mut Table, key: &str, given: &str) -> Result<(), String> {
    let parsed = format!("value = {given}").parse::<Table>();
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    let value = value.unwrap_or_else(|| Value::String(given.to_owned()));
    let mut within = table;
    let mut path = key.split('.').peekable();
    while let Some(step) = path.next() {
        if path.peek().is_none() {
            within.insert(step.to_owned(), value);
            return Ok(());
        }
        let next = within.entry(step).or_insert_with(|| Value::Table(Table::new()));
        within = next.as_table_mut().ok_or_else(|| format!("{step} has no keys"))?;
    }
    Ok(())
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests;
