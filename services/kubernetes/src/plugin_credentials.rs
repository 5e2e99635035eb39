//! The credentials that a plugin gives, which is run by itself, one run at a time.
//!
//! kube runs the plugin once more when a request finds that its token ends soon. A request that gives up would leave that
//! run behind, and the next request would begin another one: a plugin that hangs would soon have a process and a
//! thread for each. Here, a thread of its own asks kube for the header of requests, and all requests wait for it together.
//! A run that takes too long fails them at once, until it ends.
//!
//! ```text
//!  idle ──► a request finds no fresh header ──► run ──► ends: its header, or why there is none
//!                                                └──► too long: requests fail until it ends
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_telemetry::error_chain;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use kube::client::Body;
use kube::client::middleware::AuthLayer;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::util::{ServiceExt, service_fn};
use tower::{BoxError, Layer};

/// How long a header is used before kube is asked for it again. kube renews a token from a minute before its end, so it
/// still holds then.
const FRESH_FOR: Duration = Duration::from_secs(10);

/// A header of requests; `None`: they have none.
type Header = Option<HeaderValue>;

/// Asks for the header of requests; blocks.
type AskHeader = Box<dyn Fn() -> Result<Header, String> + Send + Sync>;

/// The credentials of a plugin. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PluginCredentials(Arc<SharedRuns>);

struct SharedRuns {
    plugin: String,
    /// How long a run may take.
    within: Duration,
    fresh_for: Duration,
    ask: AskHeader,
    runs: watch::Sender<Runs>,
}

/// The runs of a plugin.
struct Runs {
    /// How many have begun, and how many of them have ended: all, or all but one.
    begun: u64,
    ended: u64,
    /// When the latest one began.
    began_at: Instant,
    /// What the last one that has ended gave, and when.
    outcome: Result<Header, String>,
    ended_at: Option<Instant>,
    /// The latest one was named as one that takes too long.
    is_named: bool,
}

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error(
        "the plugin {plugin:?} gives no credentials within {within:?}; run it by hand, or end it"
    )]
    Slow { plugin: String, within: Duration },
    #[error("the plugin {plugin:?} gives no credentials: {reason}")]
    Failed { plugin: String, reason: String },
}

impl PluginCredentials {
    /// The credentials that `auth` adds to requests. A run of `plugin` may take `within`.
    pub(crate) fn new(plugin: String, auth: &AuthLayer, within: Duration) -> Self {
        let probe = Mutex::new(auth.layer(service_fn(capture)));
        let ask = move || {
            let probe = probe.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            let asked = runtime.block_on(probe.oneshot(http::Request::new(Body::empty())));
            asked.map(http::Response::into_body).map_err(|error| error_chain(&*error))
        };
        Self::over(plugin, Box::new(ask), within, FRESH_FOR)
    }

    fn over(plugin: String, ask: AskHeader, within: Duration, fresh_for: Duration) -> Self {
        let runs = Runs {
            begun: 0,
            ended: 0,
            began_at: Instant::now(),
            outcome: Ok(None),
            ended_at: None,
            is_named: false,
        };
        let runs = watch::Sender::new(runs);
        Self(Arc::new(SharedRuns { plugin, within, fresh_for, ask, runs }))
    }

