//! When what is to change: made before the run from a seed, so that nothing that happens in the run
//! can move it (open loop).

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::object::{Content, Kind, ObjectSpec};
use crate::scenario::{Arrival, Mix, Scenario};

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it is intended, counted from the beginning of its load.
    pub at: Duration,
    /// Of which object.
    pub object: u32,
    /// Whether the object goes.
    pub deletes: bool,
}

/// The objects of a scenario.
pub fn objects(scenario: &Scenario) -> Vec<ObjectSpec> {
    let counts = &scenario.objects;
    let pods = (0..scenario.edges.count).flat_map(|node| {
        (0..counts.pods_per_edge)
            .map(move |pod| (Kind::Pod, Some(node), format!("web-{}-{pod}", node + 1)))
    });
    let maps = (0..counts.configmaps).map(|map| (Kind::ConfigMap, None, format!("map-{map}")));
    let services = (0..counts.services).map(|one| (Kind::Service, None, format!("svc-{one}")));
    let all = pods.chain(maps).chain(services).zip(0..);
    all.map(|((kind, node, name), index)| {
        let mix = scenario.load.mix.iter().find(|mix| mix.kind == kind);
        let content = mix.map_or_else(Content::default, Mix::content);
        ObjectSpec::new(index, kind, name, node, content)
    })
    .collect()
}

/// The changes of `objects`, in the order of their moments, that `scenario` has under `seed`.
pub fn turns(scenario: &Scenario, objects: &[ObjectSpec], seed: u64) -> Vec<Turn> {
    let mut random = StdRng::seed_from_u64(seed);
    let moments = moments(scenario, &mut random);
    let mut drawing = Drawing::new(scenario, objects);
    moments.into_iter().map(|at| drawing.draw(at, &mut random)).collect()
}

/// Changes of `objects`, one after the other at a fixed rate.
pub fn at_rate(per_second: u32, objects: impl IntoIterator<Item = u32>) -> Vec<Turn> {
    let at = |number| Duration::from_secs(number) / per_second;
    let turn = |(object, number)| Turn { at: at(number), object, deletes: false };
    objects.into_iter().zip(1..).map(turn).collect()
}

/// Changes of `objects` at one moment, or their removals.
pub fn at_once(objects: impl IntoIterator<Item = u32>, deletes: bool) -> Vec<Turn> {
    let turn = |object| Turn { at: Duration::ZERO, object, deletes };
    objects.into_iter().map(turn).collect()
}

/// The intended moments, in order.
fn moments(scenario: &Scenario, random: &mut StdRng) -> Vec<Duration> {
    let load = &scenario.load;
    let end = scenario.warm_up + scenario.duration;
    let mean = 1.0 / load.rate;
    let mut moments = Vec::new();
    let mut at = 0.0;
    loop {
        at += match load.arrival {
            Arrival::Fixed => mean,
            // Of what is in (0, 1], so that the logarithm is finite.
            Arrival::Poisson => -(1.0 - random.random::<f64>()).ln() * mean,
        };
        let moment = Duration::from_secs_f64(at);
        if moment >= end {
            break;
        }
        moments.push(moment);
    }
    if let Some(burst) = &load.burst {
        let mut at = scenario.warm_up + burst.every;
        while at < end {
            moments.extend(std::iter::repeat_n(at, burst.events));
            at += burst.every;
        }
        moments.sort();
    }
    moments
}

/// Draws which object changes, and how.
struct Drawing<'a> {
    mix: Vec<(&'a Mix, Vec<u32>)>,
    shares: f64,
    /// Whether each object is there.
    present: Vec<bool>,
}

