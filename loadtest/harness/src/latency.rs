//! Latencies: histograms over the whole run and over each interval, kept raw.
//!
//! A quantile is given only where the samples carry it: p99 wants 1,000 of them, p99.9 wants
//! 100,000. Percentiles are never averaged: what is needed of several histograms is asked of their
//! sum.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use serde::{Deserialize, Serialize};

use crate::lock::lock;

/// The resolution of latencies, in microseconds.
pub const LATENCY_US_MIN: u64 = 1;

/// The longest latency that is recorded exactly, in microseconds.
pub const LATENCY_US_MAX: u64 = 60_000_000;

/// Digits that are kept.
const DIGITS: u8 = 3;

/// Samples that a quantile wants. Between two lines the first holds.
const SAMPLES_MIN: [(f64, u64); 4] = [(0.999, 100_000), (0.99, 1_000), (0.9, 100), (0.0, 1)];

/// Latencies, recorded from many threads.
#[derive(Debug)]
pub struct Latency {
    inner: Mutex<Inner>,
    interval: Duration,
}

#[derive(Debug)]
struct Inner {
    whole: Histogram<u64>,
    current: Histogram<u64>,
    /// When the first interval began.
    began: Instant,
    wall: SystemTime,
    intervals: Vec<Interval>,
    over: u64,
}

/// An interval of the run; its histogram is kept small, without the room for what is not there.
#[derive(Clone, Debug)]
struct Interval {
    start: Duration,
    length: Duration,
    histogram: Histogram<u64>,
}

/// The figures of latencies, in milliseconds. A quantile with too few samples is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Samples.
    pub count: u64,
    /// Those longer than [`LATENCY_US_MAX`]: they count as that.
    pub over_range: u64,
    /// The smallest.
    pub min_ms: Option<f64>,
    /// Half are below.
    pub p50_ms: Option<f64>,
    /// Wants 100 samples.
    pub p90_ms: Option<f64>,
    /// Wants 1,000 samples.
    pub p99_ms: Option<f64>,
    /// Wants 100,000 samples.
    pub p999_ms: Option<f64>,
    /// The largest.
    pub max_ms: Option<f64>,
}

/// Latencies of one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyAt {
    /// When it began, seconds from the first measured moment.
    pub at_s: f64,
    /// What came in it.
    #[serde(flatten)]
    pub quantiles: Quantiles,
}

/// A point of the percentile plot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// In 0..=1.
    pub quantile: f64,
    /// Milliseconds.
    pub ms: f64,
}

/// An empty histogram of the range and the digits that all here have.
pub fn histogram() -> Histogram<u64> {
    let made = Histogram::new_with_bounds(LATENCY_US_MIN, LATENCY_US_MAX, DIGITS);
    // The bounds are constants in order.
    made.unwrap_or_else(|_| Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("three digits")))
}

/// One sample of a histogram of microseconds.
pub fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    histogram.saturating_record(us.max(LATENCY_US_MIN));
}

impl Latency {
    /// Nothing was recorded yet; intervals have this length.
    pub fn new(interval: Duration) -> Self {
        let inner = Inner {
            whole: histogram(),
            current: histogram(),
            began: Instant::now(),
            wall: SystemTime::now(),
            intervals: Vec::new(),
            over: 0,
        };
        Self { inner: Mutex::new(inner), interval }
    }

    /// The first interval begins at `began`, which may lie ahead.
    pub fn begin(&self, began: Instant) {
        let mut inner = lock(&self.inner);
        inner.began = began;
        inner.wall = SystemTime::now() + began.saturating_duration_since(Instant::now());
    }

    /// One sample.
    pub fn record(&self, latency: Duration) {
        let mut inner = lock(&self.inner);
        inner.over += u64::from(latency > Duration::from_micros(LATENCY_US_MAX));
        record(&mut inner.whole, latency);
        record(&mut inner.current, latency);
    }

    /// Ends the intervals that are over at `now`; called more often than they end.
    pub fn turn(&self, now: Instant) {
        let mut inner = lock(&self.inner);
        let next = inner.next_start();
        if now.saturating_duration_since(inner.began) >= next + self.interval {
            inner.cut(now);
        }
    }

    /// Samples so far.
    pub fn count(&self) -> u64 {
        lock(&self.inner).whole.len()
    }

    /// All of them.
    pub fn whole(&self) -> Quantiles {
        let inner = lock(&self.inner);
        Quantiles { over_range: inner.over, ..Quantiles::of(&inner.whole) }
    }

    /// The percentile plot of all of them, as far as the samples carry it.
    pub fn percentiles(&self) -> Vec<Percentile> {
        let inner = lock(&self.inner);
        let steps = inner.whole.iter_quantiles(5);
        let carried = steps.filter(|step| carries(inner.whole.len(), step.quantile()));
        carried
            .map(|step| Percentile { quantile: step.quantile(), ms: ms(step.value_iterated_to()) })
            .collect()
    }

