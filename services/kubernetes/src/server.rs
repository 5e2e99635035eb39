//! The API server: its version, which cluster it belongs to, and whether its history went back.
//!
//! A server that was restored from a backup continues at an earlier version. A watch from a later
//! version stays silent there until the server has caught up, and misses what happens until then
//! (kubernetes#107457). So the version is looked at once in a while.

use std::time::Duration;

use headwater_event::ResourceKey;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use crate::failure::{RequestError, send};
use crate::kind::{IDENTITY_NAMESPACE, Kind};
use crate::request::{Page, Selection, list};

/// The oldest version of Kubernetes that Headwater works with, 1.33.
const OLDEST: (u32, u32) = (1, 33);

/// The first version that constrains impersonation by default (KEP-5284).
const FIRST_WITH_IMPERSONATION: (u32, u32) = (1, 36);

/// How long a look at the server may take.
pub(crate) const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// How often the server is looked at.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// The server, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerLook {
    /// The identity of its cluster: the UID of the namespace `kube-system`.
    pub(crate) cluster: String,
    /// The version of its data, where that is a number.
    pub(crate) order: Option<u64>,
}

/// Why an API is not followed, whatever happens. No object was removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerRefusal {
    /// The server is too old.
    #[error(
        "the API server at {server} has version {version}; Headwater needs Kubernetes {}.{} or later: \
         upgrade the cluster",
        OLDEST.0, OLDEST.1
    )]
    TooOld {
        /// Its address.
        server: String,
        /// Its version.
        version: String,
    },
    /// It is another cluster.
    #[error(
        "the API server at {server} belongs to another cluster than the objects in the log: its \
         namespace kube-system has the UID {found}, that of the log has {expected}. No object was \
         removed. Correct the kubeconfig; or, to replace all objects in the log by those of this \
         cluster, start the controller with --allow-other-cluster"
    )]
    OtherCluster {
        /// Its address.
        server: String,
        /// Its UID.
        found: String,
        /// The UID in the log.
        expected: String,
    },
}

/// What a look means after the looks before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The history continues.
    Continues,
    /// The history went back: everything is to be listed anew.
    WentBack,
    /// It is another cluster.
    OtherCluster,
}

/// The looks so far.
#[derive(Debug)]
pub(crate) struct ServerHistory {
    cluster: String,
    highest: Option<u64>,
}

impl ServerHistory {
    /// A history that begins with `look`.
    pub(crate) fn new(look: &ServerLook) -> Self {
        Self { cluster: look.cluster.clone(), highest: look.order }
    }

    /// The identity of the cluster.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Notes the version of an event.
    pub(crate) fn note(&mut self, order: Option<u64>) {
        self.highest = self.highest.max(order);
    }

    /// The highest version so far. A look that is sent now finds no lower one.
    pub(crate) fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Takes a look that was sent when `before` was the highest version. Events that came since may be
    /// newer than the look.
    pub(crate) fn take(&mut self, before: Option<u64>, look: &ServerLook) -> Verdict {
        if look.cluster != self.cluster {
            return Verdict::OtherCluster;
        }
        if look.order.zip(before).is_some_and(|(now, before)| now < before) {
            self.highest = look.order;
            return Verdict::WentBack;
        }
        self.note(look.order);
        Verdict::Continues
    }
}

/// The key of the namespace whose UID is the identity of a cluster.
pub(crate) fn identity_key() -> ResourceKey {
    ResourceKey::new(None, Kind::Namespace.name(), IDENTITY_NAMESPACE)
        .expect("both are fixed and make a key")
}

/// Looks at the server.
pub(crate) async fn look(client: &Client) -> Result<ServerLook, RequestError> {
    timeout(LOOK_WITHIN, look_at(client)).await.unwrap_or(Err(RequestError::Silent(LOOK_WITHIN)))
}

async fn look_at(client: &Client) -> Result<ServerLook, RequestError> {
    let selection = Selection::with_field("metadata.name", IDENTITY_NAMESPACE);
    let page: Page = send(client, list(Kind::Namespace, &selection)?).await?;
    let (metadata, items) = page.items();
    let Some(namespace) = items.first().filter(|namespace| !namespace.uid().is_empty()) else {
        return Err(RequestError::NoIdentity);
    };
    let order = metadata.resource_version.parse().ok();
    Ok(ServerLook { cluster: namespace.uid().to_owned(), order })
}

/// The version of an API server, and its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// The version, such as `v1.36.3`.
    pub text: String,
    /// Major and minor; `None`: they are no numbers.
    number: Option<(u32, u32)>,
    /// The time at the server when it answered, in seconds since the Unix epoch.
    pub epoch_s: Option<i64>,
}

