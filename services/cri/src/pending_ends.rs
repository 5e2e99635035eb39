//! Containers that have ended, and of which the runtime does not say yet how. Each is asked for in a task of its own: a status that
//! hangs keeps no list waiting, and one that comes late counts as soon as it is there. An end that is pending for too long is given
//! up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_edged::runtime::{END_PENDING_MAX, Exit};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::facts;
use crate::id_claims::IdClaims;
use crate::inner::{self, Inner, STATUSES_MAX, Silent, StatusAnswer};
use crate::knowledge::{Fact, Phase, Run};
use crate::proto::Container;

/// A list waits so long for the statuses of all containers that have ended: a runtime gives them within milliseconds, and the
/// news of other pods wait meanwhile.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The same for the list at the start of the pod worker: a node may have hundreds of them after weeks, and its runtime may just
/// have started.
pub(crate) const ENDS_WITHIN_AT_OPEN: Duration = Duration::from_secs(5);

/// A status has one of [`STATUSES_MAX`] places for so long: a runtime gives it within milliseconds, and others wait for the place.
const ASKED_WITHIN: Duration = Duration::from_secs(3);

/// Statuses that did not come within [`ASKED_WITHIN`] have these places, so they take none of the others.
const SLOW_MAX: usize = 4;

/// The longest time between two lists that counts. It is longer than the slowest list that succeeds: two lists and the late
/// statuses of each take 20 s each, and the wait before it is seconds. After a longer time the runtime or this process was away,
/// and no end could become known.
const GAP_MAX: Duration = Duration::from_mins(2);

/// Why there is no answer of a status that is asked for.
const AWAITED: &str = "its status is awaited";

/// The containers that are asked for.
#[derive(Debug)]
pub(crate) struct PendingEnds {
    ids: IdClaims,
    /// Those of the latest list that are pending.
    times: Mutex<PendingTimes>,
    places: Semaphore,
    slow_places: Semaphore,
    /// The runtime is not used any more.
    stop: CancellationToken,
}

/// Since when ends are pending.
#[derive(Debug, Default)]
struct PendingTimes {
    /// By the ids of their containers.
    ids: BTreeMap<String, Instant>,
    /// The time of the latest list.
    noted_at: Option<Instant>,
}

impl PendingTimes {
    /// Notes all ends that are pending at `now`, and returns those that have been for too long.
    fn note(&mut self, pending: &BTreeSet<String>, now: Instant) -> BTreeSet<String> {
        let noted_at = self.noted_at.replace(now);
        if noted_at.is_some_and(|at| now.saturating_duration_since(at) > GAP_MAX) {
            self.ids.clear();
        }
        self.ids.retain(|id, _| pending.contains(id));
        let mut overdue = BTreeSet::new();
        for id in pending {
            let since = *self.ids.entry(id.clone()).or_insert(now);
            if now.saturating_duration_since(since) >= END_PENDING_MAX {
                overdue.insert(id.clone());
            }
        }
        self.ids.retain(|id, _| !overdue.contains(id));
        overdue
    }
}

/// A container that a list shows as ended, and that has no status at present.
#[derive(Debug)]
struct PendingEnd {
    id: String,
    /// Its run; `None`: it is no pod's.
    run: Option<Run>,
    /// It was made since the machine went up.
    is_of_boot: bool,
    /// Why it has no status.
    why: String,
}

impl PendingEnds {
    /// Asks for nothing any more after `stop`.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self {
            ids: IdClaims::default(),
            times: Mutex::default(),
            places: Semaphore::new(STATUSES_MAX),
            slow_places: Semaphore::new(SLOW_MAX),
            stop,
        }
    }

    /// Notes all ends that are pending after a list, and returns those that are given up.
    pub(crate) fn overdue(&self, pending: &BTreeSet<String>, now: Instant) -> BTreeSet<String> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).note(pending, now)
    }

    /// Whether an end was pending after the latest list.
    pub(crate) fn is_any(&self) -> bool {
        !self.times.lock().unwrap_or_else(PoisonError::into_inner).ids.is_empty()
    }

    /// Asks in a place, and again in a slow one if there is no answer soon.
    async fn in_turn<F: Future>(&self, ask: impl Fn() -> F) -> F::Output {
        // The semaphores are never closed.
        let place = self.places.acquire().await;
        let answer = timeout(ASKED_WITHIN, ask()).await;
        drop(place);
        if let Ok(answer) = answer {
            return answer;
        }
        let _place = self.slow_places.acquire().await;
        ask().await
    }
}

