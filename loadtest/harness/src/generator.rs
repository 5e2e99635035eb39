//! The generator: says every change at its intended moment, whatever the system does (open loop).
//!
//! ```text
//!  schedule --maker--> lines --pacer: waits for the moment--> queue --writer--> objects socket
//!                                | how late it was                                 | answers
//!                                v                                                 v
//!                               lag                                              reader
//! ```
//!
//! Lines are made before their moments, and the pacer does nothing at a moment but hand one over, so
//! its lag is the machine's and not the system's: a controller that takes no lines fills the queue,
//! and every change that waits there grows older from its intended moment on.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use headwater_event::NodeName;
use serde::{Deserialize, Serialize};

use crate::latency::{Quantiles, histogram};
use crate::lock::lock;
use crate::object::{Kind, anchor_line, apply_line, delete_line};
use crate::punctual::punctual;
use crate::schedule::Schedule;

/// A run whose generator was later than this at its 99th percentile is void.
pub const LAG_P99_MS_MAX: f64 = 1.0;

/// Lines that wait for the socket: a minute of a thousand a second. With more the generator waits,
/// is late, and the run is void.
const QUEUE_LINES_MAX: usize = 65_536;

/// Lines that are made ahead of their moments: more than any burst, a few MiB.
const AHEAD_LINES_MAX: usize = 4_096;

/// A refusal that is kept in words; the rest is counted.
const REFUSALS_MAX: usize = 20;

/// The generator of one run, which has sent the objects that exist before the first change.
pub struct Generator {
    lines: SyncSender<Vec<u8>>,
    writing: JoinHandle<io::Result<()>>,
    reading: JoinHandle<io::Result<Answers>>,
    progress: Arc<Progress>,
}

/// How far the generator is.
#[derive(Debug, Default)]
pub struct Progress {
    handed_over: AtomicU64,
    queued: AtomicU64,
    written: AtomicU64,
    lag: Mutex<Lag>,
}

#[derive(Debug)]
struct Lag {
    measured: Histogram<u64>,
    last: Duration,
}

/// What the controller answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Lines that it read.
    pub lines: u64,
    /// Lines that took effect.
    pub accepted: u64,
    /// Lines that it refused.
    pub refused: u64,
    /// The first refusals, verbatim.
    pub refusals: Vec<String>,
}

/// What the generator can say of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Driven {
    /// How much later than intended changes were handed over.
    pub lag: Quantiles,
    /// Whether it had real-time priority, see [`punctual`].
    #[serde(default)]
    pub real_time: bool,
    /// Changes handed over, those of the warm-up included.
    pub handed_over: u64,
    /// What the controller answered.
    pub answers: Answers,
}

/// What goes wrong with the objects socket.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// It takes no lines.
    #[error("the objects socket does not take what is said")]
    Socket(#[from] io::Error),
    /// The writer is gone.
    #[error("the objects socket was closed in the midst of the run")]
    Closed,
}

impl Default for Lag {
    fn default() -> Self {
        Self { measured: histogram(), last: Duration::ZERO }
    }
}

impl Progress {
    /// Changes that were handed over.
    pub fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Lines that wait for the socket.
    pub fn waiting(&self) -> u64 {
        let written = self.written.load(Ordering::Relaxed);
        self.queued.load(Ordering::Relaxed).saturating_sub(written)
    }

    /// How late the last one was.
    pub fn lag(&self) -> Duration {
        lock(&self.lag).last
    }
}