impl<'a> Drawing<'a> {
    fn new(scenario: &'a Scenario, objects: &[ObjectSpec]) -> Self {
        let of_kind = |mix: &'a Mix| {
            let of_kind = objects.iter().filter(|object| object.kind == mix.kind);
            (mix, of_kind.map(|object| object.index).collect())
        };
        Self {
            mix: scenario.load.mix.iter().map(of_kind).collect(),
            shares: scenario.load.mix.iter().map(|mix| mix.share).sum(),
            present: vec![true; objects.len()],
        }
    }

    fn draw(&mut self, at: Duration, random: &mut StdRng) -> Turn {
        let mut left = random.random::<f64>() * self.shares;
        let last = self.mix.len().saturating_sub(1);
        let drawn = self.mix.iter().position(|(mix, _)| {
            left -= mix.share;
            left < 0.0
        });
        let (mix, objects) = &self.mix[drawn.unwrap_or(last)];
        let object = objects[random.random_range(0..objects.len())];
        let present = &mut self.present[object as usize];
        let deletes = *present && random.random::<f64>() < mix.deletes;
        *present = !deletes;
        Turn { at, object, deletes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(load: &str) -> Scenario {
        let text = format!(
            "about = \"a\"\nlimit = \"b\"\ntargets = [\"embedded\"]\nduration = \"20s\"\n\
             warm_up = \"5s\"\nedges = {{ count = 3, kind = \"light\" }}\n\
             objects = {{ pods_per_edge = 4, configmaps = 2, services = 1 }}\n[load]\n{load}\n\
             mix = [{{ kind = \"pod\", share = 3.0, bytes = 100, fresh = 10, deletes = 0.2 }},\n\
             {{ kind = \"service\", share = 1.0, bytes = 50, fresh = 5 }}]"
        );
        Scenario::parse("test", "test", &text, &[]).unwrap_or_else(|error| panic!("{error}"))
    }

    fn schedule(scenario: &Scenario, seed: u64) -> Vec<Turn> {
        turns(scenario, &objects(scenario), seed)
    }

    #[test]
    fn a_seed_is_a_whole_schedule() {
        let scenario = scenario("arrival = \"poisson\"\nrate = 500.0");
        assert_eq!(schedule(&scenario, 7), schedule(&scenario, 7));
        assert_ne!(schedule(&scenario, 7), schedule(&scenario, 8));
    }

    #[test]
    fn poisson_has_the_rate_and_the_spread_of_poisson() {
        let scenario = scenario("arrival = \"poisson\"\nrate = 1000.0");
        let turns = schedule(&scenario, 1);
        let count = turns.len() as f64;
        assert!((count - 25_000.0).abs() < 800.0, "five deviations: {count}");
        assert!(turns.is_sorted_by_key(|turn| turn.at));
        let gaps = turns.windows(2).map(|two| (two[1].at - two[0].at).as_secs_f64());
        let squares: f64 = gaps.map(|gap| (gap * 1000.0 - 1.0).powi(2)).sum::<f64>() / count;
        assert!((0.9..1.1).contains(&squares), "of an exponential gap it is 1: {squares}");
    }

    #[test]
    fn fixed_is_even_and_bursts_come_on_top() {
        let load = "arrival = \"fixed\"\nrate = 10.0\nburst = { every = \"6s\", events = 50 }";
        let turns = schedule(&scenario(load), 1);
        assert_eq!(turns.len(), 249 + 3 * 50, "bursts at 11 s, 17 s and 23 s");
        let at_once = turns.iter().filter(|turn| turn.at == Duration::from_secs(11));
        assert!((50..=51).contains(&at_once.count()));
    }

    #[test]
    fn what_was_deleted_is_made_anew_before_it_is_deleted_again() {
        let turns = schedule(&scenario("arrival = \"fixed\"\nrate = 400.0"), 3);
        let mut gone = std::collections::BTreeSet::new();
        for turn in &turns {
            let was_gone = gone.contains(&turn.object);
            if turn.deletes {
                assert!(!was_gone, "twice");
                gone.insert(turn.object);
            } else {
                gone.remove(&turn.object);
            }
        }
        assert!(turns.iter().any(|turn| turn.deletes));
        let services = turns.iter().filter(|turn| turn.object == 14).count() as f64;
        assert!((0.2..0.3).contains(&(services / turns.len() as f64)), "a quarter");
    }

    #[test]
    fn a_fixed_rate_begins_after_its_first_distance() {
        let turns = at_rate(4, [7, 8]);
        let said: Vec<_> = turns.iter().map(|turn| (turn.at.as_millis(), turn.object)).collect();
        assert_eq!(said, [(250, 7), (500, 8)]);
    }
}
