//! The audit log of an API server: which requests of a client were refused, and which of its rights
//! were not used.
//!
//! Pure: a text in, sentences out. A test that runs under the roles of a deployment wants both empty:
//! the roles then grant what is needed and nothing more.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;

/// The policy of the log: the user, the request and the answer's status, without bodies. The parts of
/// the control plane and the administrator are left out.
pub(crate) const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: [system:masters]
- level: None
  users: [system:apiserver, system:kube-controller-manager, system:kube-scheduler]
- level: None
  userGroups: ['system:serviceaccounts:kube-system']
- level: Metadata
";

const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;

/// Why a namespace that is about to end takes nothing new, whatever the rights of a client are.
const TERMINATED: &str = "because it is being terminated";

/// The first status of an error.
const ERRORS: u16 = 400;

/// The verb of a right to do something as a node begins with this; KEP-5284.
const ON_NODE: &str = "impersonate-on:arbitrary-node:";

/// The right to act as a node at all.
const AS_NODE: &str = "impersonate:arbitrary-node";

/// The user of a node begins with this.
const NODE_USER: &str = "system:node:";

/// The requests in an audit log.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    events: Vec<AuditEvent>,
}

/// A right, as a role grants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedRight {
    /// The verb.
    pub verb: String,
    /// The API group; empty for the first one.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource; empty for none.
    pub subresource: String,
}

/// A line that is no event.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the audit log is no event")]
pub struct AuditError {
    line: usize,
    source: serde_json::Error,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    /// Empty: the server answered before it knew the user, as after a freeze in which the client gave up.
    #[serde(default)]
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
    message: String,
}

impl AuditLog {
    /// Parses the lines of a log. A last line that is still being written is left out.
    ///
    /// # Errors
    /// A whole line is no event.
    pub fn parse(text: &str) -> Result<Self, AuditError> {
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let lines = whole.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let event = |(at, line)| {
            serde_json::from_str(line).map_err(|source| AuditError { line: at + 1, source })
        };
        Ok(Self { events: lines.map(event).collect::<Result<_, _>>()? })
    }

    /// The number of events of `user`, in whatever name it acted.
    pub fn count(&self, user: &str) -> usize {
        self.of(user).count()
    }

    /// The requests of `user` that its rights or a policy refused, each once, in words. Answers such as
    /// not found and conflict are no refusals, and no right lets an object into a namespace that ends.
    pub fn refused(&self, user: &str) -> Vec<String> {
        let refused = self.of(user).filter(|event| event.is_refused());
        let sentences: BTreeSet<String> = refused.map(ToString::to_string).collect();
        sentences.into_iter().collect()
    }

    /// The rights that no request of `user` used with success, in words.
    pub fn unused(&self, user: &str, rights: &[AuditedRight]) -> Vec<String> {
        let is_used = |right: &&AuditedRight| {
            self.of(user).any(|event| event.has_succeeded() && event.uses(right))
        };
        rights.iter().filter(|right| !is_used(right)).map(ToString::to_string).collect()
    }

    fn of<'l>(&'l self, user: &'l str) -> impl Iterator<Item = &'l AuditEvent> {
        self.events.iter().filter(move |event| event.user.username == user)
    }
}

impl AuditEvent {
    fn status(&self) -> ResponseStatus {
        self.response_status.clone().unwrap_or_default()
    }

    fn has_succeeded(&self) -> bool {
        (1..ERRORS).contains(&self.status().code)
    }

    fn is_refused(&self) -> bool {
        let status = self.status();
        // A ValidatingAdmissionPolicy refuses with the status that it names, 422 by default.
        let is_of_rights = matches!(status.code, UNAUTHORIZED | FORBIDDEN);
        is_of_rights && !status.message.contains(TERMINATED)
            || (status.code >= ERRORS && status.message.contains("denied request"))
    }

    fn node(&self) -> Option<&str> {
        self.impersonated_user.as_ref().and_then(|user| user.username.strip_prefix(NODE_USER))
    }