/// The runs of these containers, which a list shows as ended, each with what is known of it. Asks how each has ended, and waits
/// for the statuses until all are there or `within` is over. An end that no status says then is pending, or made up after
/// [`END_PENDING_MAX`]. What comes later is folded when it comes.
pub(crate) async fn ended_runs(
    inner: &Arc<Inner>,
    mut ended: Vec<(Container, Option<Run>)>,
    within: Duration,
    silent: &mut Silent,
) -> Vec<(String, Run)> {
    let until = Instant::now() + within;
    // A run whose end is known waits for a place after all others: their ends may be given up.
    ended.sort_by_key(|(_, known)| known.as_ref().is_some_and(Run::has_ended));
    let mut asked = Vec::with_capacity(ended.len());
    for (listed, known) in ended {
        let answer = begin(inner, listed.id.clone(), listed.pod_sandbox_id.clone());
        asked.push((listed, known, answer));
    }
    let (mut runs, mut pending) = (Vec::new(), Vec::new());
    for (listed, known, answer) in asked {
        match awaited(answer, until).await {
            Ok(run) => runs.extend(run),
            Err(why) => pending.push(without_status(inner, listed, known, why)),
        }
    }
    let overdue = overdue(inner, &pending);
    for PendingEnd { id, run, is_of_boot, why } in pending {
        let run = match run {
            Some(run) if overdue.contains(&id) => {
                Some(give_up(inner, &id, run, is_of_boot, &why).await)
            }
            run => run,
        };
        // No status is wanted any more of one that was given up.
        if !run.as_ref().is_some_and(Run::is_given_up) {
            silent.add_pending_end(&id, run.as_ref(), &why);
        }
        runs.extend(run.map(|run| (id, run)));
    }
    runs
}

/// The answer, if it comes before `until`, or why there is none.
async fn awaited(
    answer: Option<oneshot::Receiver<StatusAnswer<Run>>>,
    until: Instant,
) -> Result<Option<(String, Run)>, String> {
    let answer = match answer {
        Some(answer) => timeout_at(until, answer).await.ok().and_then(Result::ok),
        None => None,
    };
    answer
        .map_or_else(|| Err(AWAITED.to_owned()), |answer| answer.map_err(|error| error.to_string()))
}

/// What a list shows of a container without a status.
fn without_status(inner: &Inner, listed: Container, known: Option<Run>, why: String) -> PendingEnd {
    let known = known.map(|run| Run { phase: Phase::EndPending { started_at: None }, ..run });
    let run = known.or_else(|| inner.listed_run(&listed));
    let is_of_boot = facts::is_of_boot(&listed.annotations, &inner.node());
    PendingEnd { id: listed.id, run, is_of_boot, why }
}

/// The ids of those runs whose end has been pending for too long.
fn overdue(inner: &Inner, pending: &[PendingEnd]) -> BTreeSet<String> {
    let is_pending = |it: &&PendingEnd| {
        it.run.as_ref().is_some_and(|run| !run.has_ended())
            // An event may have shown it.
            && !inner.with(|knowledge| knowledge.run(&it.id).is_some_and(Run::has_ended))
    };
    let ids: BTreeSet<String> = pending.iter().filter(is_pending).map(|it| it.id.clone()).collect();
    inner.pending.overdue(&ids, Instant::now())
}

