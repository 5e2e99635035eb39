//! The output of `up`: a few lines of announcements, then a live line with positions and lag.

mod pods;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use futures::FutureExt;
use headwater_cli::args::Up;
use headwater_controller::source::NoticeKind;
use headwater_controller::{ChangeSubscription, Filter};
use headwater_operator::status;
use headwater_proto::operator::{NodeStatus, StatusResponse};
use headwater_settings::DATA_DEFAULT;
use headwater_settings::LogFormat;
use headwater_telemetry::log::{self, FilterError};
use headwater_telemetry::traces::Traces;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use self::pods::{PodAnnouncements, Pods};
use super::Composition;
use crate::data_dir::DataDir;
use crate::pod_runtime::shared_rights;
use crate::settings::up::Settings;

/// The interval at which the live line is drawn: fast enough to see a change, slow enough to read.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);

/// The default filter of log lines: a healthy start prints none.
const FILTER_DEFAULT: &str = "warn";

/// The terminal of `up`.
pub(super) struct Terminal {
    live: ProgressBar,
}

/// The facts that were printed, so that each is printed once.
#[derive(Default)]
struct Announcements {
    published: bool,
    next: bool,
    pods: PodAnnouncements,
    /// The pods at the last update, and a subscription to later changes: without a change,
    /// thousands of pods are not read again.
    seen: Option<(ChangeSubscription, Pods)>,
    /// The nodes that were connected at the last update.
    connected: BTreeSet<String>,
    away: BTreeSet<String>,
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

    /// Sets up logs on stderr, above the live line if there is one.
    ///
    /// # Errors
    /// When the filter in the environment is malformed.
    pub(super) fn set_up_log(
        &self,
        format: LogFormat,
        traces: Option<&Traces>,
    ) -> Result<(), FilterError> {
        let live = self.live.clone();
        if std::io::stderr().is_terminal() {
            let above = move || Above { live: live.clone(), line: Vec::new() };
            log::set_up(format.is_json(), FILTER_DEFAULT, above, traces)
        } else {
            log::set_up(format.is_json(), FILTER_DEFAULT, std::io::stderr, traces)
        }
    }

    fn print(&self, line: impl AsRef<str>) {
        // A reader that is gone (`| head`) must not stop the pods.
        self.live.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{}", line.as_ref());
        });
    }

    pub(super) fn print_start(&self, data: &DataDir, args: &Up, settings: &Settings) {
        let nodes = settings.node_names().unwrap_or_default();
        let names: Vec<&str> = nodes.iter().map(|node| node.as_str()).collect();
        let from = args.manifests.as_deref().or(args.objects.as_deref());
        let from = from.map(|path| path.display().to_string());
        let from = from.or_else(|| settings.kubernetes.origin()).unwrap_or_default();
        let names = match names.as_slice() {
            few if few.len() <= 4 => few.join(", "),
            [first, .., last] => format!("{first} ... {last}"),
            _ => String::new(),
        };
        self.print(format!(
            "headwater {} runs {from} on {} nodes ({names}); data in {}",
            env!("CARGO_PKG_VERSION"),
            nodes.len(),
            data.root().display()
        ));
        for note in shared_rights(Some(settings.runtime), true) {
            self.print(format!("note: {note}"));
        }
    }

    /// Prints announcements and the live line, for ever.
    pub(super) async fn show(&self, composition: &mut Composition) {
        let mut interval = tokio::time::interval(LIVE_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut announcements = Announcements::default();
        loop {
            tokio::select! {
                Some(notice) = composition.notices.recv() => {
                    self.print(format!("{}: {notice}", label(notice.kind)));
                }
                Some(error) = composition.stopped_sources.recv() => self.print(format!(
                    "warning: the source stopped: {}; running pods are not affected; start \
                     headwater again to follow the source",
                    headwater_telemetry::error_chain(&error)
                )),
                _ = interval.tick() => self.update(composition, &mut announcements).await,
            }
        }
    }

    /// Reads the state of all parts, prints changes, and draws the live line.
    async fn update(&self, composition: &Composition, announcements: &mut Announcements) {
        let progress = composition.cloud.controller.progress().borrow().clone();
        if progress.reconciled && !std::mem::replace(&mut announcements.published, true) {
            self.print(format!(
                "published: {} events in this run, writer epoch {}",
                progress.appended, progress.epoch
            ));
        }
        let status = status::status(&composition.operator_dependencies).await;
        let (mut changes, seen) = match announcements.seen.take() {
            Some((changes, pods)) => (changes, Some(pods)),
            None => (composition.cloud.controller.picture().changes(), None),
        };
        let is_same = changes.next().now_or_never().is_none();
        let pods = seen.filter(|_| is_same).unwrap_or_else(|| Pods::of(&objects(composition)));
        announcements.seen = Some((changes, pods.clone()));
        self.live.set_message(live_line(&status, &pods));
        announcements.nodes(&status).into_iter().for_each(|line| self.print(line));
        // The first announcement waits for every node; later ones do not wait for a node that is
        // away.
        let in_step = status.nodes.iter().all(|node| {
            (node.connected || announcements.next) && (!node.connected || is_in_step(node))
        });
        if progress.reconciled && pods.are_settled() && in_step {
            let news = announcements.pods.news(pods, composition.nodes.len());
            news.into_iter().for_each(|line| self.print(line));
            if !std::mem::replace(&mut announcements.next, true) {
                self.print(format!("next: headwater get pods{}", data_flag(composition)));
            }
        }
    }

    pub(super) fn print_stop_early(&self) {
        self.print("stopping after the start has ended (Ctrl-C again stops at once)");
    }

    pub(super) fn print_stopping(&self, grace: Duration) {
        self.live.finish_and_clear();
        let grace = humantime::format_duration(grace);
        self.print(format!("stopping the pods (at most {grace}; Ctrl-C again stops at once)"));
    }

    pub(super) fn print_stopped(&self, remaining: usize) {
        if remaining == 0 {
            self.print("stopped; the next start continues from the data directory");
        }
    }
}

