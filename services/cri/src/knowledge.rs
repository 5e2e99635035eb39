//! What is known of this node's sandboxes and containers: one pure fold of containerd's events, of statuses and
//! of lists.
//!
//! Events come late, twice, in any order or not at all, and a status lags behind them: the runtime says that a
//! container runs for 50 to 280 ms after its end. Three rules make any such sequence end in the same knowledge as
//! the list that follows it:
//!
//! - *An id that was seen ended never runs again.* A later status adds what an event does not say, and takes
//!   nothing back: not the code of an end that the runtime itself has lost ([`UNSEEN`]), and not that the kernel
//!   killed a process for memory.
//! - *The end of a process is the end of a run only if the run has started.* containerd kills the process of a start
//!   that is cut off, and reports that end like any other. Until a status says that the run started, or how the
//!   start ended, the run is a created one whose process has ended ([`Run::process_end`]).
//! - *No code is made up at once.* A list says that a run has ended, and not how. Until an event or a status says it, the end is
//!   pending ([`Phase::EndPending`]): the run does not run, and nothing takes its place. The pod worker gives up after minutes
//!   ([`GIVEN_UP`]): nothing takes that back, because it was reported.
//! - A list replaces everything except what changed after the list began. A run that it lacks is forgotten: the runtime does not
//!   have it any more, and the pod worker makes up its end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use headwater_edged::pod::PodUid;
use headwater_edged::runtime::UNOBSERVED;
use jiff::Timestamp;

/// The reason of a run whose end the runtime did not see: the machine or the runtime stopped at that moment.
pub const UNSEEN: &str = "Unknown";

/// The reason of a run of which the runtime did not say in time how it ended, as a kubelet's.
pub const GIVEN_UP: &str = UNOBSERVED;

/// The reason of a run in which the kernel killed a process for memory.
pub const OUT_OF_MEMORY: &str = "OOMKilled";

/// Everything that is known. See the module.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    sandboxes: BTreeMap<String, Entry<Sandbox>>,
    runs: BTreeMap<String, Entry<Run>>,
    /// What the pod worker removed after the latest list began.
    removed: BTreeMap<String, Moment>,
    now: Moment,
}

/// A moment in the order of facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

#[derive(Clone, Debug)]
struct Entry<T> {
    value: T,
    since: Moment,
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its pod.
    pub pod: PodUid,
    /// Its number, from 0.
    pub attempt: u32,
    /// Containers can start in it.
    pub is_ready: bool,
    /// The pod worker closed it. A status does not say so: it keeps what is known.
    pub is_closed: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The pod.
    pub pod: PodUid,
    /// The container's name.
    pub container: String,
    /// The number of the run, from 0.
    pub attempt: u32,
    /// The id of its sandbox.
    pub sandbox: String,
    /// The id of its image.
    pub image_id: Option<Arc<str>>,
    /// Its log file.
    pub log: PathBuf,
    /// When it fails without a message, the end of its log is the message.
    pub falls_back_to_logs: bool,
    /// The kernel killed a process of it for memory.
    pub is_oom: bool,
    /// The end of its process, until a status shows that the run started, or how it ended.
    pub process_end: Option<ProcessEnd>,
    /// Its state.
    pub phase: Phase,
}

/// The end of a process as an event reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// The exit code.
    pub code: i32,
    /// The time.
    pub at: Timestamp,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It was made, and was not started yet.
    Created,
    /// It runs.
    Running {
        /// The time of its start.
        started_at: Timestamp,
    },
    /// A list has it as ended, and it is not known yet how it ended.
    EndPending {
        /// The time of its start, if it is known that it started.
        started_at: Option<Timestamp>,
    },
    /// It has ended.
    Exited(End),
}

impl Phase {
    /// The time of the start, if it is known that the run started.
    pub fn started_at(&self) -> Option<Timestamp> {
        match self {
            Self::Created => None,
            Self::Running { started_at } => Some(*started_at),
            Self::EndPending { started_at } => *started_at,
            Self::Exited(end) => end.started_at,
        }
    }
}