/// The answer to the question for the version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionAnswer {
    #[serde(default)]
    major: String,
    #[serde(default)]
    minor: String,
    git_version: String,
}

impl ServerVersion {
    fn new(answer: VersionAnswer, date: Option<&str>) -> Self {
        // Some clouds write 33+.
        let number = |text: &str| text.trim_end_matches('+').parse::<u32>().ok();
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        Self {
            number: number(&answer.major).zip(number(&answer.minor)),
            text: answer.git_version,
            epoch_s: date.map(|date| date.timestamp().as_second()),
        }
    }

    /// Whether Headwater does not work with it. A version that is no number is not too old.
    pub fn is_old(&self) -> bool {
        self.number.is_some_and(|version| version < OLDEST)
    }

    /// Whether the controller can act as a node there.
    pub fn has_impersonation(&self) -> bool {
        self.number.is_none_or(|version| version >= FIRST_WITH_IMPERSONATION)
    }
}

/// Asks the server for its version.
pub(crate) async fn ask_version(client: &Client) -> Result<ServerVersion, RequestError> {
    let asked = timeout(LOOK_WITHIN, request_version(client));
    asked.await.unwrap_or(Err(RequestError::Silent(LOOK_WITHIN)))
}

async fn request_version(client: &Client) -> Result<ServerVersion, RequestError> {
    let request = http::Request::get("/version").body(Body::empty());
    let request = request.map_err(kube::core::request::Error::BuildRequest)?;
    let response = client.send(request).await?;
    let (head, body) = response.into_parts();
    let body = body.collect_bytes().await?;
    if !head.status.is_success() {
        return Err(RequestError::of_answer(head.status, &body));
    }
    let answer = serde_json::from_slice(&body)
        .map_err(|error| RequestError::Answer { line: error.line(), column: error.column() })?;
    let date = head.headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
    Ok(ServerVersion::new(answer, date))
}

/// Checks the version of the server.
///
/// # Errors
/// The request failed; or, inside, the server is too old.
pub(crate) async fn check_version(
    client: &Client,
    server: &str,
) -> Result<Result<(), ServerRefusal>, RequestError> {
    let version = ask_version(client).await?;
    Ok(if version.is_old() {
        Err(ServerRefusal::TooOld { server: server.to_owned(), version: version.text })
    } else {
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cluster: &str, order: u64) -> ServerLook {
        ServerLook { cluster: cluster.into(), order: Some(order) }
    }

    #[test]
    fn a_history_that_went_back_is_noticed_once() {
        let mut history = ServerHistory::new(&at("a", 100));
        let mut take = |cluster, order| {
            let before = history.highest();
            history.take(before, &at(cluster, order))
        };
        assert_eq!(take("a", 100), Verdict::Continues);
        assert_eq!(take("a", 140), Verdict::Continues);
        assert_eq!(take("a", 120), Verdict::WentBack);
        assert_eq!(take("a", 121), Verdict::Continues);
        history.note(Some(300));
        history.note(None);
        assert_eq!(history.take(history.highest(), &at("a", 299)), Verdict::WentBack);
        assert_eq!(history.take(history.highest(), &at("b", 500)), Verdict::OtherCluster);
    }

    #[test]
    fn an_event_that_overtakes_a_look_is_no_step_back_and_counts_at_the_next_look() {
        let mut history = ServerHistory::new(&at("a", 100));
        let before = history.highest();
        history.note(Some(500));
        assert_eq!(history.take(before, &at("a", 120)), Verdict::Continues);
        assert_eq!(history.take(history.highest(), &at("a", 150)), Verdict::WentBack);
    }

    fn version(major: &str, minor: &str) -> ServerVersion {
        let text =
            format!(r#"{{"major":"{major}","minor":"{minor}","gitVersion":"v{major}.{minor}.1"}}"#);
        let answer = serde_json::from_str(&text).expect("an answer");
        ServerVersion::new(answer, Some("Wed, 25 Nov 2026 17:11:35 GMT"))
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (major, minor, old, impersonates) in [
            ("1", "32", true, false),
            ("1", "33", false, false),
            ("1", "9+", true, false),
            ("1", "36+", false, true),
            ("2", "0", false, true),
            ("", "x", false, true),
        ] {
            let version = version(major, minor);
            assert_eq!(version.is_old(), old, "{major}.{minor}");
            assert_eq!(version.has_impersonation(), impersonates, "{major}.{minor}");
        }
    }

    #[test]
    fn the_clock_of_a_server_is_the_date_of_its_answer() {
        assert_eq!(version("1", "36").epoch_s, Some(1_795_626_695));
    }
}
