//! Events, statuses and lists in any order end in the same knowledge.

use proptest::prelude::*;

use super::*;

fn pod(number: u8) -> PodUid {
    PodUid::try_from(format!("pod-{number}")).expect("a UID")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn run(number: u8, phase: Phase) -> (String, Run) {
    let run = Run {
        pod: pod(number % 3),
        container: format!("c{}", number % 2),
        attempt: u32::from(number),
        sandbox: format!("s{}", number % 3),
        image_id: None,
        log: PathBuf::new(),
        falls_back_to_logs: false,
        is_oom: false,
        process_end: None,
        phase,
    };
    (format!("r{number}"), run)
}

fn running() -> Phase {
    Phase::Running { started_at: at(10) }
}

fn exited(code: i32, is_oom: bool) -> Phase {
    let reason = match code {
        _ if is_oom => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    Phase::Exited(End {
        code,
        started_at: Some(at(10)),
        finished_at: at(20),
        reason: reason.to_owned(),
        message: "the runtime's words".to_owned(),
        is_status: true,
        is_interrupted: false,
    })
}

/// The end of a start that the runtime cut off.
fn cut_off() -> Phase {
    Phase::Exited(End {
        code: 128,
        started_at: None,
        finished_at: at(20),
        reason: "StartError".to_owned(),
        message: "failed to start containerd task: context canceled".to_owned(),
        is_status: true,
        is_interrupted: true,
    })
}

fn sandbox(number: u8, is_ready: bool) -> (String, Sandbox) {
    let sandbox =
        Sandbox { pod: pod(number), attempt: 0, is_ready, is_closed: false, addresses: Vec::new() };
    (format!("s{number}"), sandbox)
}

/// A world in its last state: what a list says of it, and every event that led there.
#[derive(Clone, Debug)]
struct World {
    sandboxes: Vec<(String, Sandbox)>,
    runs: Vec<(String, Run)>,
    events: Vec<Fact>,
    lagging: Vec<(String, Run)>,
}

/// How a run of the world goes.
#[derive(Clone, Copy, Debug)]
enum Course {
    Runs,
    Ends { code: i32, is_oom: bool },
    IsCutOff,
}

fn course() -> impl Strategy<Value = Course> {
    prop_oneof![
        Just(Course::Runs),
        (0..3_i32, any::<bool>()).prop_map(|(code, is_oom)| Course::Ends { code, is_oom }),
        Just(Course::IsCutOff),
    ]
}

fn world() -> impl Strategy<Value = World> {
    let runs = prop::collection::vec(course(), 0..8);
    let sandboxes = prop::collection::vec(any::<bool>(), 3);
    (runs, sandboxes).prop_map(|(courses, ready)| {
        let mut world = World { sandboxes: vec![], runs: vec![], events: vec![], lagging: vec![] };
        for (number, is_ready) in (0..).zip(ready) {
            let (id, sandbox) = sandbox(number, is_ready);
            if !is_ready {
                world.events.push(Fact::Exit { id: id.clone(), code: 0, at: at(20) });
            }
            world.sandboxes.push((id, sandbox));
        }
        for (number, course) in (0..).zip(courses) {
            let (id, last) = match course {
                Course::Runs => run(number, running()),
                Course::Ends { code, is_oom } => run(number, exited(code, is_oom)),
                Course::IsCutOff => run(number, cut_off()),
            };
            let code = match course {
                Course::Runs => None,
                Course::Ends { code, is_oom } => {
                    if is_oom {
                        world.events.push(Fact::OutOfMemory { id: id.clone() });
                    }
                    Some(code)
                }
                // The runtime kills what it has started.
                Course::IsCutOff => Some(137),
            };
            let exit = |code| Fact::Exit { id: id.clone(), code, at: at(20) };
            world.events.extend(code.map(exit));
            world.lagging.push(run(number, Phase::Created));
            if !matches!(course, Course::IsCutOff) {
                world.lagging.push(run(number, running()));
            }
            world.runs.push((id, last));
        }
        world
    })
}

impl World {
    /// Folds a list that does not say how the runs with these numbers ended.
    fn list_without_ends(&self, knowledge: &mut Knowledge, hidden: &BTreeSet<usize>) {
        let (sandboxes, mut runs) = (self.sandboxes.clone(), self.runs.clone());
        for (number, (_, run)) in runs.iter_mut().enumerate() {
            if hidden.contains(&number) && matches!(run.phase, Phase::Exited(_)) {
                run.phase = Phase::EndPending { started_at: None };
            }
        }
        let began = knowledge.now();
        knowledge.fold(Fact::List { began, sandboxes, runs });
    }

    fn list(&self, knowledge: &mut Knowledge) {
        let (sandboxes, runs) = (self.sandboxes.clone(), self.runs.clone());
        let began = knowledge.now();
        knowledge.fold(Fact::List { began, sandboxes, runs });
    }
}

/// All but the mark that a process was killed for memory, which a status says by its reason.
fn view(knowledge: &Knowledge) -> (BTreeMap<String, Sandbox>, BTreeMap<String, Run>) {
    let sandboxes = knowledge.sandboxes.iter().map(|(id, it)| (id.clone(), it.value.clone()));
    let run = |it: &Run| Run { is_oom: false, ..it.clone() };
    let runs = knowledge.runs.iter().map(|(id, it)| (id.clone(), run(&it.value)));
    (sandboxes.collect(), runs.collect())
}

proptest! {
    /// Any loss, doubling, lateness and order of events and lagging statuses, and then one list.
    #[test]
    fn events_and_a_list_end_in_the_knowledge_of_the_list(
        world in world(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..30),
        late in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut knowledge = Knowledge::default();
        for (pick, is_status) in picks {
            if is_status && !world.lagging.is_empty() {
                let (id, run) = pick.get(&world.lagging).clone();
                knowledge.fold(Fact::Run(id, run));
            } else if !world.events.is_empty() {
                knowledge.fold(pick.get(&world.events).clone());
            }
        }
        world.list(&mut knowledge);
        for pick in late.iter().filter(|_| !world.events.is_empty()) {
            knowledge.fold(pick.get(&world.events).clone());
        }
        let mut alone = Knowledge::default();
        world.list(&mut alone);
        prop_assert_eq!(view(&knowledge), view(&alone));
    }

    /// No moment takes a start that was cut off for the end of a container: a pod that ends for good is not
    /// taken back.
    #[test]
    fn a_start_that_was_cut_off_is_never_a_failure_of_its_container(
        world in world(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..30),
    ) {
        let mut knowledge = Knowledge::default();
        let is_cut_off = |id: &str| world.runs.iter().any(|(it, run)| it == id && run.phase == cut_off());
        let check = |knowledge: &Knowledge| {
            for (id, run) in knowledge.runs().filter(|(id, _)| is_cut_off(id)) {
                if let Phase::Exited(end) = &run.phase {
                    prop_assert!(end.is_interrupted, "{} counts: {:?}", id, end);
                }
            }
            Ok(())
        };
        for (pick, is_status) in picks {
            if is_status && !world.lagging.is_empty() {
                let (id, run) = pick.get(&world.lagging).clone();
                knowledge.fold(Fact::Run(id, run));
            } else if !world.events.is_empty() {
                knowledge.fold(pick.get(&world.events).clone());
            }
            check(&knowledge)?;
        }
        world.list(&mut knowledge);
        check(&knowledge)?;
    }

    /// A list that does not say how some runs ended takes back no end, makes none up, and keeps no other from its pod. The next
    /// list has them, whatever came in between.
    #[test]
    fn an_end_that_a_list_does_not_say_is_pending_until_a_later_one_says_it(
        world in world(),
        hidden in prop::collection::btree_set(0..8_usize, 0..5),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..30),
        late in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..10),
    ) {
        let mut knowledge = Knowledge::default();
        let learn = |knowledge: &mut Knowledge, (pick, is_status): (prop::sample::Index, bool)| {
            if is_status && !world.lagging.is_empty() {
                let (id, run) = pick.get(&world.lagging).clone();
                knowledge.fold(Fact::Run(id, run));
            } else if !world.events.is_empty() {
                knowledge.fold(pick.get(&world.events).clone());
            }
        };
        picks.into_iter().for_each(|pick| learn(&mut knowledge, pick));
        let before = knowledge.clone();
        world.list_without_ends(&mut knowledge, &hidden);
        let check = |knowledge: &Knowledge| {
            for (number, (id, last)) in world.runs.iter().enumerate() {
                let phase = &knowledge.run(id).expect("it is listed").phase;
                match (&last.phase, phase) {
                    (Phase::Exited(last), Phase::Exited(end)) => {
                        prop_assert_eq!(end.code, last.code);
                    }
                    (Phase::Exited(_), phase) => {
                        let is_pending = matches!(phase, Phase::EndPending { .. });
                        prop_assert!(is_pending && hidden.contains(&number), "{} {:?}", id, phase);
                    }
                    (_, phase) => {
                        let runs = matches!(phase, Phase::Running { .. });
                        prop_assert!(runs, "{phase:?}");
                    }
                }
            }
            Ok(())
        };
        check(&knowledge)?;
        for (id, run) in before.runs() {
            if matches!(run.phase, Phase::Exited(_)) {
                let now = knowledge.run(id).map(|run| &run.phase);
                prop_assert!(matches!(now, Some(Phase::Exited(_))), "{} is taken back", id);
            }
        }
        for pick in late {
            learn(&mut knowledge, pick);
            check(&knowledge)?;
        }
        world.list(&mut knowledge);
        let mut alone = Knowledge::default();
        world.list(&mut alone);
        prop_assert_eq!(view(&knowledge), view(&alone));
    }

    /// Whatever comes after its end, a run does not run again.
    #[test]
    fn an_id_that_was_seen_ended_never_runs_again(
        world in world(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..30),
    ) {
        let mut knowledge = Knowledge::default();
        let mut ended = BTreeSet::new();
        for (pick, is_status) in picks {
            if is_status && !world.lagging.is_empty() {
                let (id, run) = pick.get(&world.lagging).clone();
                knowledge.fold(Fact::Run(id, run));
            } else if !world.events.is_empty() {
                knowledge.fold(pick.get(&world.events).clone());
            }
            for (id, run) in knowledge.runs() {
                let is_ended = matches!(run.phase, Phase::Exited(_));
                prop_assert!(is_ended || !ended.contains(id), "{} runs again", id);
                if is_ended {
                    ended.insert(id.to_owned());
                }
            }
        }
    }
}

