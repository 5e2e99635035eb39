//! What a person sees of `up`: what happened, in a handful of lines, then a live line of
//! positions and lag.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use headwater_controller::source::Concern;
use headwater_controller::{Filter, Notice};
use headwater_proto::operator::StatusResponse;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tracing_subscriber::EnvFilter;

use super::Composition;
use super::data_dir::DataDir;
use crate::cli::{DATA_DEFAULT, Up};
use crate::operator::status;
use crate::settings::Settings;

/// How often the live line is drawn: fast enough to see a change, slow enough to read.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);

/// Which log lines `up` shows unless `RUST_LOG` says otherwise: a healthy start prints none.
const LOG_DEFAULT: &str = "warn";

/// What a person sees of `up`.
pub(super) struct Terminal {
    live: ProgressBar,
}

/// What was said about the pods so far.
#[derive(Default, PartialEq, Eq)]
struct Pods {
    running: usize,
    waiting: usize,
    all: usize,
}

impl Terminal {
    pub(super) fn new() -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let live = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            live.set_style(style);
        }
        Self { live }
    }

    /// Logs go to stderr above the live line: for people on a terminal, JSON otherwise.
    pub(super) fn set_up_log(&self) {
        let filter =
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
        let live = self.live.clone();
        let set = if std::io::stderr().is_terminal() {
            log.with_writer(move || Above { live: live.clone(), line: Vec::new() }).try_init()
        } else {
            log.json().with_writer(std::io::stderr).try_init()
        };
        // Only a second call fails, and then there is a log already.
        drop(set);
    }

    fn say(&self, line: impl AsRef<str>) {
        self.live.suspend(|| eprintln!("{}", line.as_ref()));
    }

    pub(super) fn greet(&self, data: &DataDir, args: &Up, settings: &Settings) {
        let nodes = settings.node_names().unwrap_or_default();
        let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
        let from = args.manifests.as_deref().or(args.objects.as_deref());
        let from = from.map(|path| path.display().to_string()).unwrap_or_default();
        let names = match names.as_slice() {
            few if few.len() <= 4 => few.join(", "),
            [first, .., last] => format!("{first} ... {last}"),
            _ => String::new(),
        };
        self.say(format!(
            "headwater {} runs {from} on {} nodes ({names}); data in {}",
            env!("CARGO_PKG_VERSION"),
            nodes.len(),
            data.root().display()
        ));
    }

    /// Shows what happens, for ever.
    pub(super) async fn show(&self, composition: &mut Composition) {
        let mut interval = tokio::time::interval(LIVE_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut shown = Pods::default();
        let mut reconciled = false;
        let mut settled = false;
        loop {
            tokio::select! {
                Some(notice) = composition.notices.recv() => self.notice(composition, &notice),
                Some(error) = composition.stopped_sources.recv() => {
                    let trouble = format!("the source stopped: {}", crate::exit::chain(&error));
                    self.say(format!("warning: {trouble}"));
                    composition.troubles.add(trouble);
                }
                _ = interval.tick() => {
                    let progress = composition.cloud.controller.progress().borrow().clone();
                    if progress.reconciled && !std::mem::replace(&mut reconciled, true) {
                        self.say(format!(
                            "published: {} events in this run, writer epoch {}",
                            progress.appended, progress.epoch
                        ));
                    }
                    let pods = count_pods(composition);
                    let status = status::status(&composition.sight).await;
                    self.live.set_message(live_line(&status, &pods));
                    let ready = reconciled && pods.running + pods.waiting == pods.all;
                    if ready && pods != shown && is_in_step(&status) {
                        self.say_pods(composition, &pods);
                        shown = pods;
                        if !std::mem::replace(&mut settled, true) {
                            self.say(format!("next: headwater get pods{}", data_flag(composition)));
                        }
                    }
                }
            }
        }
    }

    fn notice(&self, composition: &Composition, notice: &Notice) {
        self.say(format!("{}: {notice}", label(notice.concern)));
        if notice.concern == Concern::Source {
            composition.troubles.add(notice.to_string());
        }
    }

    fn say_pods(&self, composition: &Composition, pods: &Pods) {
        let nodes = composition.nodes.len();
        self.say(format!("{} of {} pods run on {nodes} nodes", pods.running, pods.all));
        for (reason, count) in waiting_reasons(composition) {
            self.say(format!("  waiting: {count} for {reason}"));
        }
    }

    pub(super) fn say_stopping(&self, grace: Duration) {
        self.live.finish_and_clear();
        let grace = humantime::format_duration(grace);
        self.say(format!("stopping the pods (at most {grace}; Ctrl-C again stops at once)"));
    }

    pub(super) fn say_stopped(&self, remaining: usize) {
        if remaining == 0 {
            self.say("stopped; started again, it goes on from its disk");
        }
    }
}