    /// Adds the credentials to a request.
    ///
    /// # Errors
    /// See [`CredentialsError`].
    pub(crate) async fn authorize<B>(
        &self,
        mut request: http::Request<B>,
    ) -> Result<http::Request<B>, CredentialsError> {
        if let Some(header) = self.header().await? {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        Ok(request)
    }

    async fn header(&self) -> Result<Header, CredentialsError> {
        let SharedRuns { plugin, within, fresh_for, runs, .. } = &*self.0;
        let mut ends = runs.subscribe();
        // The run that the request waits for, and when that began.
        let (mut run, mut began_at) = (0, Instant::now());
        let is_new = runs.send_if_modified(|runs| {
            let must_begin = runs.ended == runs.begun && !runs.is_fresh(*fresh_for);
            if must_begin {
                runs.begun += 1;
                runs.began_at = began_at;
                runs.is_named = false;
            }
            (run, began_at) = (runs.begun, runs.began_at);
            must_begin
        });
        if is_new {
            self.begin();
        }
        let ended = async {
            let ended = ends.wait_for(|runs| runs.ended >= run).await;
            ended.map(|runs| runs.outcome.clone())
        };
        let failed = |reason| CredentialsError::Failed { plugin: plugin.clone(), reason };
        match timeout(within.saturating_sub(began_at.elapsed()), ended).await {
            Ok(Ok(outcome)) => outcome.map_err(failed),
            // It does not happen: `self` has the sender.
            Ok(Err(closed)) => Err(failed(closed.to_string())),
            Err(_) => {
                let slow = CredentialsError::Slow { plugin: plugin.clone(), within: *within };
                runs.send_if_modified(|runs| {
                    if !std::mem::replace(&mut runs.is_named, true) {
                        tracing::warn!("{slow}");
                    }
                    false
                });
                Err(slow)
            }
        }
    }

    /// Begins a run. No shutdown of the runtime waits for its thread.
    fn begin(&self) {
        let shared = self.0.clone();
        let ask = move || {
            let asked = catch_unwind(AssertUnwindSafe(|| (shared.ask)()));
            shared.end(asked.unwrap_or_else(|_| Err("it ended in a panic".to_owned())));
        };
        if let Err(error) = std::thread::Builder::new().name("credentials".to_owned()).spawn(ask) {
            self.0.end(Err(error.to_string()));
        }
    }
}

impl SharedRuns {
    /// The run that has begun has ended.
    fn end(&self, outcome: Result<Header, String>) {
        self.runs.send_modify(|runs| {
            runs.ended = runs.begun;
            runs.outcome = outcome;
            runs.ended_at = Some(Instant::now());
        });
    }
}

impl Runs {
    /// Whether the last run that has ended gave a header, less than `fresh_for` ago.
    fn is_fresh(&self, fresh_for: Duration) -> bool {
        self.outcome.is_ok() && self.ended_at.is_some_and(|at| at.elapsed() < fresh_for)
    }
}

/// Responds with the header that a request was given.
async fn capture(mut request: http::Request<Body>) -> Result<http::Response<Header>, BoxError> {
    Ok(http::Response::new(request.headers_mut().remove(AUTHORIZATION)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    /// How long a test waits for something that must happen.
    const SOON: Duration = Duration::from_secs(30);

    fn named(run: usize) -> Header {
        Some(HeaderValue::from_str(&format!("Bearer {run}")).expect("a header"))
    }

    /// A plugin whose runs end when they are let, one for each message, and how many have begun.
    fn plugin(
        within: Duration,
        fresh_for: Duration,
    ) -> (PluginCredentials, mpsc::Sender<Result<(), String>>, Arc<AtomicUsize>) {
        let (ends, receiver) = mpsc::channel(8);
        let (receiver, begun) = (Mutex::new(receiver), Arc::new(AtomicUsize::new(0)));
        let counted = begun.clone();
        let ask = move || {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let mut receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            let end: Result<(), String> = receiver.blocking_recv().expect("a test ends its runs");
            end.map(|()| named(run))
        };
        let credentials = PluginCredentials::over("p".to_owned(), Box::new(ask), within, fresh_for);
        (credentials, ends, begun)
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_runs_once_and_its_end_brings_credentials() {
        let within = Duration::from_millis(20);
        let (credentials, ends, begun) = plugin(within, SOON);
        let slow = CredentialsError::Slow { plugin: "p".to_owned(), within };
        for _ in 0..5 {
            assert_eq!(credentials.header().await, Err(slow.clone()));
            // A request that gives up before leaves the run behind, too.
            let _ = timeout(Duration::ZERO, credentials.header()).await;
        }
        ends.send(Ok(())).await.expect("it waits");
        let header = async {
            loop {
                match credentials.header().await {
                    Ok(header) => return header,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        assert_eq!(timeout(SOON, header).await.expect("soon"), named(1));
        assert_eq!(credentials.header().await, Ok(named(1)), "it is fresh");
        assert_eq!(begun.load(Ordering::SeqCst), 1, "one run for all of them");
    }

    #[tokio::test]
    async fn a_plugin_that_fails_runs_again_for_the_next_request() {
        let (credentials, ends, begun) = plugin(SOON, Duration::ZERO);
        ends.send(Err("no card".to_owned())).await.expect("it takes it");
        let error = credentials.header().await.expect_err("it fails");
        assert!(error.to_string().ends_with("no credentials: no card"), "{error}");
        for run in [2, 3] {
            ends.send(Ok(())).await.expect("it takes it");
            let request = http::Request::new(());
            let request = credentials.authorize(request).await.expect("credentials");
            assert_eq!(request.headers().get(AUTHORIZATION), named(run).as_ref());
        }
        assert_eq!(begun.load(Ordering::SeqCst), 3, "none is fresh");
    }

    #[tokio::test]
    async fn a_run_that_panics_has_failed_and_another_one_begins() {
        let runs = AtomicUsize::new(0);
        let ask = move || match runs.fetch_add(1, Ordering::SeqCst) {
            0 => panic!("its answer is not understood"),
            run => Ok(named(run)),
        };
        let credentials =
            PluginCredentials::over("p".to_owned(), Box::new(ask), SOON, Duration::ZERO);
        let error = credentials.header().await.expect_err("it fails");
        assert!(error.to_string().ends_with("it ended in a panic"), "{error}");
        assert_eq!(credentials.header().await, Ok(named(1)));
    }
}
