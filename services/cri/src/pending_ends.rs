//! Containers that have ended, and of which the runtime does not say yet how. Each is asked for in a task of its own: a status that
//! hangs keeps no list waiting, and one that comes late counts as soon as it is there.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::client::CallError;
use crate::inner::Inner;
use crate::knowledge::{Fact, Run};

/// A list waits so long for the statuses of all containers that have ended: a runtime gives them within milliseconds, and the
/// news of other pods wait meanwhile.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The same for the list at the start of the pod worker: a node may have hundreds of them after weeks, and its runtime may just
/// have started.
pub(crate) const ENDS_WITHIN_AT_OPEN: Duration = Duration::from_secs(5);

/// Statuses that are asked for at the same time: a few may hang, and the others go on.
const ASKED_MAX: usize = 8;

/// Why there is no answer of a status that is asked for.
const AWAITED: &str = "its status is awaited";

/// The containers that are asked for.
#[derive(Debug)]
pub(crate) struct PendingEnds {
    /// Their ids: those with a task, whether it has a place yet or not.
    ids: Mutex<BTreeSet<String>>,
    places: Semaphore,
}

/// The run by its status; `None`: it is gone, or no pod's.
type Answer = Result<Option<(String, Run)>, CallError>;

impl Default for PendingEnds {
    fn default() -> Self {
        Self { ids: Mutex::default(), places: Semaphore::new(ASKED_MAX) }
    }
}

impl PendingEnds {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        // The set is whole even if a thread died.
        work(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Asks how each of these containers has ended, which are named by their ids and those of their sandboxes. Waits for the statuses
/// until all are there or `within` is over; then the answer is why one is missing. What comes later is folded when it comes.
pub(crate) async fn ask(
    inner: &Arc<Inner>,
    ended: Vec<(String, String)>,
    within: Duration,
) -> Vec<Result<Option<(String, Run)>, String>> {
    let until = Instant::now() + within;
    let asked: Vec<_> = ended.into_iter().map(|(id, sandbox)| begin(inner, id, sandbox)).collect();
    let mut answers = Vec::with_capacity(asked.len());
    for answered in asked {
        let answer = match answered {
            Some(answered) => timeout_at(until, answered).await.ok().and_then(Result::ok),
            None => None,
        };
        answers.push(match answer {
            Some(Ok(status)) => Ok(status),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(AWAITED.to_owned()),
        });
    }
    answers
}

/// Begins to ask how a container has ended; `None` if it is being asked for.
fn begin(inner: &Arc<Inner>, id: String, sandbox: String) -> Option<oneshot::Receiver<Answer>> {
    if !inner.pending.with(|ids| ids.insert(id.clone())) {
        return None;
    }
    let (answer, answered) = oneshot::channel();
    let inner = inner.clone();
    tokio::spawn(async move {
        let status = {
            // The semaphore is never closed.
            let _place = inner.pending.places.acquire().await;
            inner.run_status(&id, &sandbox).await
        };
        inner.pending.with(|ids| ids.remove(&id));
        if let Err(status) = answer.send(status) {
            fold_late(&inner, &id, status);
        }
    });
    Some(answered)
}

/// Folds an answer for which no list waits any more.
fn fold_late(inner: &Inner, id: &str, answer: Answer) {
    match answer {
        // One that was removed meanwhile does not come back.
        Ok(Some((id, run))) if inner.with(|knowledge| knowledge.run(&id).is_some()) => {
            inner.learn(Fact::Run(id, run));
        }
        Ok(Some(_)) => {}
        // The next list lacks it.
        Ok(None) => inner.relist_soon.notify_one(),
        // The next list asks again.
        Err(error) => tracing::debug!(%error, id, "the end of a container stays pending"),
    }
}
