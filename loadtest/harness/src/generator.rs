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

use serde::{Deserialize, Serialize};

use crate::failure::{Attempt, Failure};
use crate::inventory::Inventory;
use crate::lock::lock;
use crate::pacer::{Lag, pace};
use crate::schedule::Turn;

/// Lines that wait for the socket: a minute of a thousand a second. With more the generator waits,
/// is late, and the run is void.
const QUEUE_LINES_MAX: usize = 65_536;

/// Lines that are made ahead of their moments: more than any burst, a few MiB.
const AHEAD_LINES_MAX: usize = 4_096;

/// A refusal that is kept in words; the rest is counted.
const REFUSALS_MAX: usize = 20;

/// What fails when a controller takes no lines.
const SOCKET: &str = "the objects socket does not take what is said";

/// The generator of one run, connected to an objects socket.
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
    last_lag: Mutex<Duration>,
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
        *lock(&self.last_lag)
    }
}

impl Generator {
    /// Connects to an objects socket.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn connect(socket: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket).tried(SOCKET)?;
        let answers = stream.try_clone().tried(SOCKET)?;
        let (lines, queued) = sync_channel(QUEUE_LINES_MAX);
        let progress = Arc::new(Progress::default());
        let writing = {
            let progress = progress.clone();
            thread::spawn(move || write(stream, &queued, &progress))
        };
        let reading = thread::spawn(move || read(answers));
        Ok(Self { lines, writing, reading, progress })
    }

    /// How far it is, to look at while it drives.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Says these objects as they are before the first change, and through which pods the nodes get
    /// what is named.
    ///
    /// # Errors
    /// When the socket takes no lines.
    pub fn set_up(
        &self,
        inventory: &Inventory,
        objects: impl IntoIterator<Item = u32>,
    ) -> Result<(), Failure> {
        let intended = rfc3339(SystemTime::now());
        for object in objects {
            let object = &inventory.objects[object as usize];
            self.say(inventory.apply_line(object, 0, &intended))?;
        }
        inventory.anchor_lines().try_for_each(|line| self.say(line))
    }

    /// Says every change at its moment, counted from `began`; the first is turn `first`. Lag counts
    /// from `measured_from` on.
    ///
    /// # Errors
    /// When the socket takes no lines.
    pub fn drive(
        &self,
        inventory: &Inventory,
        turns: &[Turn],
        first: u32,
        began: Instant,
        measured_from: Duration,
    ) -> Result<Lag, Failure> {
        let wall = SystemTime::now() + began.saturating_duration_since(Instant::now());
        thread::scope(|scope| {
            let (made, lines) = sync_channel(AHEAD_LINES_MAX);
            scope.spawn(move || make(inventory, turns, first, wall, &made));
            pace(began, measured_from, lines, |line, late| {
                self.progress.handed_over.fetch_add(1, Ordering::Relaxed);
                *lock(&self.progress.last_lag) = late;
                self.say(line)
            })
        })
    }

    /// Says that there is no more, and waits until the controller has everything.
    ///
    /// # Errors
    /// When the socket takes no lines.
    pub fn end(self) -> Result<Answers, Failure> {
        let Self { lines, writing, reading, .. } = self;
        drop(lines);
        writing.join().map_err(|_| closed())?.tried(SOCKET)?;
        reading.join().map_err(|_| closed())?.tried(SOCKET)
    }

    fn say(&self, line: Vec<u8>) -> Result<(), Failure> {
        self.progress.queued.fetch_add(1, Ordering::Relaxed);
        self.lines.send(line).map_err(|_| closed())
    }
}

fn closed() -> Failure {
    Failure::of("the objects socket was closed in the midst of the run")
}

/// Makes every line, as far ahead of its moment as the queue allows, until the receiver is gone.
fn make(
    inventory: &Inventory,
    turns: &[Turn],
    first: u32,
    wall: SystemTime,
    made: &SyncSender<(Duration, Vec<u8>)>,
) {
    for (turn, number) in turns.iter().zip(first..) {
        let object = &inventory.objects[turn.object as usize];
        let intended = rfc3339(wall + turn.at);
        let line = if turn.deletes {
            Inventory::delete_line(object, &intended)
        } else {
            inventory.apply_line(object, number, &intended)
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
    use crate::object::{Content, Kind, ObjectSpec, turn_of};

    /// The lines that arrive at a socket that answers with `listen`.
    fn drive(turns: u64, listen: &'static str) -> (Lag, Answers, Vec<String>) {
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
        let content = Content { bytes: 100, fresh: 10, plain: 0 };
        let object = ObjectSpec::new(0, Kind::Pod, "web".to_owned(), Some(0), content);
        let nodes = vec!["node-1".parse().expect("a name")];
        let inventory = Inventory { nodes, objects: vec![object], seed: 1 };
        let turn = |number| Turn { at: Duration::from_millis(number), object: 0, deletes: false };
        let turns: Vec<_> = (1..=turns).map(turn).collect();
        let generator = Generator::connect(&path).expect("a socket");
        generator.set_up(&inventory, [0]).expect("said");
        let lag = generator.drive(&inventory, &turns, 1, Instant::now(), Duration::ZERO);
        let answers = generator.end().expect("ended");
        (lag.expect("driven"), answers, hearing.join().expect("heard"))
    }

    #[test]
    fn every_change_is_sent_once_and_in_order() {
        let said = "{\"lines\": 21, \"accepted\": 20, \"refused\": 1}\n";
        let (lag, answers, lines) = drive(20, said);
        let turns = lines.iter().map(|line| turn_of(line.as_bytes()));
        assert!(turns.eq((0..=20).map(Some)));
        assert!(lines.iter().all(|line| line.contains("\"intended_time\":\"20")));
        let all = Answers { lines: 21, accepted: 20, refused: 1, refusals: Vec::new() };
        assert_eq!((answers, lag.quantiles.count), (all, 20));
    }

    #[test]
    fn a_refusal_is_kept_in_words() {
        let (_, answers, _) = drive(1, "{\"line\": 2, \"error\": \"no\"}\n{\"lines\": 2}\n");
        assert_eq!(answers.refusals, ["{\"line\": 2, \"error\": \"no\"}"]);
    }
}