#[test]
fn a_list_keeps_what_came_after_it_began_and_does_not_bring_back_what_was_removed() {
    let mut knowledge = Knowledge::default();
    let (old, old_run) = run(0, running());
    knowledge.fold(Fact::Run(old.clone(), old_run.clone()));
    let began = knowledge.now();
    let (new, new_run) = run(1, Phase::Created);
    knowledge.fold(Fact::Run(new.clone(), new_run));
    knowledge.fold(Fact::Removed { id: old.clone() });
    knowledge.fold(Fact::List { began, sandboxes: vec![], runs: vec![(old.clone(), old_run)] });
    assert!(knowledge.run(&new).is_some(), "it came after the list began");
    assert!(knowledge.run(&old).is_none(), "it was removed after the list began");
    let began = knowledge.now();
    let changed = knowledge.fold(Fact::List { began, sandboxes: vec![], runs: vec![] });
    assert_eq!(changed, [pod(1)].into(), "the next list lacks it");
    assert!(knowledge.run(&new).is_none());
}

/// The end of a run after these facts.
fn end_after(facts: &[Fact]) -> End {
    let mut knowledge = Knowledge::default();
    let (id, run) = run(0, running());
    knowledge.fold(Fact::Run(id.clone(), run));
    for fact in facts {
        knowledge.fold(fact.clone());
    }
    let Some(Run { phase: Phase::Exited(end), .. }) = knowledge.run(&id) else { panic!("ended") };
    end.clone()
}

