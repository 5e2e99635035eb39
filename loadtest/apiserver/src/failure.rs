//! Failures as `Status` objects, with the codes, reasons and words of Kubernetes.

use serde_json::{Value, json};

use crate::resource::Resource;

/// A request that fails.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    /// The token of a list that goes on at another version.
    continue_token: Option<String>,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    fn about(mut self, resource: &Resource, name: &str, kind: &str) -> Self {
        let mut details = json!({"kind": kind});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !resource.group.is_empty() {
            details["group"] = resource.group.into();
        }
        self.details = Some(details);
        self
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.qualified_plural());
        Self::new(404, "NotFound", message).about(resource, name, resource.plural)
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified_plural());
        Self::new(409, "AlreadyExists", message).about(resource, name, resource.plural)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let what = resource.qualified_plural();
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, name, resource.plural)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let name_shown = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{name_shown} is forbidden: {why}", resource.qualified_plural());
        Self::new(403, "Forbidden", message).about(resource, name, resource.plural)
    }

    /// A field that is wrong; `reason` is that of the cause.
    pub(crate) fn invalid(
        resource: &Resource,
        name: &str,
        field: &str,
        reason: &'static str,
        why: &str,
    ) -> Self {
        let message = format!("{} {name:?} is invalid: {field}: {why}", resource.qualified_kind());
        let mut failure = Self::new(422, "Invalid", message).about(resource, name, resource.kind);
        if let Some(details) = &mut failure.details {
            details["causes"] = json!([{"reason": reason, "message": why, "field": field}]);
        }
        failure
    }

    /// A value that may not change.
    pub(crate) fn immutable(resource: &Resource, name: &str, field: &str, value: &str) -> Self {
        let why = format!("Invalid value: {value:?}: field is immutable");
        Self::invalid(resource, name, field, "FieldValueInvalid", &why)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A version of a watch that is too old.
    pub(crate) fn too_old(version: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {version} ({oldest})"))
    }

    /// A token of a list whose version is gone.
    pub(crate) fn token_expired(next: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result. You can start a new list without the continue parameter, or use the \
                       continue token in this response to retrieve the remainder of the results. \
                       Continuing with the provided token results in an inconsistent list - objects \
                       that were created, modified, or deleted between the time the first chunk was \
                       returned and now may show up in the list.";
        Self { continue_token: Some(next), ..Self::new(410, "Expired", message) }
    }

    /// A version of a list that is compacted.
    pub(crate) fn compacted() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(410, "Expired", message)
    }

    /// A version that is not there yet.
    pub(crate) fn too_new(version: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {version}, current: {current}");
        let mut failure = Self::new(504, "Timeout", format!("Timeout: {message}"));
        failure.details = Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        failure
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(crate) fn unsupported_media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// A path in a group that is served.
    pub(crate) fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// The store did not answer: the write may have happened.
    pub(crate) fn store_timeout() -> Self {
        Self::new(500, "", "etcdserver: request timed out")
    }

    /// A failure without a reason.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::new(503, "ServiceUnavailable", message)
    }

    /// The object that the client gets.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        status
    }
}
