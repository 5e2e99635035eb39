//! Requests: which object or list a path names, and what the query wants of it.

use bytes::Bytes;
use http::Method;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde_json::Value;

use crate::failure::Failure;
use crate::resource::Resource;

/// A request with its body.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

/// The query of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) is_watch: bool,
    pub(crate) bookmarks: bool,
    pub(crate) sends_initial: bool,
    pub(crate) labels: String,
    pub(crate) fields: String,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) version: String,
    pub(crate) version_match: String,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) is_dry: bool,
}

/// What a path names.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl ApiRequest {
    pub(crate) fn new(parts: &Parts, body: Bytes) -> Self {
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Self {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            content_type: content_type.unwrap_or("application/json").to_owned(),
            body,
        }
    }

    /// The body as JSON; `None` where there is none.
    pub(crate) fn json(&self) -> Result<Option<Value>, Failure> {
        if self.body.is_empty() {
            return Ok(None);
        }
        let parsed = serde_json::from_slice(&self.body);
        parsed
            .map(Some)
            .map_err(|error| Failure::bad_request(format!("the body is no JSON: {error}")))
    }
}

impl Query {
    fn parse(text: &str) -> Self {
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            let is_true = matches!(&*value, "" | "1" | "true");
            match &*key {
                "watch" => query.is_watch = is_true,
                "allowWatchBookmarks" => query.bookmarks = is_true,
                "sendInitialEvents" => query.sends_initial = is_true,
                "labelSelector" => query.labels = value.into_owned(),
                "fieldSelector" => query.fields = value.into_owned(),
                "limit" => query.limit = value.parse().unwrap_or(0),
                "continue" => query.continue_token = value.into_owned(),
                "resourceVersion" => query.version = value.into_owned(),
                "resourceVersionMatch" => query.version_match = value.into_owned(),
                "timeoutSeconds" => query.timeout_seconds = value.parse().ok(),
                "gracePeriodSeconds" => query.grace_seconds = value.parse().ok(),
                "dryRun" => query.is_dry = value == "All",
                _ => {}
            }
        }
        query
    }

    /// The version as a number; `None` where none is given.
    pub(crate) fn version(&self) -> Result<Option<u64>, Failure> {
        if self.version.is_empty() {
            return Ok(None);
        }
        let parsed = self.version.parse().map(Some);
        parsed.map_err(|_| {
            Failure::bad_request(format!("Invalid value: {:?}: invalid version", self.version))
        })
    }
}

impl Target {
    /// What a path names; `None`: nothing that is served.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let group = match *parts.first()? {
            "api" if parts.get(1) == Some(&"v1") => {
                parts.drain(..2);
                ""
            }
            "apis" if parts.get(2) == Some(&"v1") => {
                let group = parts[1];
                parts.drain(..3);
                group
            }
            _ => return None,
        };
        let is_of_namespace = parts.first() == Some(&"namespaces")
            && parts.len() > 2
            && !(group.is_empty() && matches!(parts[2], "status" | "finalize"));
        let namespace = is_of_namespace.then(|| parts[1].to_owned());
        if is_of_namespace {
            parts.drain(..2);
        }
        let resource = Resource::find(group, parts.first()?)?;
        let is_placed = namespace.is_some();
        let is_right =
            if resource.is_namespaced { is_placed || parts.len() == 1 } else { !is_placed };
        let text = |at: usize| parts.get(at).map(|part| (*part).to_owned());
        (is_right && parts.len() <= 3).then(|| Self {
            resource,
            namespace,
            name: text(1),
            subresource: text(2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_lists_objects_and_parts_of_objects() {
        let show = |path: &str| {
            let target = Target::parse(path)?;
            let Target { resource, namespace, name, subresource } = target;
            let rest = [namespace, name, subresource];
            let rest: Vec<String> = rest.into_iter().map(Option::unwrap_or_default).collect();
            Some(format!("{} {}", resource.plural, rest.join("|")))
        };
        for (path, expected) in [
            ("/api/v1/pods", Some("pods ||")),
            ("/api/v1/namespaces/d/pods/p/status", Some("pods d|p|status")),
            ("/api/v1/namespaces", Some("namespaces ||")),
            ("/api/v1/namespaces/d", Some("namespaces |d|")),
            ("/api/v1/namespaces/d/status", Some("namespaces |d|status")),
            ("/api/v1/nodes/n/status", Some("nodes |n|status")),
            ("/apis/coordination.k8s.io/v1/namespaces/d/leases/l", Some("leases d|l|")),
            ("/api/v1/pods/p", None),
            ("/api/v1/namespaces/d/nodes/n", None),
            ("/api/v1/leases", None),
            ("/apis/apps/v1/deployments", None),
            ("/healthz", None),
        ] {
            assert_eq!(show(path).as_deref(), expected, "{path}");
        }
    }
}
