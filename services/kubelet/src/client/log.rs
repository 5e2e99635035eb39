//! The log of a container, as its bytes come.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::JoinHandle;

use super::{ClientError, broken, encoded};

/// The lines of a log that a person wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// Go on while the container writes.
    pub follow: bool,
    /// The run before the latest one.
    pub previous: bool,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Only so many last lines.
    pub tail: Option<u64>,
    /// Only lines of so many last seconds, at least 1.
    pub since_seconds: Option<u64>,
}

/// The bytes of a log.
#[derive(Debug)]
pub struct LogStream {
    pub(super) body: Incoming,
    pub(super) connection: JoinHandle<Result<(), hyper::Error>>,
}

impl LogRequest {
    pub(super) fn path(&self) -> String {
        let Self { namespace, pod, container, follow, previous, timestamps, tail, since_seconds } =
            self;
        let (namespace, pod, container) = (encoded(namespace), encoded(pod), encoded(container));
        let mut path = format!("/containerLogs/{namespace}/{pod}/{container}");
        let flags = [("follow", *follow), ("previous", *previous), ("timestamps", *timestamps)];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        let flags = flags.map(|(name, _)| format!("{name}=true"));
        let numbers = [("tailLines", *tail), ("sinceSeconds", *since_seconds)];
        let numbers =
            numbers.into_iter().filter_map(|(name, number)| Some(format!("{name}={}", number?)));
        let query: Vec<String> = flags.chain(numbers).collect();
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        path
    }
}

impl LogStream {
    /// The bytes that come next; `None` at the end of the log. Cancel safe.
    ///
    /// # Errors
    /// The connection broke off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(bytes) = frame.map_err(broken)?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// All bytes until the end.
    pub(super) async fn whole(mut self) -> Result<Bytes, ClientError> {
        let body = std::pin::Pin::new(&mut self.body);
        Ok(body.collect().await.map_err(broken)?.to_bytes())
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_named_in_the_path_and_its_lines_in_the_query() {
        let request = LogRequest {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "a b".to_owned(),
            ..LogRequest::default()
        };
        assert_eq!(request.path(), "/containerLogs/shop/web/a%20b");
        let (tail, since_seconds) = (Some(5), Some(60));
        let follow = LogRequest { follow: true, tail, since_seconds, ..request };
        assert_eq!(
            follow.path(),
            "/containerLogs/shop/web/a%20b?follow=true&tailLines=5&sinceSeconds=60"
        );
    }
}
