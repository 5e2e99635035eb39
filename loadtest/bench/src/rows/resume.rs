//! Rows 8 and 9: what an edge costs that comes back when 1 % of its pods have changed.

use std::time::{Duration, Instant};

use headwater_loadtest::failure::Failure;

use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::limit::patch;
use crate::link::Link;
use crate::run::Run;
use crate::samples::Samples;
use crate::waiting::wait;

const OBJECT_BYTES: usize = 4_000;

/// What a hello and its answer say besides the changes.
const GREETING_BYTES: usize = 64;

/// How many pods an edge has.
const SIZES: [u32; 2] = [110, 1_000];

/// What happens to the edge's position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cursor {
    Valid,
    Lost,
}

/// Row 8: the edge goes on from where it stood.
///
/// # Errors
/// When the edge does not come in step.
pub(crate) fn valid(run: &mut Run) -> Result<RowResult, Failure> {
    measure(run, Cursor::Valid, Bound::at_most(2.0, 1.2))
}

/// Row 9: what the edge stood at means nothing any more.
///
/// # Errors
/// When the edge does not come in step.
pub(crate) fn lost(run: &mut Run) -> Result<RowResult, Failure> {
    measure(run, Cursor::Lost, Bound::at_most(8.0, 3.0))
}

/// What coming back took.
struct Taken {
    down: f64,
    up: f64,
    ideal: f64,
    ms: f64,
}

fn measure(run: &mut Run, cursor: Cursor, bound: Bound) -> Result<RowResult, Failure> {
    let rounds = run.pick(5, 15);
    let mut measured = RowResult::default();
    for pods in SIZES {
        let mut node = Node::start(pods)?;
        let mut taken = Vec::new();
        for _ in 0..rounds {
            taken.push(node.come_back(cursor)?);
        }
        let of = |what: fn(&Taken) -> f64| taken.iter().map(what).collect::<Samples>();
        let what = format!("{pods} pods: bytes down");
        measured.push(
            Figure::ratio(&what, of(|one| one.down), IDEAL, of(|one| one.ideal)).held_to(bound),
        );
        let all = node.relist_bytes();
        let relist: Samples = taken.iter().map(|_| all).collect();
        let what = format!("{pods} pods: bytes both ways");
        let both = of(|one| one.down + one.up);
        let figure = Figure::ratio(&what, both, "relisting as JSON", relist);
        measured.push(match cursor {
            Cursor::Valid => figure.held_to(Bound::at_most(1.0 / 100.0, 1.0 / 300.0)),
            Cursor::Lost => figure,
        });
        let what = format!("{pods} pods: ms from the first byte to synced");
        measured.push(Figure::alone(&what, of(|one| one.ms)).latency());
        let what = format!("{pods} pods: bytes up");
        measured.push(Figure::alone(&what, of(|one| one.up)));
    }
    measured.set("changed", "1 % of the pods (2 of 110), one annotation each, while it was away");
    measured.set("object", format!("about {OBJECT_BYTES} bytes of JSON"));
    measured
        .set("ideal", format!("the changed objects in one zstd -3 frame, and {GREETING_BYTES}"));
    measured.set("counted", "bytes through a socket from the first of the connection to quiet");
    match cursor {
        Cursor::Valid => measured.note(
            "The part of a relist has no floor of its own: three times its target counts instead.",
        ),
        Cursor::Lost => measured.set("lost by", "deleting the topic and making it again"),
    }
    Ok(measured)
}

const IDEAL: &str = "the compressed changes";

/// A link whose edge has some pods.
struct Node {
    link: Link,
    turn: u32,
    /// The turn that made each pod.
    pods: Vec<u32>,
}

impl Node {
    fn start(pods: u32) -> Result<Self, Failure> {
        let pods = (0..pods).map(|_| 0).collect();
        let mut node = Self { link: Link::start(OBJECT_BYTES)?, turn: 0, pods };
        node.say_all()?;
        node.link.start_edge()?;
        node.link.in_step()?;
        Ok(node)
    }

    fn say_all(&mut self) -> Result<(), Failure> {
        self.link.say((0..).zip(self.pods.iter().copied()))
    }

    fn relist_bytes(&self) -> f64 {
        let all = (0..).zip(&self.pods);
        all.map(|(number, turn)| self.link.pods.object(number, *turn).len() as f64).sum()
    }

    fn come_back(&mut self, cursor: Cursor) -> Result<Taken, Failure> {
        self.link.quiet()?;
        self.link.cut();
        self.turn += 1;
        let (pods, turn) = (self.pods.len(), self.turn);
        let count = (pods / 100).max(2);
        let numbers = (0..count).map(|index| (turn as usize * count + index * 97) % pods);
        let changed: Vec<_> = numbers.map(|number| (number as u32, turn)).collect();
        changed.iter().for_each(|(number, turn)| self.pods[*number as usize] = *turn);
        let object = |(number, turn): &(u32, u32)| self.link.pods.object(*number, *turn);
        let bodies: Vec<_> = changed.iter().map(object).collect();
        let bodies: Vec<&[u8]> = bodies.iter().map(|body| &body[..]).collect();
        let ideal = (patch::frame_bytes(&bodies)? + GREETING_BYTES) as f64;
        match cursor {
            Cursor::Valid => self.link.say(changed)?,
            Cursor::Lost => {
                self.link.recreate_log()?;
                self.say_all()?;
                self.link.reconciled()?;
            }
        }
        let before = self.link.hop.traffic();
        self.link.mend();
        let link = &self.link;
        wait("the edge connects", || (link.hop.traffic().down > before.down).then_some(()))?;
        let began = Instant::now();
        link.in_step()?;
        let ms = began.elapsed().max(Duration::from_micros(1)).as_secs_f64() * 1e3;
        let passed = link.quiet()?.since(before);
        Ok(Taken { down: passed.down as f64, up: passed.up as f64, ideal, ms })
    }
}
