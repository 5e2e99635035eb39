//! Watches: where one begins, and which events follow.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::api::Api;
use crate::failure::Failure;
use crate::request::{Query, Target};
use crate::resource::Resource;
use crate::selector::Selectors;
use crate::store::{Change, at_version};

/// A watch that begins.
#[derive(Debug)]
pub(crate) struct WatchStart {
    resource: &'static Resource,
    selectors: Selectors,
    /// Whether the client takes bookmarks.
    pub(crate) takes_bookmarks: bool,
    /// The length that the client wants.
    pub(crate) timeout_seconds: Option<u64>,
    /// The version after which the events begin.
    pub(crate) version: u64,
    /// The first lines.
    pub(crate) lines: VecDeque<Bytes>,
    /// Whether nothing follows them.
    pub(crate) is_over: bool,
}

impl Api {
    /// Begins a watch.
    pub(crate) fn watch(&self, target: &Target, query: &Query) -> Result<WatchStart, Failure> {
        let selectors = target.selectors(query)?;
        let mut start = WatchStart {
            resource: target.resource,
            selectors,
            takes_bookmarks: query.bookmarks,
            timeout_seconds: query.timeout_seconds,
            version: self.store.version(),
            lines: VecDeque::new(),
            is_over: false,
        };
        let asked = query.version().map_err(|_| {
            let given = &query.version;
            Failure::internal(format!(
                "resourceVersion: Invalid value: {given:?}: strconv.ParseUint: parsing {given:?}: invalid \
                 syntax"
            ))
        })?;
        let asked = asked.filter(|version| *version > 0);
        if query.sends_initial || asked.is_none() {
            start.send_state(self, query.sends_initial);
            return Ok(start);
        }
        let version = asked.unwrap_or_default();
        let oldest = self.store.watchable();
        if version < oldest {
            // Not the HTTP status: the watch opens, and this is its only event.
            start.expire(&Failure::too_old(version, oldest));
        }
        // A later version than that of the store is waited for in silence.
        start.version = version;
        Ok(start)
    }

    /// The lines of a watch after `version`, and the version of the last.
    pub(crate) fn lines_after(&self, start: &WatchStart, version: u64) -> (VecDeque<Bytes>, u64) {
        let mut last = version;
        let mut lines = VecDeque::new();
        for change in self.store.changes_after(version) {
            last = change.version;
            if change.place.plural == start.resource.plural {
                lines.extend(start.event(change));
            }
        }
        (lines, last)
    }
}

impl WatchStart {
    /// Begins with all objects.
    fn send_state(&mut self, api: &Api, with_end: bool) {
        let objects = api.store.at(self.resource.plural, self.version);
        for object in objects.values().filter(|object| self.selectors.match_object(object)) {
            self.lines.push_back(line("ADDED", object));
        }
        if with_end && self.takes_bookmarks {
            let mut bookmark = self.bookmark_object(self.version);
            bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            self.lines.push_back(line("BOOKMARK", &bookmark));
        }
    }

    /// Ends with an error.
    pub(crate) fn expire(&mut self, failure: &Failure) {
        self.lines.push_back(line("ERROR", &failure.status()));
        self.is_over = true;
    }

    /// The event of a change, as this watch sees it: what leaves the selection is deleted.
    fn event(&self, change: &Change) -> Option<Bytes> {
        let matching = |object: &Option<Arc<Value>>| {
            object.clone().filter(|one| self.selectors.match_object(one))
        };
        match (matching(&change.before), matching(&change.after)) {
            (None, Some(after)) => Some(line("ADDED", &after)),
            (Some(_), Some(after)) => Some(line("MODIFIED", &after)),
            (Some(before), None) => Some(line("DELETED", &at_version(&before, change.version))),
            (None, None) => None,
        }
    }

    /// The line that says how far this watch is.
    pub(crate) fn bookmark(&self, version: u64) -> Bytes {
        line("BOOKMARK", &self.bookmark_object(version))
    }

    fn bookmark_object(&self, version: u64) -> Value {
        json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": {"resourceVersion": version.to_string(), "creationTimestamp": null},
        })
    }
}

fn line(event: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": event, "object": object}).to_string();
    text.push('\n');
    text.into()
}
