//! The moments at which everything is killed.

use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::chance::Chance;
use headwater_e2e::running::Running;

use crate::witness::Witness;

/// Between two looks at whether it answers.
const POLL: Duration = Duration::from_millis(10);

/// When everything is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// This long after its start: in the midst of opening, recovering, claiming, connecting.
    Starting(Duration),
    /// This long after it answers.
    Running(Duration),
    /// It is asked to stop this long after it answered, and killed this much later.
    Stopping(Duration, Duration),
}

impl Moment {
    /// The moment of a round: every sixth stops, every third starts.
    pub(crate) fn of(round: u64, chance: &mut Chance) -> Self {
        let mut upto = |ms| Duration::from_millis(chance.below(ms));
        match round % 6 {
            0 => Self::Stopping(upto(600), upto(400)),
            2 | 4 => Self::Starting(upto(500)),
            _ => Self::Running(upto(2_000)),
        }
    }

    /// Whether pods are meant to end by it.
    pub(crate) fn stops_pods(self) -> bool {
        matches!(self, Self::Stopping(..))
    }

    /// Waits for the moment and kills. The witness writes down what it is shown until then.
    pub(crate) fn wait_and_kill(self, running: &mut Running, witness: &mut Witness) {
        if let Self::Starting(after) = self {
            thread::sleep(after);
            return running.kill();
        }
        running.wait_for("an answer", |running| running.text(&["status"]).map(drop));
        witness.attend(running);
        let (Self::Starting(after) | Self::Running(after) | Self::Stopping(after, _)) = self;
        let until = Instant::now() + after;
        while Instant::now() < until {
            witness.ask(running);
            thread::sleep(POLL);
        }
        if let Self::Stopping(_, later) = self {
            running.tell_to_stop();
            thread::sleep(later);
        }
        running.kill();
    }
}
