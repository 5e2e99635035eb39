//! What is done to a fleet in a round.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::chance::Chance;
use headwater_e2e::fleet::Fleet;

use crate::scene::{FROZEN, HUBS, NODES};

/// The broker among the parts.
const BROKER: &str = "broker";

/// How long the load runs before the fault, and how long what was killed stays away, at most.
const LOAD_MS: u64 = 1_500;
const AWAY_MS: u64 = 2_500;

/// How soon after its start one is killed again, at most, and one in how many is.
const AGAIN_MS: u64 = 600;
const AGAIN_ONE_IN: u64 = 3;

/// A kind of part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Controller,
    Hub,
    Edge,
    Broker,
}

const KINDS: [Kind; 4] = [Kind::Controller, Kind::Hub, Kind::Edge, Kind::Broker];

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Kill,
    Freeze,
}

/// What is done in a round, to one part or to two at once.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    harm: Harm,
    parts: Vec<(Kind, &'static str)>,
    /// How long after the load began.
    after: Duration,
    /// How long what was killed stays away.
    away: Duration,
    /// When it is killed once more, from its start.
    again: Option<Duration>,
}

impl Fault {
    /// The kinds in a random order.
    pub(crate) fn order(chance: &mut Chance) -> [Kind; 4] {
        let mut order = KINDS;
        for at in (1..order.len()).rev() {
            let with = chance.below(at as u64 + 1);
            order.swap(at, usize::try_from(with).unwrap_or_default());
        }
        order
    }

    /// The fault of a round: first each alone is killed, then two pairs are, then everything is
    /// frozen once; after that it is all chance.
    pub(crate) fn of(round: u64, [a, b, c, d]: &[Kind; 4], chance: &mut Chance) -> Self {
        let (harm, kinds) = match round {
            1 => (Harm::Kill, vec![*a]),
            2 => (Harm::Kill, vec![*b]),
            3 => (Harm::Kill, vec![*c]),
            4 => (Harm::Kill, vec![*d]),
            5 => (Harm::Kill, vec![*a, *c]),
            6 => (Harm::Kill, vec![*b, *d]),
            7 => (Harm::Freeze, vec![*d]),
            8 => (Harm::Freeze, vec![*b]),
            9 => (Harm::Freeze, vec![*c, *a]),
            _ => {
                let harm = if chance.below(3) == 0 { Harm::Freeze } else { Harm::Kill };
                let (first, second) = (*chance.one_of(&KINDS), *chance.one_of(&KINDS));
                let both = [first, second].into_iter().take(1 + usize::from(first != second));
                (harm, both.collect())
            }
        };
        let name = |kind, chance: &mut Chance| match kind {
            Kind::Controller => "controller",
            Kind::Hub => *chance.one_of(&HUBS),
            Kind::Edge => *chance.one_of(&NODES),
            Kind::Broker => BROKER,
        };
        let parts = kinds.into_iter().map(|kind| (kind, name(kind, chance))).collect();
        let mut upto = |ms| Duration::from_millis(chance.below(ms));
        let (after, away, again) = (upto(LOAD_MS), upto(AWAY_MS), upto(AGAIN_MS));
        let again = (chance.below(AGAIN_ONE_IN) == 0 && harm == Harm::Kill).then_some(again);
        Self { harm, parts, after, away, again }
    }

    /// Does it, and says since when everything runs again.
    pub(crate) fn strike(&self, fleet: &mut Fleet) -> Instant {
        thread::sleep(self.after);
        match self.harm {
            Harm::Freeze => {
                self.parts.iter().for_each(|(_, part)| freeze(fleet, part));
                thread::sleep(FROZEN);
                self.parts.iter().for_each(|(_, part)| thaw(fleet, part));
            }
            Harm::Kill => {
                self.parts.iter().for_each(|(_, part)| kill(fleet, part));
                thread::sleep(self.away);
                if let Some(again) = self.again {
                    self.parts.iter().for_each(|(_, part)| start(fleet, part));
                    thread::sleep(again);
                    self.parts.iter().for_each(|(_, part)| kill(fleet, part));
                }
                // A part that needs the broker may start before it.
                let since = Instant::now();
                self.parts.iter().for_each(|(_, part)| start(fleet, part));
                return since;
            }
        }
        Instant::now()
    }

    /// What kind of fault it is: `kill -9 hub + broker`.
    pub(crate) fn kind(&self) -> String {
        let mut kinds: Vec<String> =
            self.parts.iter().map(|(kind, _)| format!("{kind:?}").to_lowercase()).collect();
        kinds.sort_unstable();
        let harm = match self.harm {
            Harm::Kill => "kill -9",
            Harm::Freeze => "freeze 15 s",
        };
        format!("{harm} {}", kinds.join(" + "))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.parts.iter().map(|(_, part)| *part).collect();
        write!(f, "{:?} {} {:?} into the load", self.harm, parts.join(" and "), self.after)?;
        match self.harm {
            Harm::Kill => write!(f, ", away for {:?}", self.away)?,
            Harm::Freeze => write!(f, ", for {FROZEN:?}")?,
        }
        self.again.map_or(Ok(()), |again| write!(f, ", again {again:?} after its start"))
    }
}

fn kill(fleet: &mut Fleet, part: &str) {
    match part {
        BROKER => fleet.kafka.broker(1).kill().expect("the broker is killed"),
        _ => fleet.part_mut(part).kill(),
    }
}

fn start(fleet: &mut Fleet, part: &str) {
    match part {
        BROKER => fleet.kafka.broker(1).start().expect("the broker starts again"),
        _ => fleet.part_mut(part).start_again(),
    }
}

fn freeze(fleet: &mut Fleet, part: &str) {
    match part {
        BROKER => fleet.kafka.broker(1).freeze().expect("the broker is frozen"),
        _ => fleet.part(part).freeze(),
    }
}

fn thaw(fleet: &mut Fleet, part: &str) {
    match part {
        BROKER => fleet.kafka.broker(1).thaw().expect("the broker goes on"),
        _ => fleet.part(part).thaw(),
    }
}