impl Generator {
    /// Connects to the objects socket and says every object as it is before the first change.
    ///
    /// # Errors
    /// See [`GeneratorError`].
    pub fn set_up(
        socket: &Path,
        schedule: &Schedule,
        nodes: &[NodeName],
    ) -> Result<Self, GeneratorError> {
        let stream = UnixStream::connect(socket)?;
        let answers = stream.try_clone()?;
        let (lines, queued) = sync_channel(QUEUE_LINES_MAX);
        let progress = Arc::new(Progress::default());
        let writing = {
            let progress = progress.clone();
            thread::spawn(move || write(stream, &queued, &progress))
        };
        let reading = thread::spawn(move || read(answers));
        let generator = Self { lines, writing, reading, progress };
        let intended = rfc3339(SystemTime::now());
        for object in &schedule.objects {
            generator.say(apply_line(object, nodes, 0, schedule.seed, &intended))?;
        }
        if schedule.objects.iter().any(|object| object.kind == Kind::ConfigMap) {
            for node in nodes {
                generator.say(anchor_line(node, &schedule.objects))?;
            }
        }
        Ok(generator)
    }

    /// How far it is, to look at while it drives.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Says every change at its moment; `began` is the schedule's first. Lag counts from
    /// `measured_from` on.
    ///
    /// # Errors
    /// See [`GeneratorError`].
    pub fn drive(
        self,
        schedule: &Schedule,
        nodes: &[NodeName],
        began: Instant,
        measured_from: Duration,
    ) -> Result<Driven, GeneratorError> {
        let wall = SystemTime::now() + began.saturating_duration_since(Instant::now());
        let real_time = thread::scope(|scope| {
            let (made, lines) = sync_channel(AHEAD_LINES_MAX);
            scope.spawn(move || make(schedule, nodes, wall, &made));
            punctual(|real_time| {
                for (at, line) in lines {
                    let moment = began + at;
                    thread::sleep(moment.saturating_duration_since(Instant::now()));
                    let late = moment.elapsed();
                    self.progress.handed_over.fetch_add(1, Ordering::Relaxed);
                    self.say(line)?;
                    self.late(late, at >= measured_from);
                }
                Ok::<_, GeneratorError>(real_time)
            })
        })?;
        self.end(real_time)
    }

    /// Says that there is no more, and waits until the controller has everything.
    fn end(self, real_time: bool) -> Result<Driven, GeneratorError> {
        let Self { lines, writing, reading, progress } = self;
        drop(lines);
        writing.join().map_err(|_| GeneratorError::Closed)??;
        let answers = reading.join().map_err(|_| GeneratorError::Closed)??;
        let lag = Quantiles::of(&lock(&progress.lag).measured);
        Ok(Driven { lag, real_time, handed_over: progress.handed_over(), answers })
    }

    fn say(&self, line: Vec<u8>) -> Result<(), GeneratorError> {
        self.progress.queued.fetch_add(1, Ordering::Relaxed);
        self.lines.send(line).map_err(|_| GeneratorError::Closed)
    }

    fn late(&self, late: Duration, counts: bool) {
        let mut lag = lock(&self.progress.lag);
        lag.last = late;
        if counts {
            let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
            lag.measured.saturating_record(us.max(1));
        }
    }
}

impl Driven {
    /// Whether the generator kept up: without that a run is void. A lag that its samples do not
    /// carry is judged by its largest value.
    pub fn kept_up(&self) -> bool {
        let lag = self.lag.p99_ms.or(self.lag.max_ms);
        lag.is_none_or(|lag| lag <= LAG_P99_MS_MAX)
    }
}

/// Makes every line, as far ahead of its moment as the queue allows, until the receiver is gone.
fn make(
    schedule: &Schedule,
    nodes: &[NodeName],
    wall: SystemTime,
    made: &SyncSender<(Duration, Vec<u8>)>,
) {
    for (turn, number) in schedule.turns.iter().zip(1..) {
        let Some(object) = schedule.objects.get(turn.object as usize) else { continue };
        let intended = rfc3339(wall + turn.at);
        let line = if turn.deletes {
            delete_line(object, &intended)
        } else {
            apply_line(object, nodes, number, schedule.seed, &intended)
        };
        if made.send((turn.at, line)).is_err() {
            return;
        }
    }
}

fn write(mut to: UnixStream, lines: &Receiver<Vec<u8>>, progress: &Progress) -> io::Result<()> {
    for line in lines {
        to.write_all(&line)?;
        progress.written.fetch_add(1, Ordering::Relaxed);
    }
    to.shutdown(Shutdown::Write)
}

