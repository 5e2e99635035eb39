//! Deletes: at once, after a grace, or after the last finalizer.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Api, Surroundings};
use crate::failure::Failure;
use crate::object::{has_finalizers, is_ending, metadata, timestamp};
use crate::pod::grace_seconds;
use crate::request::{ApiRequest, Target};
use crate::resource::Resource;

impl Api {
    /// Deletes an object, or begins to.
    pub(crate) fn delete(
        &mut self,
        target: &Target,
        request: &ApiRequest,
        around: &mut Surroundings,
    ) -> Result<Arc<Value>, Failure> {
        let resource = target.resource;
        let place = target.place();
        let found = self.store.get(&place).filter(|_| target.subresource.is_none()).cloned();
        let found = found.ok_or_else(|| Failure::not_found(resource, place.name()))?;
        let options = request.json()?.unwrap_or(Value::Null);
        check_preconditions(resource, place.name(), &found, &options["preconditions"])?;
        let requested = options["gracePeriodSeconds"].as_i64().or(request.query.grace_seconds);
        if resource.kind == "Namespace" {
            return Ok(self.end_namespace(target, &found, around));
        }
        if resource.kind == "Pod" {
            return Ok(self.end_pod(target, &found, requested, around));
        }
        if has_finalizers(&found) {
            if is_ending(&found) {
                return Ok(found);
            }
            return Ok(self.store.put(place, mark(&found, around.now_ms, 0)));
        }
        let removed = self.store.remove(&place).unwrap_or(found);
        Ok(if resource.returns_deleted { removed } else { Arc::new(success(resource, &removed)) })
    }

    fn end_pod(
        &mut self,
        target: &Target,
        pod: &Value,
        requested: Option<i64>,
        around: &Surroundings,
    ) -> Arc<Value> {
        let place = target.place();
        let mut ending = if is_ending(pod) {
            let before = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            // The grace only gets shorter.
            let Some(seconds) = requested.filter(|seconds| *seconds < before) else {
                return Arc::new(pod.clone());
            };
            let end = metadata(pod, "deletionTimestamp").parse::<jiff::Timestamp>();
            let end = end.map_or(around.now_ms, |end| end.as_millisecond());
            let mut ending = pod.clone();
            let end = end - (before - seconds) * 1000;
            // An end that is over already is now, and still one that another confirms.
            let is_over = end < around.now_ms;
            let seconds = if is_over { seconds.min(1) } else { seconds };
            ending["metadata"]["deletionTimestamp"] = timestamp(end.max(around.now_ms)).into();
            ending["metadata"]["deletionGracePeriodSeconds"] = seconds.into();
            ending
        } else {
            mark(pod, around.now_ms, grace_seconds(pod, requested))
        };
        let seconds = ending["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if ending["status"].is_null() {
            ending["status"] = json!({});
        }
        // Written even where it goes at once: a watch sees both.
        let ending = self.store.put(place.clone(), ending);
        if seconds > 0 || has_finalizers(&ending) {
            return ending;
        }
        self.store.remove(&place).unwrap_or(ending)
    }

    fn end_namespace(
        &mut self,
        target: &Target,
        namespace: &Value,
        around: &Surroundings,
    ) -> Arc<Value> {
        if is_ending(namespace) {
            return Arc::new(namespace.clone());
        }
        let mut ending = namespace.clone();
        ending["metadata"]["deletionTimestamp"] = timestamp(around.now_ms).into();
        ending["status"]["phase"] = "Terminating".into();
        self.store.put(target.place(), ending)
    }
}

/// The object with the moment of its end.
fn mark(object: &Value, now_ms: i64, seconds: i64) -> Value {
    let mut ending = object.clone();
    let end = now_ms.saturating_add(seconds.saturating_mul(1000));
    ending["metadata"]["deletionTimestamp"] = timestamp(end).into();
    ending["metadata"]["deletionGracePeriodSeconds"] = seconds.into();
    if let Some(generation) = ending["metadata"]["generation"].as_i64() {
        ending["metadata"]["generation"] = (generation + 1).into();
    }
    ending
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    found: &Value,
    preconditions: &Value,
) -> Result<(), Failure> {
    for (field, label, fate) in [
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ] {
        let here = metadata(found, field);
        let wrong = preconditions[field].as_str().filter(|given| *given != here);
        if let Some(given) = wrong {
            let why = format!(
                "the {label} in the precondition ({given}) does not match the {label} in record \
                 ({here}). The object might have been {fate}"
            );
            return Err(Failure::conflict(resource, name, &why));
        }
    }
    Ok(())
}

fn success(resource: &Resource, removed: &Value) -> Value {
    let mut details = json!({
        "name": metadata(removed, "name"), "kind": resource.plural, "uid": metadata(removed, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    })
}