impl Run {
    /// Whether it is known how it ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Exited(_))
    }

    /// Whether its [end was made up](End::is_given_up).
    pub fn is_given_up(&self) -> bool {
        matches!(&self.phase, Phase::Exited(end) if end.is_given_up())
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The exit code.
    pub code: i32,
    /// The time of its start, if it started.
    pub started_at: Option<Timestamp>,
    /// The time of its end.
    pub finished_at: Timestamp,
    /// One word.
    pub reason: String,
    /// The runtime's words.
    pub message: String,
    /// A status says it that was read after everything about the end had come, and not an event alone.
    pub is_status: bool,
    /// It ended for the machine's sake: with an earlier boot, or because its start was cut off.
    pub is_interrupted: bool,
}

impl End {
    /// The end of a run that an event reported.
    pub fn observed(
        code: i32,
        started_at: Option<Timestamp>,
        finished_at: Timestamp,
        is_oom: bool,
    ) -> Self {
        let reason = match code {
            _ if is_oom => OUT_OF_MEMORY,
            0 => "Completed",
            _ => "Error",
        };
        Self {
            code,
            started_at,
            finished_at,
            reason: reason.to_owned(),
            message: String::new(),
            is_status: false,
            is_interrupted: false,
        }
    }

    /// Whether the runtime lost the end, and its code is invented.
    pub fn is_unseen(&self) -> bool {
        self.reason == UNSEEN || self.is_given_up()
    }

    /// Whether the runtime did not say in time how the run ended. No later word counts.
    pub fn is_given_up(&self) -> bool {
        self.reason == GIVEN_UP
    }
}

/// Something that was learnt.
#[derive(Clone, Debug)]
pub enum Fact {
    /// All sandboxes and runs of this node.
    List {
        /// [`Knowledge::now`] when the list began.
        began: Moment,
        /// The sandboxes by id.
        sandboxes: Vec<(String, Sandbox)>,
        /// The runs by id.
        runs: Vec<(String, Run)>,
    },
    /// The status of a sandbox.
    Sandbox(String, Sandbox),
    /// The status of a run.
    Run(String, Run),
    /// The process with this id has ended: that of a sandbox or of a container.
    Exit {
        /// The id.
        id: String,
        /// The exit code.
        code: i32,
        /// The time.
        at: Timestamp,
    },
    /// The kernel killed a process of this container for memory.
    OutOfMemory {
        /// The id.
        id: String,
    },
    /// The pod worker closed this sandbox.
    Closed {
        /// The id.
        id: String,
    },
    /// The runtime does not have this container any more.
    Gone {
        /// The id.
        id: String,
    },
    /// The pod worker removed this sandbox or container.
    Removed {
        /// The id.
        id: String,
    },
}

impl Knowledge {
    /// The current moment, with which a list begins.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Learns a fact, and returns the pods that changed by it.
    pub fn fold(&mut self, fact: Fact) -> BTreeSet<PodUid> {
        self.now.0 += 1;
        let mut changed = BTreeSet::new();
        match fact {
            Fact::List { began, sandboxes, runs } => {
                self.removed.retain(|_, at| *at > began);
                changed.extend(forget(&mut self.sandboxes, &sandboxes, began, |it| &it.pod));
                changed.extend(forget(&mut self.runs, &runs, began, |it| &it.pod));
                for (id, sandbox) in sandboxes {
                    changed.extend(self.learn_sandbox(id, sandbox, Some(began)));
                }
                for (id, run) in runs {
                    changed.extend(self.learn_run(id, run, Some(began)));
                }
            }
            Fact::Sandbox(id, sandbox) => changed.extend(self.learn_sandbox(id, sandbox, None)),
            Fact::Run(id, run) => changed.extend(self.learn_run(id, run, None)),
            Fact::Exit { id, code, at } => changed.extend(self.end(&id, code, at)),
            Fact::OutOfMemory { id } => {
                if let Some(Entry { value: run, .. }) = self.runs.get_mut(&id) {
                    run.is_oom = true;
                    // The kernel's word may come after that of the end.
                    if let Phase::Exited(end) = &mut run.phase
                        && end.reason != OUT_OF_MEMORY
                        && !end.is_unseen()
                    {
                        OUT_OF_MEMORY.clone_into(&mut end.reason);
                        changed.insert(run.pod.clone());
                    }
                }
            }
            Fact::Closed { id } => {
                if let Some(Entry { value: sandbox, .. }) = self.sandboxes.get_mut(&id) {
                    (sandbox.is_closed, sandbox.is_ready) = (true, false);
                    changed.insert(sandbox.pod.clone());
                }
            }
            Fact::Gone { id } => changed.extend(self.runs.remove(&id).map(|it| it.value.pod)),
            Fact::Removed { id } => {
                let sandbox = self.sandboxes.remove(&id).map(|entry| entry.value.pod);
                let run = self.runs.remove(&id).map(|entry| entry.value.pod);
                changed.extend(sandbox.into_iter().chain(run));
                self.removed.insert(id, self.now);
            }
        }
        changed
    }