fn read(from: UnixStream) -> io::Result<Answers> {
    #[derive(Deserialize)]
    struct Answer {
        lines: Option<u64>,
        accepted: Option<u64>,
        refused: Option<u64>,
        error: Option<String>,
    }
    let mut answers = Answers::default();
    for line in BufReader::new(from).lines() {
        let line = line?;
        let Ok(answer) = serde_json::from_str::<Answer>(&line) else { continue };
        if answer.error.is_some() && answers.refusals.len() < REFUSALS_MAX {
            answers.refusals.push(line);
        }
        if let (Some(lines), Some(accepted), Some(refused)) =
            (answer.lines, answer.accepted, answer.refused)
        {
            (answers.lines, answers.accepted, answers.refused) = (lines, accepted, refused);
        }
    }
    Ok(answers)
}

fn rfc3339(at: SystemTime) -> String {
    humantime::format_rfc3339_micros(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Content, ObjectSpec, turn_of};
    use crate::schedule::Turn;

    fn schedule(turns: u64) -> Schedule {
        let content = Content { bytes: 100, fresh: 10, plain: 0 };
        let object = ObjectSpec::new(0, Kind::Pod, "web".to_owned(), Some(0), content);
        let turn = |number| Turn { at: Duration::from_millis(number), object: 0, deletes: false };
        Schedule { objects: vec![object], turns: (1..=turns).map(turn).collect(), seed: 1 }
    }

    /// The lines that arrive at a socket that answers with `listen`.
    fn drive(turns: u64, listen: &'static str) -> (Driven, Vec<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("objects.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let hearing = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody comes");
            let heard = BufReader::new(stream.try_clone().expect("the same"));
            let lines: Vec<String> = heard.lines().map(|line| line.expect("text")).collect();
            stream.write_all(listen.as_bytes()).expect("heard");
            lines
        });
        let nodes = ["node-1".parse().expect("a name")];
        let schedule = schedule(turns);
        let generator = Generator::set_up(&path, &schedule, &nodes).expect("a socket");
        let began = Instant::now();
        let driven = generator.drive(&schedule, &nodes, began, Duration::ZERO);
        (driven.expect("driven"), hearing.join().expect("heard"))
    }

    #[test]
    fn every_change_is_said_once_and_in_order() {
        let (driven, lines) = drive(20, "{\"lines\": 21, \"accepted\": 20, \"refused\": 1}\n");
        assert_eq!((lines.len(), driven.handed_over), (21, 20));
        let turns = lines.iter().map(|line| turn_of(line.as_bytes()));
        assert!(turns.eq((0..=20).map(Some)));
        assert!(lines.iter().all(|line| line.contains("\"intended_time\":\"20")));
        let answers = Answers { lines: 21, accepted: 20, refused: 1, refusals: Vec::new() };
        assert_eq!(driven.answers, answers);
        assert_eq!(driven.lag.count, 20);
    }

    #[test]
    fn a_refusal_is_kept_in_words() {
        let (driven, _) = drive(1, "{\"line\": 2, \"error\": \"no\"}\n{\"lines\": 2}\n");
        assert_eq!(driven.answers.refusals, ["{\"line\": 2, \"error\": \"no\"}"]);
    }

    #[test]
    fn a_generator_that_was_late_voids_the_run() {
        let lag = |count, p99_ms, max_ms| Driven {
            lag: Quantiles { count, p99_ms, max_ms, ..Quantiles::default() },
            ..Driven::default()
        };
        assert!(lag(2_000, Some(0.9), Some(30.0)).kept_up());
        assert!(!lag(2_000, Some(1.1), Some(30.0)).kept_up());
        assert!(!lag(10, None, Some(1.1)).kept_up(), "what is not carried is judged by its worst");
        assert!(lag(0, None, None).kept_up());
    }
}