/// How a notice is introduced.
fn label(concern: Concern) -> &'static str {
    match concern {
        Concern::NotReplicated | Concern::Doubtful => "note",
        _ => "warning",
    }
}

/// The flag that finds this data directory, where it is not the default.
fn data_flag(composition: &Composition) -> String {
    let root = composition.data.root();
    let default = std::env::current_dir().map(|dir| dir.join(DATA_DEFAULT));
    if default.is_ok_and(|default| default == root) {
        String::new()
    } else {
        format!(" --data {}", root.display())
    }
}

fn pods(composition: &Composition) -> Vec<Value> {
    let filter = Filter { kind: "pod", ..Filter::default() };
    let now_ms = (composition.sight.wall_clock)();
    let objects = composition.cloud.controller.picture().objects(&filter, now_ms);
    objects.map(|objects| objects.into_values().collect()).unwrap_or_default()
}

fn count_pods(composition: &Composition) -> Pods {
    let mut counted = Pods::default();
    for pod in pods(composition) {
        counted.all += 1;
        match pod.pointer("/status/phase").and_then(Value::as_str) {
            Some("Running" | "Succeeded") => counted.running += 1,
            _ if waiting_reason(&pod).is_some() => counted.waiting += 1,
            _ => {}
        }
    }
    counted
}

fn waiting_reasons(composition: &Composition) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for pod in pods(composition) {
        let running = pod.pointer("/status/phase").and_then(Value::as_str) == Some("Running");
        if let Some(reason) = waiting_reason(&pod).filter(|_| !running) {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    reasons
}

/// Why a pod waits, as its node says.
fn waiting_reason(pod: &Value) -> Option<String> {
    let mut statuses = ["/status/initContainerStatuses", "/status/containerStatuses"]
        .iter()
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten();
    statuses.find_map(|status| {
        let waiting = status.pointer("/state/waiting")?;
        let reason = waiting["reason"].as_str()?;
        if matches!(reason, "ContainerCreating" | "PodInitializing") && waiting["message"].is_null()
        {
            return None;
        }
        Some(match waiting["message"].as_str() {
            Some(message) => format!("{reason}: {message}"),
            None => reason.to_owned(),
        })
    })
}

fn is_in_step(status: &StatusResponse) -> bool {
    status
        .nodes
        .iter()
        .all(|node| node.connected && node.streams.iter().all(|stream| stream.lag_events == 0))
}

fn live_line(status: &StatusResponse, pods: &Pods) -> String {
    let connected = status.nodes.iter().filter(|node| node.connected).count();
    let streams = || status.nodes.iter().flat_map(|node| &node.streams);
    let applied: u64 = streams().map(|stream| stream.applied).sum();
    let tail: u64 = streams().map(|stream| stream.tail).sum();
    let lag = streams().map(|stream| stream.lag_events).max().unwrap_or_default();
    let lag_seconds = streams().map(|stream| stream.lag_seconds).fold(0.0, f64::max);
    let outbox: u64 = status.nodes.iter().map(|node| node.outbox_depth).sum();
    format!(
        "nodes {connected}/{} · applied {applied}/{tail} · lag {lag} ({lag_seconds:.1}s) · \
         outbox {outbox} · pods {}/{}",
        status.nodes.len(),
        pods.running,
        pods.all
    )
}

/// Writes whole log lines above the live line.
struct Above {
    live: ProgressBar,
    line: Vec<u8>,
}

impl std::io::Write for Above {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        self.live.suspend(|| eprint!("{line}"));
    }
}