    fn learn_sandbox(&mut self, id: String, new: Sandbox, began: Option<Moment>) -> Option<PodUid> {
        if self.removed.contains_key(&id) {
            return None;
        }
        let old = self.sandboxes.get(&id);
        let merged = match old {
            Some(Entry { value: old, .. }) => {
                let has_left = new.addresses.is_empty();
                let addresses = if has_left { old.addresses.clone() } else { new.addresses };
                let is_ready = old.is_ready && new.is_ready;
                Sandbox { is_ready, is_closed: old.is_closed || new.is_closed, addresses, ..new }
            }
            None => new,
        };
        let is_new = old.is_none_or(|old| old.value != merged);
        let pod = is_new.then(|| merged.pod.clone());
        let since = since(old.map(|old| old.since), began, self.now);
        self.sandboxes.insert(id, Entry { value: merged, since });
        pod
    }

    fn learn_run(&mut self, id: String, new: Run, began: Option<Moment>) -> Option<PodUid> {
        if self.removed.contains_key(&id) {
            return None;
        }
        let old = self.runs.get(&id);
        let merged = match old {
            Some(Entry { value: old, .. }) => merge(old, new),
            None => new,
        };
        let is_new = old.is_none_or(|old| old.value != merged);
        let pod = is_new.then(|| merged.pod.clone());
        let since = since(old.map(|old| old.since), began, self.now);
        self.runs.insert(id, Entry { value: merged, since });
        pod
    }

    fn end(&mut self, id: &str, code: i32, at: Timestamp) -> Option<PodUid> {
        if let Some(Entry { value: sandbox, .. }) = self.sandboxes.get_mut(id) {
            let was_ready = std::mem::replace(&mut sandbox.is_ready, false);
            return was_ready.then(|| sandbox.pod.clone());
        }
        let run = &mut self.runs.get_mut(id)?.value;
        match run.phase {
            Phase::Running { started_at } | Phase::EndPending { started_at: Some(started_at) } => {
                run.phase = Phase::Exited(End::observed(code, Some(started_at), at, run.is_oom));
            }
            // The process may be that of a start that was cut off.
            Phase::Created | Phase::EndPending { started_at: None }
                if run.process_end.is_none() =>
            {
                run.process_end = Some(ProcessEnd { code, at });
            }
            Phase::Created | Phase::EndPending { .. } | Phase::Exited(_) => return None,
        }
        Some(run.pod.clone())
    }

    /// The pods that have a sandbox or a run.
    pub fn pods(&self) -> BTreeSet<PodUid> {
        let sandboxes = self.sandboxes.values().map(|entry| &entry.value.pod);
        sandboxes.chain(self.runs.values().map(|entry| &entry.value.pod)).cloned().collect()
    }

    /// A sandbox by id.
    pub fn sandbox(&self, id: &str) -> Option<&Sandbox> {
        Some(&self.sandboxes.get(id)?.value)
    }

    /// A run by id.
    pub fn run(&self, id: &str) -> Option<&Run> {
        Some(&self.runs.get(id)?.value)
    }

    /// All runs with their ids.
    pub fn runs(&self) -> impl Iterator<Item = (&str, &Run)> {
        self.runs.iter().map(|(id, entry)| (id.as_str(), &entry.value))
    }

    /// The sandboxes of a pod with their ids, the first one first.
    pub fn sandboxes_of(&self, pod: &PodUid) -> Vec<(&str, &Sandbox)> {
        let all = self.sandboxes.iter().map(|(id, entry)| (id.as_str(), &entry.value));
        let mut all: Vec<_> = all.filter(|(_, sandbox)| sandbox.pod == *pod).collect();
        all.sort_by_key(|(_, sandbox)| sandbox.attempt);
        all
    }

    /// The runs of a container with their ids, the first one first.
    pub fn runs_of(&self, pod: &PodUid, container: &str) -> Vec<(&str, &Run)> {
        let of = |run: &Run| run.pod == *pod && run.container == container;
        let mut all: Vec<_> = self.runs().filter(|(_, run)| of(run)).collect();
        all.sort_by_key(|(_, run)| run.attempt);
        all
    }

