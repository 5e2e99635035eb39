//! The progress of a run on a terminal: one bar with the live rate and lag.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::lock::lock;
use crate::run::{Live, Observer};

/// The rate that is shown is that of this much time.
const RATE_OVER: Duration = Duration::from_secs(2);

/// A bar on stderr, if that is a terminal; else one line for each part of the run.
pub(super) struct Bar {
    bar: ProgressBar,
    last: Mutex<Option<(Instant, u64, f64)>>,
}

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, last: Mutex::default() }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Bar {
    fn phase(&self, what: &str) {
        if self.bar.is_hidden() {
            eprintln!("{what}");
        }
        self.bar.set_message(what.to_owned());
    }

    fn live(&self, live: Live) {
        if self.bar.length() != Some(live.changes) {
            let style = "{elapsed_precise} [{bar:30}] {pos}/{len} {msg}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                self.bar.set_style(style);
            }
            self.bar.set_length(live.changes);
        }
        self.bar.set_position(live.handed_over);
        let mut last = lock(&self.last);
        let now = Instant::now();
        let (then, seen, rate) = last.unwrap_or((now, live.seen, 0.0));
        let passed = now - then;
        let rate = if passed >= RATE_OVER {
            let rate = live.seen.saturating_sub(seen) as f64 / passed.as_secs_f64();
            *last = Some((now, live.seen, rate));
            rate
        } else {
            last.get_or_insert((now, live.seen, rate));
            rate
        };
        let lag_ms = live.lag.as_secs_f64() * 1e3;
        let waiting = live.waiting;
        self.bar.set_message(format!(
            "{rate:.0} visible/s, generator late {lag_ms:.2} ms, {waiting} lines wait"
        ));
    }
}
