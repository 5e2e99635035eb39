//! The pods: each notes its starts and its ends, which must agree with what the cloud shows.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use headwater_cri_lab::BUSYBOX_IMAGE;
use headwater_e2e::chance::Chance;
use jiff::Timestamp;
use serde_json::Value;

use super::gateway::{Gateway, VICTIM};
use crate::NODE;

/// It writes a line after the other, and nothing touches it.
const STEADY: &str = "steady";

/// It ends again and again, each time with another code.
const CRASHER: &str = "crasher";

/// The jobs of a round.
const JOBS: u64 = 3;

/// Their longest run in tenths of a second, and the codes of their ends.
const TENTHS_MAX: u64 = 25;
const CODES: [i64; 4] = [0, 3, 7, 42];

/// What a report of an end may be late: the shell's own end after its note, in a loaded machine.
const LATE_SECONDS: i64 = 5;

/// The back-off of a container that fails for the second time. It doubles with each further one.
const BACKOFF_SECONDS: i64 = 10;

/// A pod that runs once.
struct Job {
    name: String,
    code: i64,
    tenths: u64,
    has_init: bool,
}

/// See the module.
pub(super) struct Workload {
    notes: PathBuf,
    jobs: Vec<Job>,
    /// The rounds, each of which can cut off one start of a container.
    kills: u64,
    /// The times in seconds in which neither the runtime nor the pod worker could write down an end.
    gaps: Vec<(i64, i64)>,
    /// The times between which the runtime was killed.
    runtime_kills: Vec<(Timestamp, Timestamp)>,
}

impl Workload {
    pub(super) fn new(notes: PathBuf) -> Self {
        Self { notes, jobs: Vec::new(), kills: 0, gaps: Vec::new(), runtime_kills: Vec::new() }
    }

    pub(super) fn add_jobs(&mut self, round: usize, chance: &mut Chance) {
        self.kills += 1;
        for number in 0..JOBS {
            self.jobs.push(Job {
                name: format!("job-{round}-{number}"),
                code: *chance.one_of(&CODES),
                tenths: chance.below(TENTHS_MAX),
                has_init: number == 0,
            });
        }
    }

    /// The runtime and the pod worker were killed together: an end whose task the runtime had deleted, and that
    /// it had not written down, is lost.
    pub(super) fn add_gap(&mut self, from: Timestamp, to: Timestamp) {
        self.gaps.push((from.as_second() - 1, to.as_second()));
    }

    /// The runtime was killed: a line that it had read from the container, and not written yet, is lost.
    pub(super) fn add_runtime_kill(&mut self, from: Timestamp, to: Timestamp) {
        self.runtime_kills.push((from, to));
    }

    pub(super) fn manifests(&self) -> String {
        let forever =
            "trap 'exit 0' TERM; i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done";
        let crash = "n=$(grep -c start $F); sleep 0.5; c=$((10 + n % 7)); echo exit $c $(date +%s) >> $F; exit $c";
        let init = "sleep 0.1; echo exit 0 $(date +%s) >> $F";
        let mut text = String::new();
        self.pod(&mut text, STEADY, "Always", &[], &[(STEADY, forever)]);
        self.pod(&mut text, CRASHER, "Always", &[], &[(CRASHER, crash)]);
        let both = [("victim-a", forever), ("victim-b", forever)];
        self.pod(&mut text, VICTIM, "Always", &[("victim-init", init)], &both);
        for Job { name, code, tenths, has_init } in &self.jobs {
            let script = format!(
                "sleep {}.{}; echo exit {code} $(date +%s) >> $F; exit {code}",
                tenths / 10,
                tenths % 10
            );
            let init_name = format!("{name}-init");
            let inits: &[_] = if *has_init { &[(init_name.as_str(), init)] } else { &[] };
            self.pod(&mut text, name, "Never", inits, &[(name, &script)]);
        }
        text
    }

    /// Adds a pod whose containers note each start, then run their scripts.
    fn pod(
        &self,
        text: &mut String,
        name: &str,
        policy: &str,
        inits: &[(&str, &str)],
        containers: &[(&str, &str)],
    ) {
        let notes = self.notes.display();
        write!(
            text,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {NODE}\n  \
             restartPolicy: {policy}\n  terminationGracePeriodSeconds: 1\n  \
             volumes: [{{name: notes, hostPath: {{path: {notes}}}}}]\n"
        )
        .expect("a text");
        for (list, containers) in [("initContainers", inits), ("containers", containers)] {
            if !containers.is_empty() {
                writeln!(text, "  {list}:").expect("a text");
            }
            for (name, script) in containers {
                let script = format!("F=/notes/{name}; echo start $(date +%s) >> $F; {script}");
                write!(
                    text,
                    "  - name: {name}\n    image: {BUSYBOX_IMAGE}\n    imagePullPolicy: IfNotPresent\n    \
                     command: [/bin/sh, -c, {script:?}]\n    \
                     volumeMounts: [{{name: notes, mountPath: /notes}}]\n"
                )
                .expect("a text");
            }
        }
    }