    /// The latest run of a container that was started, with its id.
    pub fn latest_started(&self, pod: &PodUid, container: &str) -> Option<(&str, &Run)> {
        let mut runs = self.runs_of(pod, container);
        runs.retain(|(_, run)| run.phase != Phase::Created);
        runs.pop()
    }

    /// The names of a pod's containers.
    pub fn containers(&self, pod: &PodUid) -> BTreeSet<&str> {
        let runs = self.runs().filter(|(_, run)| run.pod == *pod);
        runs.map(|(_, run)| run.container.as_str()).collect()
    }
}

/// What a list says is as old as the list, unless the entry is younger.
fn since(old: Option<Moment>, began: Option<Moment>, now: Moment) -> Moment {
    match began {
        Some(began) => old.unwrap_or(began).max(began),
        None => now,
    }
}

/// Forgets what a list lacks, unless it came after the list began.
fn forget<T>(
    known: &mut BTreeMap<String, Entry<T>>,
    listed: &[(String, T)],
    began: Moment,
    pod: impl Fn(&T) -> &PodUid,
) -> Vec<PodUid> {
    let listed: BTreeSet<&str> = listed.iter().map(|(id, _)| id.as_str()).collect();
    let mut changed = Vec::new();
    known.retain(|id, entry| {
        let stays = listed.contains(id.as_str()) || entry.since > began;
        if !stays {
            changed.push(pod(&entry.value).clone());
        }
        stays
    });
    changed
}

/// A run after a status.
fn merge(old: &Run, new: Run) -> Run {
    if matches!(new.phase, Phase::EndPending { .. }) {
        return after_list(old);
    }
    if old.is_given_up() {
        return old.clone();
    }
    let is_oom = old.is_oom || new.is_oom;
    let process_end = old.process_end.or(new.process_end);
    let started_at = match &new.phase {
        Phase::Running { started_at } => Some(*started_at),
        // The runtime was killed before it wrote the end down.
        Phase::Exited(end) if end.is_unseen() => end.started_at,
        Phase::Created | Phase::EndPending { .. } | Phase::Exited(_) => None,
    };
    // It has started, and the end of its process was its end.
    let observed = process_end.zip(started_at).map(|(ProcessEnd { code, at }, started_at)| {
        Phase::Exited(End::observed(code, Some(started_at), at, is_oom))
    });
    let mut phase = match (&old.phase, &new.phase) {
        (Phase::EndPending { .. }, Phase::Created) => old.phase.clone(),
        // The status lags.
        (Phase::EndPending { .. }, Phase::Running { started_at }) => {
            observed.unwrap_or(Phase::EndPending { started_at: Some(*started_at) })
        }
        (Phase::Created | Phase::EndPending { .. }, new) => observed.unwrap_or_else(|| new.clone()),
        // The status lags.
        (Phase::Exited(end), Phase::Running { started_at }) => {
            let started_at = end.started_at.or(Some(*started_at));
            Phase::Exited(End { started_at, ..end.clone() })
        }
        (Phase::Exited(_) | Phase::Running { .. }, Phase::Created) => old.phase.clone(),
        // A list that began before the status came.
        (Phase::Exited(end), Phase::Exited(new)) if end.is_status && !new.is_status => {
            old.phase.clone()
        }
        // The runtime was killed between the event and its own record of the end.
        (Phase::Exited(end), Phase::Exited(new)) if new.is_unseen() && !end.is_unseen() => {
            Phase::Exited(End { is_status: new.is_status, ..end.clone() })
        }
        _ => new.phase.clone(),
    };
    if let Phase::Exited(end) = &mut phase
        && is_oom
        && !end.is_unseen()
    {
        OUT_OF_MEMORY.clone_into(&mut end.reason);
    }
    let is_open = matches!(phase, Phase::Created | Phase::EndPending { .. });
    Run { phase, is_oom, process_end: process_end.filter(|_| is_open), ..new }
}

/// A run after a list that has it as ended, and says no more of it than is known.
fn after_list(old: &Run) -> Run {
    let phase = match &old.phase {
        Phase::Created | Phase::Running { .. } => {
            Phase::EndPending { started_at: old.phase.started_at() }
        }
        Phase::EndPending { .. } | Phase::Exited(_) => old.phase.clone(),
    };
    Run { phase, ..old.clone() }
}

#[cfg(test)]
mod tests;