/// Makes up the end of a run whose end has been pending for too long. It is durable first. A run of an earlier boot is no failure of
/// its container: the machine went down under it.
async fn give_up(inner: &Inner, id: &str, run: Run, is_of_boot: bool, why: &str) -> Run {
    let started_at = inner.with(|knowledge| knowledge.run(id)?.phase.started_at());
    let exit = Exit::unobserved(started_at);
    let (pod, container, attempt) = (&run.pod, &run.container, run.attempt);
    let code = exit.code;
    tracing::warn!(%pod, container, attempt, code, why, "the end of a container is made up");
    if !is_of_boot && let Err(error) = inner.files.mark_interrupted(pod, container, attempt).await {
        tracing::warn!(%error, container, attempt, "a run of an earlier boot counts as a failure");
    }
    let written = inner.files.write_end(pod, container, attempt, &exit).await;
    if let Err(error) = written {
        tracing::warn!(%error, container, attempt, "the end of a container is not written down");
    }
    Run { phase: Phase::Exited(inner::end(exit, true)), ..run }
}

/// Begins to ask how a container has ended; `None` if it is being asked for.
fn begin(
    inner: &Arc<Inner>,
    id: String,
    sandbox: String,
) -> Option<oneshot::Receiver<StatusAnswer<Run>>> {
    let claim = inner.pending.ids.claim(&id)?;
    let (answer, answered) = oneshot::channel();
    let inner = inner.clone();
    tokio::spawn(async move {
        let asking = inner.pending.in_turn(|| inner.run_status(&id, &sandbox));
        let Some(status) = inner.pending.stop.run_until_cancelled(asking).await else { return };
        drop(claim);
        if let Err(status) = answer.send(status) {
            fold_late(&inner, &id, status);
        }
    });
    Some(answered)
}

/// Folds an answer for which no list waits any more.
fn fold_late(inner: &Inner, id: &str, answer: StatusAnswer<Run>) {
    match answer {
        // One that was removed meanwhile does not come back.
        Ok(Some((id, run))) if inner.with(|knowledge| knowledge.run(&id).is_some()) => {
            inner.learn(Fact::Run(id, run));
        }
        Ok(Some(_)) => {}
        Ok(None) => inner.learn(Fact::Gone { id: id.to_owned() }),
        // The next list asks again.
        Err(error) => tracing::debug!(%error, id, "the end of a container stays pending"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Notes these ends in every list after `from` and before `until`. None is given up.
    fn note_between(times: &mut PendingTimes, names: &[&str], from: Instant, until: Instant) {
        let mut at = from + GAP_MAX;
        while at < until {
            assert_eq!(times.note(&ids(names), at), ids(&[]));
            at += GAP_MAX;
        }
    }

    #[test]
    fn an_end_is_given_up_when_it_has_been_pending_for_too_long_in_all_lists_since() {
        let (first, mut times) = (Instant::now(), PendingTimes::default());
        let late = first + END_PENDING_MAX;
        assert_eq!(times.note(&ids(&["c1", "c2"]), first), ids(&[]));
        // The end of c2 is known meanwhile.
        note_between(&mut times, &["c1"], first, late);
        assert_eq!(times.note(&ids(&["c1", "c2"]), late), ids(&["c1"]));
        assert_eq!(times.ids.len(), 1, "only c2 is pending");
        let later = late + END_PENDING_MAX;
        note_between(&mut times, &["c2"], late, later);
        assert_eq!(times.note(&ids(&["c2"]), later), ids(&["c2"]));
        assert!(times.ids.is_empty());
    }

    #[test]
    fn a_time_without_lists_does_not_count() {
        let (first, mut times) = (Instant::now(), PendingTimes::default());
        let late = first + END_PENDING_MAX + Duration::from_secs(1);
        assert_eq!(times.note(&ids(&["c1"]), first), ids(&[]));
        assert_eq!(times.note(&ids(&["c1"]), late), ids(&[]));
        let later = late + END_PENDING_MAX;
        note_between(&mut times, &["c1"], late, later);
        assert_eq!(times.note(&ids(&["c1"]), later), ids(&["c1"]));
    }

    #[tokio::test(start_paused = true)]
    async fn statuses_that_hang_free_their_places_for_others() {
        let pending = Arc::new(PendingEnds::new(CancellationToken::new()));
        for _ in 0..STATUSES_MAX * 2 {
            let pending = pending.clone();
            tokio::spawn(async move { pending.in_turn(std::future::pending::<()>).await });
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        assert_eq!(pending.in_turn(|| std::future::ready(7)).await, 7);
        assert!(began.elapsed() < ASKED_WITHIN * 3, "{:?}", began.elapsed());
    }
}
