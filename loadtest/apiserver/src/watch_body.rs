//! The body of a watch: a line for each event, until the watch ends.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::{Instant, sleep, sleep_until};

use crate::server::ApiServer;
use crate::service::{AnswerBody, ConnectionError};
use crate::watching::WatchStart;

/// The length of a watch for which the client gives none: between this and twice this.
const LENGTH_MIN: Duration = Duration::from_secs(1800);

/// How often a watch says how far it is; and how long before its end it does so once more.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// A watch on its way.
struct OpenWatch {
    server: ApiServer,
    start: WatchStart,
    /// The start of the server that it is a watch of.
    starts: u64,
    version: u64,
    lines: VecDeque<Bytes>,
    ends_at: Instant,
    bookmark_at: Instant,
    is_over: bool,
}

/// The result of a look of a watch.
enum WatchLook {
    Reset,
    Nothing,
    Frozen,
    /// There is something new, which is so long on its way.
    News(Duration),
}

/// The body of a watch.
pub(crate) fn watch_body(server: ApiServer, mut start: WatchStart, starts: u64) -> AnswerBody {
    let length = start.timeout_seconds.map_or_else(
        || {
            let extra = server.lock().chance.below(LENGTH_MIN.as_secs());
            LENGTH_MIN + Duration::from_secs(extra)
        },
        Duration::from_secs,
    );
    let now = Instant::now();
    let open = OpenWatch {
        server,
        starts,
        version: start.version,
        lines: std::mem::take(&mut start.lines),
        is_over: start.is_over,
        start,
        ends_at: now + length,
        bookmark_at: next_bookmark(now, now + length),
    };
    let frames = stream::unfold(open, |mut open| async move {
        let item = open.next().await?;
        Some((item.map(Frame::data), open))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn next_bookmark(now: Instant, ends_at: Instant) -> Instant {
    let usual = now + BOOKMARK_INTERVAL;
    let last = ends_at.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    last.map_or(usual, |last| usual.min(last))
}

impl OpenWatch {
    async fn next(&mut self) -> Option<Result<Bytes, ConnectionError>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            if self.is_over {
                return None;
            }
            let server = self.server.clone();
            let turn = server.turn();
            match self.look() {
                WatchLook::Reset => {
                    self.is_over = true;
                    return Some(Err(ConnectionError::Reset));
                }
                WatchLook::News(way) => {
                    sleep(way).await;
                    self.take_news().await;
                }
                WatchLook::Frozen => {
                    // Not even its end comes.
                    turn.await;
                }
                WatchLook::Nothing => self.wait(turn).await,
            }
        }
    }

    fn look(&self) -> WatchLook {
        let mut state = self.server.lock();
        // A watch that is too far behind ends, too.
        let is_behind = self.version < state.api.store.dropped();
        if !state.is_up || state.starts != self.starts || is_behind {
            return WatchLook::Reset;
        }
        if state.is_frozen {
            return WatchLook::Frozen;
        }
        if state.api.lines_after(&self.start, self.version).0.is_empty() {
            return WatchLook::Nothing;
        }
        let most = state.faults.event_ms_max;
        let way = if most == 0 { 0 } else { state.chance.below(most + 1) };
        WatchLook::News(Duration::from_millis(way))
    }

    /// Takes what is new, and draws what befalls the watch then.
    async fn take_news(&mut self) {
        let hangs = {
            let mut state = self.server.lock();
            if !state.is_up || state.starts != self.starts || state.is_frozen {
                return;
            }
            let (lines, version) = state.api.lines_after(&self.start, self.version);
            (self.lines, self.version) = (lines, version);
            let faults = state.faults;
            if state.chance.happens(faults.watch_ends) {
                // Some of the events still arrive.
                let kept = state.chance.below(self.lines.len() as u64 + 1);
                self.lines.truncate(usize::try_from(kept).unwrap_or(0));
                self.is_over = true;
            }
            state.chance.happens(faults.watch_hangs)
        };
        if hangs {
            pending::<()>().await;
        }
    }

    /// Waits for a turn of the server, a bookmark's time or the end.
    async fn wait(&mut self, turn: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = turn => {}
            () = sleep_until(self.ends_at) => self.is_over = true,
            () = sleep_until(self.bookmark_at), if self.start.takes_bookmarks => {
                let version = self.server.lock().api.store.version();
                // A watch from a version that is not there yet has nothing to say.
                if version >= self.version {
                    self.version = version;
                    self.lines.push_back(self.start.bookmark(version));
                }
                self.bookmark_at = next_bookmark(Instant::now(), self.ends_at);
            }
        }
    }
}