    pub(super) fn has_begun(&self, gateway: &Gateway) -> Result<(), String> {
        for pod in [STEADY, VICTIM] {
            let status = status(gateway, pod)?;
            let all = statuses(&status, "containerStatuses");
            if all.is_empty() || all.iter().any(|one| one["state"]["running"].is_null()) {
                return Err(format!("{pod}: {status:#}"));
            }
        }
        Ok(())
    }

    /// Whether every job has ended, and every start of the others is reported.
    pub(super) fn has_ended(&self, gateway: &Gateway) -> Result<(), String> {
        for job in &self.jobs {
            let status = status(gateway, &job.name)?;
            if !matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
                return Err(format!("{}: {status:#}", job.name));
            }
        }
        for pod in [STEADY, CRASHER, VICTIM] {
            let status = status(gateway, pod)?;
            let inits = statuses(&status, "initContainerStatuses");
            for one in statuses(&status, "containerStatuses").iter().chain(&inits) {
                let name = one["name"].as_str().unwrap_or_default();
                // A start is noted before it is reported. One that a kill cut off has a number, and may have noted nothing.
                let starts = self.starts(name).len() as u64;
                let numbers = one["restartCount"].as_u64().map_or(0, |count| count + 1);
                if starts == 0 || !(starts..=starts + self.kills).contains(&numbers) {
                    return Err(format!("{starts} starts of {name}: {status:#}"));
                }
            }
        }
        Ok(())
    }

    /// Compares what containers noted with what the cloud shows.
    pub(super) fn check(&self, gateway: &Gateway) -> Result<(), String> {
        for job in &self.jobs {
            self.check_job(gateway, job).map_err(|wrong| format!("{}: {wrong}", job.name))?;
        }
        self.check_steady(gateway)?;
        self.check_crasher(gateway)
    }

    fn check_job(&self, gateway: &Gateway, job: &Job) -> Result<(), String> {
        let status = status(gateway, &job.name)?;
        let wrong = |what: &str| Err(format!("{what}: {status:#}"));
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        let noted = self.exits(&job.name).pop().map(|(_, at)| at).unwrap_or_default();
        let inits = statuses(&status, "initContainerStatuses");
        let lost = inits.iter().chain([&status["containerStatuses"][0]]);
        let mut lost = lost.filter(|one| self.is_lost_in_gap(one));
        if let Some(one) = lost.next() {
            let name = one["name"].as_str().unwrap_or_default();
            // The end counts as a failure: nothing of the pod starts after it.
            let is_last = name == job.name || self.starts(&job.name).is_empty();
            let is_once = is_last && self.starts(name).len() == 1;
            return if is_once { Ok(()) } else { wrong("a lost end starts something again") };
        }
        let phase = if job.code == 0 { "Succeeded" } else { "Failed" };
        if status["phase"] != phase {
            return wrong("another phase");
        }
        let one = &status["containerStatuses"][0];
        if ended["exitCode"] != job.code {
            return wrong("another end");
        }
        for one in inits.iter().chain([one]) {
            let name = one["name"].as_str().unwrap_or_default();
            let starts = self.starts(name).len() as u64;
            let is_right = match one["restartCount"].as_u64() {
                Some(0) => starts == 1,
                // The runtime, or its caller, was killed in the midst of a start. The runtime may have lost that run.
                Some(count) => (1..=count + 1).contains(&starts) && has_no_end(one),
                None => false,
            };
            if !is_right {
                return wrong(&format!("{starts} starts of {name}"));
            }
        }
        let reported = seconds(&ended["finishedAt"]);
        if !(noted..=noted + LATE_SECONDS).contains(&reported) {
            return wrong(&format!("it ended at {noted}, not at {reported}"));
        }
        Ok(())
    }

    /// Whether nothing could write down the end of a container.
    fn is_lost_in_gap(&self, one: &Value) -> bool {
        let name = one["name"].as_str().unwrap_or_default();
        let noted = self.exits(name).pop().map(|(_, at)| at).unwrap_or_default();
        let is_in_gap = self.gaps.iter().any(|(from, to)| (*from..=*to).contains(&noted));
        is_in_gap && one["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    }

    /// It was never touched: one start, and every line of it once and in its turn. A kill of the runtime may cost one line,
    /// at the time of the kill.
    fn check_steady(&self, gateway: &Gateway) -> Result<(), String> {
        let status = status(gateway, STEADY)?;
        if self.starts(STEADY).len() != 1 || status["containerStatuses"][0]["restartCount"] != 0 {
            return Err(format!("{} starts of {STEADY}: {status:#}", self.starts(STEADY).len()));
        }
        let uid = uid(gateway, STEADY)?;
        let files = gateway.log(STEADY, &uid, STEADY);
        let text: String =
            files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
        let lines: Vec<(Timestamp, u64)> = text.lines().filter_map(log_line).collect();
        if lines.len() < 10 || lines[0].1 != 0 {
            return Err(format!(
                "{} lines of {STEADY}, the first: {:?}",
                lines.len(),
                lines.first()
            ));
        }
        let mut kills = self.runtime_kills.clone();
        for (before, after) in lines.iter().zip(&lines[1..]) {
            let killed = kills.iter().position(|(from, to)| *from <= after.0 && before.0 <= *to);
            match (after.1.checked_sub(before.1), killed) {
                (Some(1), _) => {}
                // A second lost line at the same kill is a fault.
                (Some(2), Some(kill)) => {
                    kills.remove(kill);
                }
                _ => return Err(format!("lines of {STEADY}: {after:?} follows {before:?}")),
            }
        }
        Ok(())
    }

    /// Its codes follow its count, and each wait is as long as the back-off says.
    fn check_crasher(&self, gateway: &Gateway) -> Result<(), String> {
        let status = status(gateway, CRASHER)?;
        let one = &status["containerStatuses"][0];
        let exits = self.exits(CRASHER);
        for state in [&one["state"]["terminated"], &one["lastState"]["terminated"]] {
            let at = seconds(&state["finishedAt"]);
            // A start that was cut off has no end of its own, and that of a gap is lost.
            let is_in_gap =
                self.gaps.iter().any(|(from, to)| (*from..=*to + LATE_SECONDS).contains(&at));
            let is_lost = state["reason"] == "ContainerStatusUnknown" && is_in_gap;
            if state["startedAt"].is_null() || is_lost {
                continue;
            }
            let is_noted = |(code, noted): &(i64, i64)| {
                state["exitCode"] == *code && (*noted..=noted + LATE_SECONDS).contains(&at)
            };
            if !exits.iter().any(is_noted) {
                return Err(format!("no such end in {exits:?}: {status:#}"));
            }
        }
        // The first failure has no wait. A start that was cut off is no failure, and may have noted itself.
        let mut wait = BACKOFF_SECONDS;
        for (end, start) in self.restarts(CRASHER).into_iter().skip(1) {
            // The times are whole seconds.
            if start - end < wait - 1 {
                let notes = read(&self.notes.join(CRASHER));
                return Err(format!("a start {} s after an end: {notes:#?}", start - end));
            }
            wait *= 2;
        }
        Ok(())
    }

    /// The UIDs of all pods.
    pub(super) fn uids(&self, gateway: &Gateway) -> Vec<String> {
        let names = [STEADY, CRASHER, VICTIM].into_iter();
        let names = names.chain(self.jobs.iter().map(|job| job.name.as_str()));
        names.filter_map(|name| uid(gateway, name).ok()).collect()
    }

    /// The times of a container's starts.
    fn starts(&self, container: &str) -> Vec<i64> {
        let lines = read(&self.notes.join(container));
        let times = lines.iter().filter_map(|line| line.strip_prefix("start ")?.parse().ok());
        times.collect()
    }

    /// The times of its own ends, each with that of the start that followed.
    fn restarts(&self, container: &str) -> Vec<(i64, i64)> {
        let (mut restarts, mut end) = (Vec::new(), None);
        for line in read(&self.notes.join(container)) {
            let time = line.rsplit(' ').next().and_then(|time| time.parse().ok());
            match (line.starts_with("start "), time) {
                (true, Some(start)) => restarts.extend(end.take().map(|end| (end, start))),
                (_, time) => end = time,
            }
        }
        restarts
    }

    /// The codes and times of its own ends.
    fn exits(&self, container: &str) -> Vec<(i64, i64)> {
        let lines = read(&self.notes.join(container));
        let ends = lines.iter().filter_map(|line| {
            let (code, at) = line.strip_prefix("exit ")?.split_once(' ')?;
            Some((code.parse().ok()?, at.parse().ok()?))
        });
        ends.collect()
    }
}

/// Whether the run before the latest one ended in the midst of its start.
fn has_no_end(one: &Value) -> bool {
    let last = &one["lastState"]["terminated"];
    let reasons = [Value::Null, "StartError".into(), "ContainerStatusUnknown".into()];
    last["startedAt"].is_null() && reasons.contains(&last["reason"])
}

/// The time and the number of a line of the steady container, from a file in the format of CRI.
fn log_line(line: &str) -> Option<(Timestamp, u64)> {
    let (time, _) = line.split_once(' ')?;
    let (_, number) = line.rsplit_once(" F line ")?;
    Some((time.parse().ok()?, number.parse().ok()?))
}

/// A time of a status in seconds, and 0 for none.
fn seconds(time: &Value) -> i64 {
    let time = time.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    time.map_or(0, Timestamp::as_second)
}

fn read(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn status(gateway: &Gateway, pod: &str) -> Result<Value, String> {
    let object = gateway.cloud.pod(pod).ok_or_else(|| format!("there is no {pod}"))?;
    Ok(object["status"].clone())
}

fn uid(gateway: &Gateway, pod: &str) -> Result<String, String> {
    let object = gateway.cloud.pod(pod).ok_or_else(|| format!("there is no {pod}"))?;
    object["metadata"]["uid"].as_str().map(str::to_owned).ok_or_else(|| format!("{pod} has no UID"))
}

fn statuses(status: &Value, list: &str) -> Vec<Value> {
    status[list].as_array().cloned().unwrap_or_default()
}