#[test]
fn a_kill_for_memory_is_the_reason_of_the_end_whenever_it_is_heard_of() {
    let (id, _) = run(0, running());
    let oom = Fact::OutOfMemory { id: id.clone() };
    let exit = Fact::Exit { id, code: 137, at: at(20) };
    let (id, lagging) = run(0, exited(137, false));
    let status = Fact::Run(id, lagging);
    for facts in [
        &[&oom, &exit][..],
        &[&exit, &oom],
        &[&oom, &exit, &status],
        &[&exit, &oom, &status],
        &[&exit, &status, &oom],
        &[&status, &exit, &oom],
    ] {
        let facts: Vec<Fact> = facts.iter().map(|fact| (*fact).clone()).collect();
        let end = end_after(&facts);
        assert_eq!((end.code, end.reason.as_str()), (137, OUT_OF_MEMORY), "{facts:?}");
        assert_eq!(end.started_at, Some(at(10)), "{facts:?}");
    }
}

#[test]
fn an_end_that_the_runtime_has_lost_takes_back_no_code_that_was_seen() {
    let (id, mut lost) = run(0, exited(255, false));
    if let Phase::Exited(end) = &mut lost.phase {
        (end.reason, end.finished_at) = (UNSEEN.to_owned(), at(99));
    }
    let exit = Fact::Exit { id: id.clone(), code: 3, at: at(20) };
    let status = Fact::Run(id, lost);
    let end = end_after(&[exit, status.clone()]);
    assert_eq!((end.code, end.finished_at, end.reason.as_str()), (3, at(20), "Error"));
    let end = end_after(&[status]);
    assert_eq!((end.code, end.is_unseen()), (255, true));
}