impl Announcements {
    /// Returns the lines about nodes that went away or came back.
    fn nodes(&mut self, status: &StatusResponse) -> Vec<String> {
        let names = |connected: bool| {
            let nodes = status.nodes.iter().filter(move |node| node.connected == connected);
            nodes.map(|node| node.name.clone()).collect::<BTreeSet<_>>()
        };
        let now = names(true);
        let lost: Vec<String> = self.connected.difference(&now).cloned().collect();
        let back: Vec<String> = self.away.intersection(&now).cloned().collect();
        self.away.extend(lost.iter().cloned());
        self.away.retain(|node| !now.contains(node));
        self.connected = now;
        let lost = pods::line("away, their pods keep running", lost);
        lost.into_iter().chain(pods::line("back", back)).collect()
    }
}

/// The first word of the line of a notice.
fn label(concern: NoticeKind) -> &'static str {
    match concern {
        NoticeKind::NotReplicated | NoticeKind::Repaired => "note",
        _ => "warning",
    }
}

/// The flag for this data directory, if it is not the default.
fn data_flag(composition: &Composition) -> String {
    let root = composition.data.root();
    let default = std::env::current_dir().map(|dir| dir.join(DATA_DEFAULT));
    if default.is_ok_and(|default| default == root) {
        String::new()
    } else {
        format!(" --data {}", root.display())
    }
}

fn objects(composition: &Composition) -> Vec<Value> {
    let filter = Filter { kind: "pod", ..Filter::default() };
    let now_ms = (composition.operator_dependencies.wall_clock)();
    let objects = composition.cloud.controller.picture().objects(&filter, now_ms);
    objects.map(|objects| objects.into_values().collect()).unwrap_or_default()
}

fn is_in_step(node: &NodeStatus) -> bool {
    node.streams.iter().all(|stream| stream.lag_events.unwrap_or_default() == 0)
}

fn live_line(status: &StatusResponse, pods: &Pods) -> String {
    let connected = status.nodes.iter().filter(|node| node.connected).count();
    let streams = || status.nodes.iter().flat_map(|node| &node.streams);
    let applied: u64 = streams().map(|stream| stream.applied).sum();
    let tail: u64 = streams().filter_map(|stream| stream.tail).sum();
    let lag = streams().filter_map(|stream| stream.lag_events).max().unwrap_or_default();
    let lag_seconds = streams().filter_map(|stream| stream.lag_seconds).fold(0.0, f64::max);
    let outbox: u64 = status.nodes.iter().map(|node| node.outbox_depth).sum();
    format!(
        "nodes {connected}/{} · applied {applied}/{tail} · lag {lag} ({lag_seconds:.1}s) · \
         outbox {outbox} · pods {}/{}",
        status.nodes.len(),
        pods.running(),
        pods.all()
    )
}

/// Writes complete log lines above the live line.
struct Above {
    live: ProgressBar,
    line: Vec<u8>,
}

impl Write for Above {
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
        self.live.suspend(|| {
            let _ = write!(std::io::stderr(), "{line}");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_disconnects_and_reconnects_has_one_line_each() {
        let status = |connected: &[(&str, bool)]| StatusResponse {
            nodes: connected
                .iter()
                .map(|(name, connected)| NodeStatus {
                    name: (*name).to_owned(),
                    connected: *connected,
                    ..NodeStatus::default()
                })
                .collect(),
            ..StatusResponse::default()
        };
        let mut announcements = Announcements::default();
        assert!(
            announcements.nodes(&status(&[("a", false), ("b", true)])).is_empty(),
            "the first status announces nothing"
        );
        assert!(announcements.nodes(&status(&[("a", true), ("b", true)])).is_empty());
        let away = "away, their pods keep running: b";
        assert_eq!(announcements.nodes(&status(&[("a", true), ("b", false)])), [away]);
        assert!(announcements.nodes(&status(&[("a", true), ("b", false)])).is_empty());
        assert_eq!(announcements.nodes(&status(&[("a", true), ("b", true)])), ["back: b"]);
    }
}
