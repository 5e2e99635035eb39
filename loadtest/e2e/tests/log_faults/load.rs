//! A load that changes objects all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::scene::{Manifests, Pod};

/// Between two changes: some twenty a second.
const PACE: Duration = Duration::from_millis(50);

/// Changes the objects of some pods in turn until it is stopped.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    writes: Option<JoinHandle<u64>>,
    pods: Vec<Pod>,
}

impl Load {
    /// Begins; the first round has the number `after + 1`.
    pub(crate) fn start(manifests: Manifests, pods: Vec<Pod>, after: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, writing) = (is_over.clone(), pods.clone());
        let writes = thread::spawn(move || {
            let mut round = after;
            while !over.load(Ordering::Relaxed) {
                round += 1;
                for pod in &writing {
                    manifests.write(pod, round);
                    thread::sleep(PACE);
                }
            }
            round
        });
        Self { is_over, writes: Some(writes), pods }
    }

    /// Stops after a whole round; its number, and of whose objects.
    pub(crate) fn stop(mut self) -> (u64, Vec<Pod>) {
        self.is_over.store(true, Ordering::Relaxed);
        let writes = self.writes.take().expect("it is stopped once");
        (writes.join().expect("the disk takes what is written"), std::mem::take(&mut self.pods))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