/// The phase of a run that was made, after these facts.
fn phase_of_created(facts: &[Fact]) -> Phase {
    let mut knowledge = Knowledge::default();
    let (id, run) = run(0, Phase::Created);
    knowledge.fold(Fact::Run(id.clone(), run));
    for fact in facts {
        knowledge.fold(fact.clone());
    }
    knowledge.run(&id).expect("it is known").phase.clone()
}

#[test]
fn the_end_of_a_process_is_the_end_of_its_run_once_a_status_says_that_the_run_started() {
    let exit = Fact::Exit { id: run(0, Phase::Created).0, code: 137, at: at(20) };
    let status = |phase| {
        let (id, run) = run(0, phase);
        Fact::Run(id, run)
    };
    assert_eq!(phase_of_created(std::slice::from_ref(&exit)), Phase::Created);
    let created = status(Phase::Created);
    assert_eq!(phase_of_created(&[exit.clone(), created.clone()]), Phase::Created);
    assert_eq!(phase_of_created(&[exit.clone(), created, status(cut_off())]), cut_off());
    let ended = Phase::Exited(End::observed(137, Some(at(10)), at(20), false));
    assert_eq!(phase_of_created(&[exit.clone(), status(running())]), ended);
    // The runtime was killed before it wrote the end down.
    let Phase::Exited(mut lost) = exited(255, false) else { panic!("it has ended") };
    (lost.reason, lost.finished_at) = (UNSEEN.to_owned(), at(99));
    assert_eq!(phase_of_created(&[exit, status(Phase::Exited(lost))]), ended);
}

