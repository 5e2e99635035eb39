//! What was said over the socket and not taken back: the objects, and how they keep their UIDs.

use std::collections::HashMap;

use headwater_event::ResourceKey;
use headwater_object::Object;
use serde_json::Value;

use super::line::Request;
use crate::source::identity::is_same_object;
use crate::source::manifest::MANIFEST_ANNOTATION;
use crate::source::{Cause, PublishedObjects, SourceEvent, with_sources};

/// Every object that the socket is the source of.
#[derive(Debug, Default)]
pub(crate) struct State {
    objects: HashMap<ResourceKey, Object>,
}

impl State {
    /// Takes over what an earlier run published, but for what manifests described, as a list.
    pub(crate) fn restore(&mut self, published: &dyn PublishedObjects) -> Vec<SourceEvent> {
        let mut events = vec![SourceEvent::Init];
        for key in published.keys() {
            let Some(object) = published.get(&key) else { continue };
            let value = object.value();
            if !value["metadata"]["annotations"][MANIFEST_ANNOTATION].is_null() {
                continue;
            }
            // It was an object when it was published.
            let Ok(object) = Object::from_value(value) else { continue };
            self.objects.insert(key, object.clone());
            events.push(SourceEvent::InitApply(object));
        }
        events.push(SourceEvent::InitDone);
        events
    }

    /// Takes in a request.
    ///
    /// # Errors
    /// When it makes no sense; nothing is changed then.
    pub(crate) fn take(
        &mut self,
        request: Request,
        mint: &mut dyn FnMut() -> String,
    ) -> Result<Vec<SourceEvent>, String> {
        match request {
            Request::Apply(object, cause) => self.apply(*object, &cause, mint),
            Request::Delete { key, uid, cause } => self.delete(&key, uid.as_deref(), cause),
        }
    }

    fn apply(
        &mut self,
        object: Object,
        cause: &Cause,
        mint: &mut dyn FnMut() -> String,
    ) -> Result<Vec<SourceEvent>, String> {
        let key = object.key().clone();
        let before = self.objects.get(&key);
        let object = if object.uid().is_empty() {
            let mut value = object.value();
            let same = before.filter(|before| is_same_object(&key, &before.value(), &value));
            let uid = same.map_or_else(mint, |before| before.uid().to_owned());
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("uid".to_owned(), uid.into());
            }
            Object::from_value(value).map_err(|error| with_sources(&error))?
        } else {
            object
        };
        let mut events = Vec::new();
        if let Some(before) = before.filter(|before| before.uid() != object.uid()) {
            let uid = before.uid().to_owned();
            events.push(SourceEvent::Delete { key: key.clone(), uid, cause: cause.clone() });
        }
        events.push(SourceEvent::Apply(object.clone(), cause.clone()));
        self.objects.insert(key, object);
        Ok(events)
    }

    fn delete(
        &mut self,
        key: &ResourceKey,
        uid: Option<&str>,
        cause: Cause,
    ) -> Result<Vec<SourceEvent>, String> {
        let Some(object) = self.objects.get(key) else {
            return Err(format!("{key} is not known here: nothing to delete"));
        };
        if let Some(uid) = uid.filter(|uid| *uid != object.uid()) {
            let found = object.uid();
            return Err(format!("{key} has the UID {found}, not {uid}: nothing was deleted"));
        }
        let uid = object.uid().to_owned();
        self.objects.remove(key);
        Ok(vec![SourceEvent::Delete { key: key.clone(), uid, cause }])
    }
}
