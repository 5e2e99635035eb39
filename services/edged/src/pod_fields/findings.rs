//! The fields of one pod that its runtime refuses or notes.

use std::collections::BTreeMap;

use headwater_object::pod_rules;
use serde_json::{Map, Value};

use super::field::{Column, Effect, Field, Gap, Type};
use super::table::POD_SPEC;
use crate::container::WaitReason;

/// Fields that the reason of a waiting container names; the others are counted. An author mends
/// a few at a time.
const REFUSALS_SHOWN_MAX: usize = 8;

/// Fields that the status of a pod names; the others are counted. Bounds the status.
const NOTES_SHOWN_MAX: usize = 24;

/// The longest path of a field, in bytes: a field of an unknown name can be as long as the object.
const PATH_BYTES_MAX: usize = 200;

/// Why a field is noted that the table does not name.
const UNKNOWN: &str = "unknown to this version";

/// What the runtime of a node does not do for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodFindings {
    /// Why none of the containers can start.
    pod: Option<WaitReason>,
    /// Why these containers cannot start.
    containers: BTreeMap<String, WaitReason>,
    /// The fields that are noted, a reason a line.
    notes: Option<String>,
}

/// Inspects a pod's JSON for a runtime.
pub(crate) fn inspect(column: Column, pod: &Value) -> PodFindings {
    let mut walk = Walk {
        column,
        path: "spec".to_owned(),
        container: None,
        pod: Refusals::default(),
        containers: BTreeMap::new(),
        notes: Notes::default(),
    };
    if let Some(spec) = pod["spec"].as_object() {
        walk.object(&POD_SPEC, spec);
    }
    let misfit = pod_rules::check(pod).err();
    let misfit = misfit.map(|misfit| config_error(misfit.to_string()));
    PodFindings {
        pod: misfit.or_else(|| walk.pod.reason()),
        containers: walk
            .containers
            .iter()
            .filter_map(|(name, refusals)| Some((name.clone(), refusals.reason()?)))
            .collect(),
        notes: walk.notes.text(),
    }
}

impl PodFindings {
    /// Why the container cannot start, if it cannot.
    pub(crate) fn refusal(&self, container: &str) -> Option<&WaitReason> {
        self.pod.as_ref().or_else(|| self.containers.get(container))
    }

    /// Whether none of the containers can start.
    pub(crate) fn refuses_pod(&self) -> bool {
        self.pod.is_some()
    }

    /// The fields that are noted, a reason a line; `None` if there are none.
    pub(crate) fn notes(&self) -> Option<&str> {
        self.notes.as_deref()
    }
}

fn config_error(message: String) -> WaitReason {
    WaitReason { reason: "CreateContainerConfigError", message }
}

/// The way through a pod's spec. Its depth is that of the table.
struct Walk {
    column: Column,
    /// The path of the value at hand.
    path: String,
    /// The container that the value belongs to.
    container: Option<String>,
    pod: Refusals,
    containers: BTreeMap<String, Refusals>,
    notes: Notes,
}

/// Refused fields.
#[derive(Default)]
struct Refusals {
    shown: Vec<String>,
    more: usize,
}

/// Noted fields, by reason.
#[derive(Default)]
struct Notes {
    by_reason: Vec<(&'static str, Vec<String>)>,
    shown: usize,
    more: usize,
}

impl Walk {
    fn object(&mut self, of: &Type, object: &Map<String, Value>) {
        for (name, value) in object {
            if is_blank(value) {
                continue;
            }
            let end = self.path.len();
            self.path.push('.');
            self.path.push_str(shortened(name));
            match of.fields.iter().find(|field| field.name == name) {
                Some(field) => self.field(field, value, object),
                None => self.notes.add(UNKNOWN, &self.path),
            }
            self.path.truncate(end);
        }
    }

    fn field(&mut self, field: &Field, value: &Value, object: &Map<String, Value>) {
        match field.gap_of(self.column) {
            Some(gap) if !gap.unless.holds(value, object) => self.find(gap),
            _ => {
                if let Some(of) = field.of {
                    self.value(of, value);
                }
            }
        }
    }

    fn value(&mut self, of: &Type, value: &Value) {
        match value {
            Value::Object(object) => self.object(of, object),
            Value::Array(items) => {
                let end = self.path.len();
                for (at, item) in items.iter().enumerate() {
                    let Some(object) = item.as_object() else { continue };
                    self.path.push_str(&format!("[{at}]"));
                    let is_container = matches!(of.name, "Container" | "EphemeralContainer");
                    if is_container {
                        self.container =
                            object.get("name").and_then(Value::as_str).map(str::to_owned);
                    }
                    self.object(of, object);
                    if is_container {
                        self.container = None;
                    }
                    self.path.truncate(end);
                }
            }
            // The shape of an object is checked where it is decoded.
            _ => {}
        }
    }

    fn find(&mut self, gap: &Gap) {
        match gap.effect {
            Effect::Noted => self.notes.add(gap.why, &self.path),
            Effect::Refused => {
                let refusals = match &self.container {
                    Some(name) => self.containers.entry(name.clone()).or_default(),
                    None => &mut self.pod,
                };
                refusals.add(gap, &self.path);
            }
        }
    }
}

impl Refusals {
    fn add(&mut self, gap: &Gap, path: &str) {
        if self.shown.len() < REFUSALS_SHOWN_MAX {
            self.shown.push(format!("{path}: {} ({})", gap.why, gap.unless.advice()));
        } else {
            self.more += 1;
        }
    }

    fn reason(&self) -> Option<WaitReason> {
        if self.shown.is_empty() {
            return None;
        }
        let more =
            if self.more > 0 { format!("; and {} more fields", self.more) } else { String::new() };
        Some(config_error(self.shown.join("; ") + &more))
    }
}

impl Notes {
    fn add(&mut self, why: &'static str, path: &str) {
        if self.shown == NOTES_SHOWN_MAX {
            self.more += 1;
            return;
        }
        self.shown += 1;
        match self.by_reason.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, paths)) => paths.push(path.to_owned()),
            None => self.by_reason.push((why, vec![path.to_owned()])),
        }
    }

    fn text(&self) -> Option<String> {
        if self.by_reason.is_empty() {
            return None;
        }
        let line = |(why, paths): &(&str, Vec<String>)| format!("{}: {why}", paths.join(", "));
        let mut lines: Vec<String> = self.by_reason.iter().map(line).collect();
        if self.more > 0 {
            lines.push(format!("and {} more fields", self.more));
        }
        Some(lines.join("\n"))
    }
}

/// Whether a value asks for nothing, whatever its field: the API server leaves such values out.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(PATH_BYTES_MAX)]
}

#[cfg(test)]
mod tests;
