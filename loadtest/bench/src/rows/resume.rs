//! Rows 8 and 9: what an edge costs that comes back when 1 % of its pods have changed.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::bound::Bound;
use crate::failure::Failure;
use crate::figure::{Figure, RowResult};
use crate::limit::patch;
use crate::link::{Link, wait};
use crate::pods::{name, pod};
use crate::row::Run;
use crate::samples::Samples;

const OBJECT_BYTES: usize = 4_000;

/// What a hello and its answer say besides the changes.
const GREETING_BYTES: usize = 64;

/// How many pods an edge has.
const SIZES: [u64; 2] = [110, 1_000];

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

/// A link whose edge has so many pods.
struct Node {
    link: Link,
    pods: u64,
    turn: u64,
    /// What each pod is.
    objects: Vec<Bytes>,
}

impl Node {
    fn start(pods: u64) -> Result<Self, Failure> {
        let mut node = Self { link: Link::start()?, pods, turn: 0, objects: Vec::new() };
        node.objects = (0..pods).map(|number| node.object(number)).collect();
        node.say_all()?;
        node.link.start_edge()?;
        node.link.in_step()?;
        Ok(node)
    }

    fn object(&self, number: u64) -> Bytes {
        pod(self.link.node.as_str(), number, self.turn, OBJECT_BYTES).to_string().into()
    }

    fn name(&self, number: u64) -> String {
        name(self.link.node.as_str(), number)
    }

    fn say_all(&mut self) -> Result<(), Failure> {
        let all: Vec<_> = (0..self.pods)
            .zip(&self.objects)
            .map(|(number, object)| (self.name(number), Some(object.clone())))
            .collect();
        self.link.say(all)
    }

    fn relist_bytes(&self) -> f64 {
        self.objects.iter().map(|object| object.len() as f64).sum()
    }

    fn come_back(&mut self, cursor: Cursor) -> Result<Taken, Failure> {
        self.link.quiet()?;
        self.link.cut();
        self.turn += 1;
        let count = (self.pods / 100).max(2);
        let mut changed = Vec::new();
        for index in 0..count {
            let number = (self.turn * count + index * 97) % self.pods;
            let object = self.object(number);
            self.objects[usize::try_from(number).unwrap_or_default()] = object.clone();
            changed.push((self.name(number), Some(object)));
        }
        let bodies: Vec<&[u8]> =
            changed.iter().filter_map(|(_, object)| object.as_deref()).collect();
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