    fn uses(&self, right: &AuditedRight) -> bool {
        if right.verb == AS_NODE {
            return self.node().is_some();
        }
        let (verb, as_node) = match right.verb.strip_prefix(ON_NODE) {
            Some(verb) => (verb, true),
            None => (right.verb.as_str(), false),
        };
        let object = self.object_ref.clone().unwrap_or_default();
        self.verb == verb
            && self.impersonated_user.is_some() == as_node
            && self.node().is_some() == as_node
            && object.api_group == right.group
            && object.resource == right.resource
            && object.subresource == right.subresource
    }
}

impl fmt::Display for AuditEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.uri)?;
        if let Some(user) = &self.impersonated_user {
            write!(f, " as {}", user.username)?;
        }
        let status = self.status();
        write!(f, ": {} {}", status.code, status.message)
    }
}

impl fmt::Display for AuditedRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, subresource } = self;
        let dot = if group.is_empty() { "" } else { "." };
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{verb} {resource}{dot}{group}{slash}{subresource}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(verb: &str, resource: &str, node: Option<&str>, code: u16, message: &str) -> Value {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let mut event = json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/api/v1/x",
            "user": {"username": "controller", "groups": ["system:authenticated"]},
            "objectRef": {"resource": resource, "subresource": subresource, "apiVersion": "v1"},
            "responseStatus": {"code": code, "message": message},
        });
        if let Some(node) = node {
            event["impersonatedUser"] = json!({"username": format!("system:node:{node}")});
        }
        event
    }

    fn log(events: &[Value]) -> AuditLog {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        AuditLog::parse(&lines).expect("events")
    }

    fn right(verb: &str, resource: &str) -> AuditedRight {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        AuditedRight {
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    #[test]
    fn what_rights_and_policies_refuse_is_named_once() {
        let log = log(&[
            event("get", "pods", None, 200, ""),
            event("get", "pods", None, 404, "pods \"a\" not found"),
            event("patch", "pods", None, 422, "policy 'p' denied request: tolerations alone"),
            event("patch", "pods", None, 422, "metadata.uid: Invalid value"),
            event("delete", "pods", Some("a"), 403, "only its own"),
            event("delete", "pods", Some("a"), 403, "only its own"),
            event("create", "events", None, 403, "namespace x because it is being terminated"),
        ]);
        let refused = log.refused("controller");
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("as system:node:a: 403"), "{refused:?}");
        assert!(log.refused("other").is_empty());
        assert_eq!((log.count("controller"), log.count("other")), (7, 0));
    }

    #[test]
    fn a_right_is_used_by_a_request_of_its_kind_that_succeeds() {
        let log = log(&[
            event("get", "pods", None, 404, ""),
            event("patch", "pods/status", Some("a"), 200, ""),
            event("list", "pods", None, 200, ""),
        ]);
        let rights = [
            right("list", "pods"),
            right("get", "pods"),
            right("patch", "pods/status"),
            right("patch", "pods"),
            right(&format!("{ON_NODE}patch"), "pods/status"),
            right(&format!("{ON_NODE}list"), "pods"),
            right(AS_NODE, "nodes"),
        ];
        let unused = log.unused("controller", &rights);
        let expected = [
            "get pods",
            "patch pods/status",
            "patch pods",
            "impersonate-on:arbitrary-node:list pods",
        ];
        assert_eq!(unused, expected);
    }

    #[test]
    fn a_request_whose_user_the_server_does_not_know_is_an_event_of_no_user() {
        let mut unknown = event("watch", "pods", None, 401, "Unauthorized");
        unknown["user"] = json!({});
        let log = log(&[unknown, event("get", "pods", None, 200, "")]);
        assert_eq!((log.count("controller"), log.refused("controller").len()), (1, 0));
    }

    #[test]
    fn a_line_that_is_being_written_is_no_event_yet() {
        let whole = event("get", "pods", None, 200, "").to_string();
        let text = format!("{whole}\n{}", &whole[..20]);
        assert_eq!(AuditLog::parse(&text).expect("one event").count("controller"), 1);
        let error = AuditLog::parse(&format!("{text}\n")).expect_err("half a line");
        assert_eq!(error.to_string(), "line 2 of the audit log is no event");
    }
}