#[test]
fn a_pending_end_is_that_of_the_process_once_it_is_known_that_the_run_started() {
    let pending = |started_at| Phase::EndPending { started_at };
    let fold = |first: Phase, facts: &[Fact]| {
        let mut knowledge = Knowledge::default();
        let (id, run) = run(0, first);
        knowledge.fold(Fact::Run(id.clone(), run));
        for fact in facts {
            knowledge.fold(fact.clone());
        }
        knowledge.run(&id).expect("it is known").phase.clone()
    };
    let list = || {
        let began = Moment::default();
        Fact::List { began, sandboxes: vec![], runs: vec![run(0, pending(None))] }
    };
    let exit = || Fact::Exit { id: run(0, Phase::Created).0, code: 3, at: at(20) };
    let status = |phase| {
        let (id, run) = run(0, phase);
        Fact::Run(id, run)
    };
    let ended = Phase::Exited(End::observed(3, Some(at(10)), at(20), false));
    assert_eq!(fold(running(), &[list()]), pending(Some(at(10))));
    assert_eq!(fold(running(), &[list(), exit()]), ended);
    assert_eq!(fold(running(), &[exit(), list()]), ended, "a list takes back no end");
    assert_eq!(fold(running(), &[list(), status(running())]), pending(Some(at(10))));
    assert_eq!(fold(Phase::Created, &[list(), exit()]), pending(None), "it may be cut off");
    assert_eq!(fold(Phase::Created, &[list(), exit(), status(cut_off())]), cut_off());
    assert_eq!(fold(Phase::Created, &[list(), exit(), status(running())]), ended);
    assert_eq!(fold(pending(None), &[exit(), list(), status(running())]), ended);
}

/// The end that the pod worker makes up.
fn given_up() -> Phase {
    Phase::Exited(End {
        code: 137,
        started_at: Some(at(10)),
        finished_at: at(400),
        reason: GIVEN_UP.to_owned(),
        message: String::new(),
        is_status: true,
        is_interrupted: false,
    })
}

#[test]
fn nothing_takes_back_an_end_that_was_given_up_and_it_takes_back_no_other() {
    let pending = || Phase::EndPending { started_at: Some(at(10)) };
    let (id, first) = run(0, pending());
    let list = || {
        let began = Moment::default();
        Fact::List { began, sandboxes: vec![], runs: vec![run(0, given_up())] }
    };
    let mut knowledge = Knowledge::default();
    knowledge.fold(Fact::Run(id.clone(), first));
    assert_eq!(knowledge.fold(list()), [pod(0)].into());
    let status = |phase| Fact::Run(id.clone(), run(0, phase).1);
    for fact in [
        status(exited(0, false)),
        status(exited(137, true)),
        status(running()),
        status(pending()),
        Fact::Exit { id: id.clone(), code: 3, at: at(20) },
        Fact::OutOfMemory { id: id.clone() },
        status(exited(0, false)),
    ] {
        assert!(knowledge.fold(fact.clone()).is_empty(), "{fact:?}");
        assert_eq!(knowledge.run(&id).expect("it is known").phase, given_up(), "{fact:?}");
    }
    // An event came before it.
    let exit = Fact::Exit { id: id.clone(), code: 3, at: at(20) };
    assert_eq!(end_after(&[exit, list()]).code, 3);
}

#[test]
fn a_container_that_is_gone_is_known_no_more_until_a_list_has_it() {
    let (id, first) = run(0, running());
    let mut knowledge = Knowledge::default();
    knowledge.fold(Fact::Run(id.clone(), first.clone()));
    assert_eq!(knowledge.fold(Fact::Gone { id: id.clone() }), [pod(0)].into());
    assert!(knowledge.run(&id).is_none());
    assert!(knowledge.fold(Fact::Gone { id: id.clone() }).is_empty());
    knowledge.fold(Fact::Run(id.clone(), first));
    assert!(knowledge.run(&id).is_some(), "it was not removed by the pod worker");
}