    /// Interval by interval.
    pub fn over_time(&self) -> Vec<LatencyAt> {
        let mut inner = lock(&self.inner);
        inner.cut(Instant::now());
        let at = |interval: &Interval| LatencyAt {
            at_s: interval.start.as_secs_f64(),
            quantiles: Quantiles::of(&interval.histogram),
        };
        inner.intervals.iter().map(at).collect()
    }

    /// Writes the interval log (HdrHistogram's V2 format), values in microseconds.
    ///
    /// # Errors
    /// As the writer.
    pub fn write_log(&self, to: &mut impl Write, comment: &str) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        inner.cut(Instant::now());
        let mut serializer = V2Serializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment(comment)
            .with_start_time(inner.wall)
            .with_base_time(inner.wall)
            .with_max_value_divisor(1_000.0)
            .begin_log_with(to, &mut serializer)?;
        for Interval { start, length, histogram } in &inner.intervals {
            log.write_histogram(histogram, *start, *length, None)
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
        }
        Ok(())
    }
}

impl Inner {
    fn next_start(&self) -> Duration {
        self.intervals.last().map_or(Duration::ZERO, |last| last.start + last.length)
    }

    /// Ends the current interval at `now`, if there is something in it or it lasted.
    fn cut(&mut self, now: Instant) {
        let start = self.next_start();
        let length = now.saturating_duration_since(self.began).saturating_sub(start);
        if length.is_zero() && self.current.is_empty() {
            return;
        }
        // What is cloned so has room for its own largest value only.
        let largest = self.current.max().max(2);
        let small = Histogram::new_with_bounds(LATENCY_US_MIN, largest, DIGITS);
        let mut small = small.unwrap_or_else(|_| histogram());
        let fits = small.add(&self.current).is_ok();
        let histogram = if fits { small } else { self.current.clone() };
        self.intervals.push(Interval { start, length, histogram });
        self.current.reset();
    }
}

impl Quantiles {
    /// What a histogram of microseconds says.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| {
            carries(histogram.len(), quantile).then(|| ms(histogram.value_at_quantile(quantile)))
        };
        let is_there = !histogram.is_empty();
        Self {
            count: histogram.len(),
            over_range: 0,
            min_ms: is_there.then(|| ms(histogram.min())),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: is_there.then(|| ms(histogram.max())),
        }
    }
}

/// Whether `samples` are enough to speak of a quantile.
pub fn carries(samples: u64, quantile: f64) -> bool {
    let wanted = SAMPLES_MIN.iter().find(|(from, _)| quantile >= *from);
    wanted.is_some_and(|(_, wanted)| samples >= *wanted)
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use hdrhistogram::serialization::{Deserializer, interval_log};

    use super::*;

    fn of(count: u64) -> Quantiles {
        let latency = Latency::new(Duration::from_secs(1));
        for sample in 1..=count {
            latency.record(Duration::from_micros(sample));
        }
        latency.whole()
    }

    #[test]
    fn a_quantile_that_the_samples_do_not_carry_is_absent() {
        let few = of(999);
        assert!(few.p90_ms.is_some() && few.p99_ms.is_none() && few.p999_ms.is_none());
        let more = of(1_000);
        assert!((0.98..1.0).contains(&more.p99_ms.expect("carried")) && more.p999_ms.is_none());
        assert!(of(99_999).p999_ms.is_none());
        assert!(of(100_000).p999_ms.is_some());
        assert_eq!(of(0), Quantiles::default());
        assert!(of(99).p90_ms.is_none());
    }

    #[test]
    fn a_latency_above_the_range_is_counted() {
        let latency = Latency::new(Duration::from_secs(1));
        latency.record(Duration::from_secs(61));
        latency.record(Duration::ZERO);
        let whole = latency.whole();
        assert_eq!((whole.count, whole.over_range), (2, 1));
        assert!(whole.max_ms.expect("some") >= 60_000.0);
    }

    #[test]
    fn the_log_holds_every_sample_in_its_interval() {
        let latency = Latency::new(Duration::from_secs(1));
        let began = Instant::now();
        latency.begin(began);
        for second in 1..=3_u64 {
            (0..second).for_each(|_| latency.record(Duration::from_millis(second)));
            latency.turn(began + Duration::from_millis(500 + 1_000 * (second - 1)));
            latency.turn(began + Duration::from_secs(second));
        }
        assert_eq!(latency.inner.lock().expect("whole").intervals.len(), 3);
        let mut log = Vec::new();
        latency.write_log(&mut log, "a test").expect("written");
        let read = IntervalLogIterator::new(&log).map(|entry| entry.expect("well-formed"));
        let mut counts = Vec::new();
        for entry in read {
            if let LogEntry::Interval(interval) = entry {
                counts.push(samples(&interval));
            }
        }
        assert_eq!(counts[..3], [1, 2, 3]);
    }

    fn samples(interval: &interval_log::IntervalLogHistogram<'_>) -> u64 {
        let raw = base64_decoded(interval.encoded_histogram());
        let mut deserializer = Deserializer::new();
        let histogram: Histogram<u64> =
            deserializer.deserialize(&mut raw.as_slice()).expect("a histogram");
        histogram.len()
    }

    fn base64_decoded(text: &str) -> Vec<u8> {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
    }
}
