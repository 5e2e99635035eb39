//! What the machine can do before and after a row. Figures of two days differ with the machine, and
//! the yardstick shows by how much.
//!
//! Each quantity is sampled a bounded number of times and for a bounded time. Nothing of Headwater
//! is part of it.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use headwater_loadtest::failure::{Attempt, Failure};
use ring::digest::{SHA256, digest};

use crate::samples::{Samples, digits};

/// What the machine can do.
#[derive(Debug)]
pub(crate) struct Yardstick {
    /// MB/s of one core.
    sha256: Samples,
    /// From one thread to the other, us.
    switch: Samples,
    /// Of one byte and its answer, us.
    round_trip: Samples,
    /// Of a small write to a file where rows keep their databases, ms.
    fsync: Samples,
}

/// How long a quantity is sampled: four before a row and four after it take less than 2 s in all.
const WITHIN: Duration = Duration::from_millis(200);

/// A round trip that takes longer is a fault, not a slow machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How many blocks are hashed at most: a median needs no more.
const BLOCKS: usize = 100;

/// The size of one: a rate in MB/s is then one by the seconds.
const BLOCK_BYTES: usize = 1_000_000;

/// How many round trips there are at most: 40 ms of a common machine.
const ROUND_TRIPS: usize = 2_000;

/// How many syncs there are at most: a disk may take 4 ms for each.
const SYNCS: usize = 50;

/// What is written for each sync: a page.
const SYNC_BYTES: usize = 4_096;

/// How much larger the larger of two medians may be, as a part of the smaller: less is the noise of
/// a shared machine.
const DIFFERENCE: f64 = 0.2;

impl Yardstick {
    /// Measures the machine.
    ///
    /// # Errors
    /// When the system gives no sockets, or the disk takes nothing.
    pub(crate) fn take() -> Result<Self, Failure> {
        Ok(Self {
            sha256: hashes()?,
            switch: switches()?,
            round_trip: loopback_round_trips()?,
            fsync: syncs()?,
        })
    }

    /// Each quantity by its name, with its median and unit.
    fn medians(&self) -> [(&'static str, f64, &'static str); 4] {
        [
            ("SHA-256", self.sha256.median(), "MB/s"),
            ("a switch between two threads", self.switch.median(), "us"),
            ("a TCP round trip on loopback", self.round_trip.median(), "us"),
            ("fsync", self.fsync.median(), "ms"),
        ]
    }

    /// One line of this before a row and of `after`. It names the quantities that differ.
    fn beside(&self, after: &Self) -> String {
        let (mut shown, mut apart) = (Vec::new(), Vec::new());
        for ((what, before, unit), (_, after, _)) in self.medians().into_iter().zip(after.medians())
        {
            shown.push(format!("{what} {}/{} {unit}", digits(before), digits(after)));
            if differs(before, after) {
                apart.push(what);
            }
        }
        let line = format!("{} (median before/after)", shown.join(", "));
        if apart.is_empty() {
            return line;
        }
        let percent = DIFFERENCE * 100.0;
        format!("{line}; more than {percent:.0} % apart: {}", apart.join(", "))
    }
}

/// The line of a row: what the machine could do before it and after it. A yardstick that failed
/// costs no row: the line has the reason.
pub(crate) fn line(
    before: Result<Yardstick, Failure>,
    after: Result<Yardstick, Failure>,
) -> String {
    match (before, after) {
        (Ok(before), Ok(after)) => before.beside(&after),
        (Err(failure), _) | (_, Err(failure)) => format!("not measured: {}", failure.chain()),
    }
}

/// Whether the machine changed between two medians.
fn differs(before: f64, after: f64) -> bool {
    before.max(after) > before.min(after) * (1.0 + DIFFERENCE)
}

/// The seconds that `once` takes: `at_most` samples, and none begins after [`WITHIN`].
fn sample(
    at_most: usize,
    now: impl Fn() -> Instant,
    mut once: impl FnMut() -> Result<(), Failure>,
) -> Result<Samples, Failure> {
    let began = now();
    let mut before = began;
    let mut samples = Samples::default();
    while samples.count() < at_most && before.duration_since(began) < WITHIN {
        once()?;
        let after = now();
        samples.push(after.duration_since(before).as_secs_f64());
        before = after;
    }
    Ok(samples)
}

fn hashes() -> Result<Samples, Failure> {
    let block = vec![7_u8; BLOCK_BYTES];
    let seconds = sample(BLOCKS, Instant::now, || {
        black_box(digest(&SHA256, &block));
        Ok(())
    })?;
    Ok(seconds.iter().map(|seconds| 1.0 / seconds).collect())
}

fn switches() -> Result<Samples, Failure> {
    let (near, far) = UnixStream::pair().tried("making a pair of sockets")?;
    near.set_read_timeout(Some(ANSWER_WITHIN)).tried("making a pair of sockets")?;
    let seconds = round_trips(near, far)?;
    // There and back.
    Ok(seconds.iter().map(|seconds| seconds * 1e6 / 2.0).collect())
}

