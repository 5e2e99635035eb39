//! The requests for objects that [`Fetches`](crate::fetches::Fetches) orders.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::access::Connection;
use crate::cluster_objects::FetchAnswer;
use crate::failure::{FailureKind, RequestError, send};
use crate::fetches::Fetch;
use crate::raw_object::RawObject;
use crate::request::{self, Page, Selection};

/// How long a request for objects may take.
const FETCH_WITHIN: Duration = Duration::from_secs(10);

/// The pauses of a request for objects that failed, doubled from the first to the last.
const FETCH_PAUSE_MIN: Duration = Duration::from_millis(100);
const FETCH_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Requests objects, again after each failure but a refusal.
pub(crate) async fn request_objects(connection: &Connection, fetch: &Fetch) -> FetchAnswer {
    let mut pause = FETCH_PAUSE_MIN;
    loop {
        let answer = timeout(FETCH_WITHIN, requested(connection, fetch)).await;
        match answer.unwrap_or(Err(RequestError::Silent(FETCH_WITHIN))) {
            Ok(objects) => return FetchAnswer::Objects(objects),
            Err(error) if error.is_absence() && matches!(fetch, Fetch::Object(..)) => {
                return FetchAnswer::Objects(Vec::new());
            }
            Err(error) if error.kind() == FailureKind::Refused => return FetchAnswer::Refused,
            Err(error) => {
                let error = error.describe(&connection.server);
                tracing::debug!(?fetch, error, "a request for objects failed");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(FETCH_PAUSE_MAX);
    }
}

async fn requested(connection: &Connection, fetch: &Fetch) -> Result<Vec<RawObject>, RequestError> {
    let client = &connection.client;
    let selection = match fetch {
        Fetch::Object(kind, key) => {
            return Ok(vec![send(client, request::object(*kind, key)?).await?]);
        }
        Fetch::PodsOf(node) => Selection::with_field("spec.nodeName", node.as_str()),
        Fetch::Attachments => Selection::default(),
    };
    let page: Page = send(client, request::list(fetch.kind(), &selection)?).await?;
    Ok(page.items().1)
}