fn loopback_round_trips() -> Result<Samples, Failure> {
    let (near, far) = loopback().tried("connecting on loopback")?;
    let seconds = round_trips(near, far)?;
    Ok(seconds.iter().map(|seconds| seconds * 1e6).collect())
}

fn syncs() -> Result<Samples, Failure> {
    let folder = tempfile::tempdir().tried("making a folder")?;
    let mut file = File::create(folder.path().join("syncs")).tried("making a file")?;
    let page = [7; SYNC_BYTES];
    let seconds = sample(SYNCS, Instant::now, || {
        file.write_all(&page).and_then(|()| file.sync_all()).tried("syncing a file")
    })?;
    Ok(seconds.iter().map(|seconds| seconds * 1e3).collect())
}

/// Both ends of a connection.
fn loopback() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect_timeout(&listener.local_addr()?, ANSWER_WITHIN)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    near.set_read_timeout(Some(ANSWER_WITHIN))?;
    Ok((near, far))
}

/// Sends one byte after the other to a thread that sends each back.
fn round_trips<S: Read + Write + Send>(mut near: S, far: S) -> Result<Samples, Failure> {
    thread::scope(|scope| {
        scope.spawn(move || echo(far));
        let seconds = sample(ROUND_TRIPS, Instant::now, || {
            near.write_all(&[7]).and_then(|()| near.read_exact(&mut [0])).tried("a round trip")
        });
        // The thread ends when its input does.
        drop(near);
        seconds
    })
}

/// Sends back each byte until the other end is closed.
fn echo(mut stream: impl Read + Write) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn yardstick(sha256: f64, switch: f64, round_trip: f64, fsync: f64) -> Yardstick {
        Yardstick {
            sha256: sha256.into(),
            switch: switch.into(),
            round_trip: round_trip.into(),
            fsync: fsync.into(),
        }
    }

    /// Each look moves it on.
    fn clock(step: Duration) -> impl Fn() -> Instant {
        let now = Cell::new(Instant::now());
        move || now.replace(now.get() + step)
    }

    #[test]
    fn the_line_has_both_medians_of_each_quantity() {
        let (before, after) =
            (yardstick(412.0, 6.1, 21.0, 0.9), yardstick(405.0, 6.3, 22.14, 0.95));
        assert_eq!(
            line(Ok(before), Ok(after)),
            "SHA-256 412/405 MB/s, a switch between two threads 6.10/6.30 us, a TCP round trip on \
             loopback 21.0/22.1 us, fsync 0.900/0.950 ms (median before/after)"
        );
    }

    #[test]
    fn the_line_names_what_changed_meanwhile() {
        let (before, after) = (yardstick(400.0, 6.0, 20.0, 1.0), yardstick(200.0, 6.0, 20.0, 1.5));
        let line = line(Ok(before), Ok(after));
        let end = " ms (median before/after); more than 20 % apart: SHA-256, fsync";
        assert!(line.ends_with(end), "{line}");
    }

    #[test]
    fn a_yardstick_that_failed_is_named_with_the_reason() {
        let known = || Ok(yardstick(400.0, 6.0, 20.0, 1.0));
        let failed = || Err(Failure::of("it broke"));
        assert_eq!(line(failed(), known()), "not measured: it broke");
        assert_eq!(line(known(), failed()), "not measured: it broke");
    }

    #[test]
    fn medians_differ_beyond_a_fifth_of_the_smaller() {
        for (before, after, is) in
            [(100.0, 100.0, false), (100.0, 119.0, false), (100.0, 121.0, true), (1.0, 9.0, true)]
        {
            assert_eq!(differs(before, after), is, "{before} {after}");
            assert_eq!(differs(after, before), is, "{after} {before}");
        }
    }

    #[test]
    fn sampling_ends_by_count_by_time_and_by_failure() {
        let count = |step| sample(10, clock(step), || Ok(())).expect("nothing fails").count();
        assert_eq!(count(WITHIN / 100), 10);
        assert_eq!(count(WITHIN / 4), 4);
        assert_eq!(count(WITHIN * 2), 1);
        let failed = sample(10, clock(WITHIN), || Err(Failure::of("it broke")));
        assert_eq!(failed.expect_err("once fails").to_string(), "it broke");
    }

    #[test]
    fn this_machine_is_measured_within_the_counts() {
        let yardstick = Yardstick::take().expect("sockets, threads and a disk");
        for (samples, at_most) in [
            (&yardstick.sha256, BLOCKS),
            (&yardstick.switch, ROUND_TRIPS),
            (&yardstick.round_trip, ROUND_TRIPS),
            (&yardstick.fsync, SYNCS),
        ] {
            assert!((1..=at_most).contains(&samples.count()), "{} samples", samples.count());
            assert!(samples.iter().all(|sample| sample.is_finite() && sample > 0.0), "{samples}");
        }
    }
}
