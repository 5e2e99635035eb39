//! Writes: create, update, patch.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Api, Surroundings, required};
use crate::failure::Failure;
use crate::merge::merge;
use crate::object::{
    check_name, has_finalizers, is_ending, metadata, metadata_mut, normalize, timestamp,
};
use crate::pod;
use crate::request::{ApiRequest, Target};
use crate::resource::Resource;
use crate::store::Place;
use crate::strategic::merge_strategic;

/// The metadata that only the server writes.
const OF_SERVER: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
];

/// How a write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteKind {
    Update,
    Patch,
}

impl Api {
    /// Creates an object.
    pub(crate) fn create(
        &mut self,
        target: &Target,
        mut object: Value,
        around: &mut Surroundings,
    ) -> Result<Arc<Value>, Failure> {
        let resource = target.resource;
        let namespace = target.namespace.as_deref();
        if resource.is_namespaced && namespace.is_none() {
            return Err(Failure::method_not_allowed());
        }
        check_kind(resource, &object)?;
        let fields = metadata_mut(&mut object)?;
        let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
        let (mut name, prefix) = (text("name").to_owned(), text("generateName").to_owned());
        let given = text("namespace").to_owned();
        if !text("resourceVersion").is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Failure::internal(why));
        }
        if namespace.is_some_and(|namespace| !given.is_empty() && given != namespace) {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if let Some(namespace) = namespace {
            self.check_namespace(resource, namespace, &name)?;
            fields.insert("namespace".to_owned(), namespace.into());
        }
        if name.is_empty() && prefix.is_empty() {
            let why = "Required value: name or generateName is required";
            let field = "metadata.name";
            return Err(Failure::invalid(resource, "", field, "FieldValueRequired", why));
        }
        if name.is_empty() {
            name = format!("{prefix}{}", around.chance.name_end());
        }
        check_name(resource, &name)?;
        let place = Place::new(resource, namespace, &name);
        if self.store.get(&place).is_some() {
            return Err(Failure::already_exists(resource, &name));
        }
        for field in OF_SERVER.iter().filter(|field| **field != "generateName") {
            fields.remove(*field);
        }
        fields.insert("name".to_owned(), name.into());
        fields.insert("uid".to_owned(), around.chance.uid().into());
        fields.insert("creationTimestamp".to_owned(), timestamp(around.now_ms).into());
        if resource.has_generation {
            fields.insert("generation".to_owned(), 1.into());
        }
        begin(resource, &mut object);
        normalize(resource, &mut object);
        Ok(self.store.put(place, object))
    }

    fn check_namespace(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), Failure> {
        let namespaces = Resource::find("", "namespaces").expect("namespaces are served");
        match self.store.get(&Place::new(namespaces, None, namespace)) {
            None => Err(Failure::not_found(namespaces, namespace)),
            Some(found) if is_ending(found) => {
                let why = format!(
                    "unable to create new content in namespace {namespace} because it is being \
                     terminated"
                );
                Err(Failure::forbidden(resource, name, &why))
            }
            Some(_) => Ok(()),
        }
    }

    /// Replaces an object, or its status.
    pub(crate) fn put(&mut self, target: &Target, object: Value) -> Result<Arc<Value>, Failure> {
        check_kind(target.resource, &object)?;
        let place = target.place();
        let before = self.found(target, &place)?;
        self.write(target, &before, object, WriteKind::Update)
    }

    /// Patches an object, or its status.
    pub(crate) fn patch(
        &mut self,
        target: &Target,
        request: &ApiRequest,
    ) -> Result<Arc<Value>, Failure> {
        let place = target.place();
        let media = request.content_type.split(';').next().unwrap_or_default().trim();
        let is_strategic = match media {
            "application/strategic-merge-patch+json" => true,
            "application/merge-patch+json" => false,
            _ => return Err(Failure::unsupported_media_type()),
        };
        let patch = required(request)?;
        let before = self.found(target, &place)?;
        let mut object = (*before).clone();
        if is_strategic {
            merge_strategic(target.resource.kind, &mut object, &patch)?;
        } else {
            merge(&mut object, &patch);
        }
        self.write(target, &before, object, WriteKind::Patch)
    }

    fn found(&self, target: &Target, place: &Place) -> Result<Arc<Value>, Failure> {
        let is_served = match target.subresource.as_deref() {
            None => true,
            Some("status") => target.resource.has_status,
            Some(_) => false,
        };
        let found = self.store.get(place).filter(|_| is_served).cloned();
        found.ok_or_else(|| Failure::not_found(target.resource, place.name()))
    }

    fn write(
        &mut self,
        target: &Target,
        before: &Value,
        mut after: Value,
        kind: WriteKind,
    ) -> Result<Arc<Value>, Failure> {
        let resource = target.resource;
        let name = metadata(before, "name").to_owned();
        check_identity(resource, &name, before, &mut after, kind)?;
        let is_status = target.subresource.is_some();
        keep_other_part(resource, before, &mut after, is_status);
        keep_metadata(before, &mut after)?;
        if resource.kind == "Pod" {
            if !is_status {
                pod::admit(&mut after);
            }
            pod::set_defaults(&mut after);
            pod::join_ips(&mut after);
        }
        normalize(resource, &mut after);
        if resource.kind == "Pod" {
            if is_status {
                pod::check_status(resource, &name, before, &after)?;
            } else {
                pod::check_spec(resource, &name, before, &after)?;
            }
        }
        check_finalizers(resource, &name, before, &after)?;
        if resource.has_generation && !is_status && is_other_spec(before, &after) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
            after["metadata"]["generation"] = (generation + 1).into();
        }
        let place = target.place();
        let pause = before["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if is_ending(before) && !has_finalizers(&after) && pause == 0 {
            self.store.remove(&place);
            return Ok(Arc::new(after));
        }
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        if after == *before {
            return Ok(Arc::new(after));
        }
        Ok(self.store.put(place, after))
    }
}

/// Completes a new object.
fn begin(resource: &Resource, object: &mut Value) {
    if resource.drops_status
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    match resource.kind {
        "Pod" => {
            pod::set_defaults(object);
            pod::admit(object);
            object["status"] = pod::first_status(object);
        }
        "Namespace" => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        "PersistentVolume" | "PersistentVolumeClaim" => {
            object["status"] = json!({"phase": "Pending"});
        }
        "Secret" => {
            if object["type"].is_null() {
                object["type"] = "Opaque".into();
            }
            take_texts(object);
        }
        _ => {}
    }
}

/// A secret's texts become its data.
fn take_texts(secret: &mut Value) {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let Some(fields) = secret.as_object_mut() else { return };
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    for (key, text) in texts {
        let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
        secret["data"][key] = encoded.into();
    }
}

fn check_kind(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let is_right = object["kind"].as_str().is_none_or(|kind| kind == resource.kind);
    if is_right {
        return Ok(());
    }
    let given = object["kind"].as_str().unwrap_or_default();
    Err(Failure::bad_request(format!(
        "{given} in version {:?} cannot be handled as a {}: converting",
        resource.api_version(),
        resource.kind
    )))
}

/// Checks that a write means this object at this version.
fn check_identity(
    resource: &Resource,
    name: &str,
    before: &Value,
    after: &mut Value,
    kind: WriteKind,
) -> Result<(), Failure> {
    let given = metadata_mut(after)?;
    let text = |field: &str| given.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("name") != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            text("name")
        )));
    }
    let namespace = metadata(before, "namespace");
    if !text("namespace").is_empty() && text("namespace") != namespace {
        return Err(Failure::bad_request(format!(
            "the namespace of the object ({}) does not match the namespace on the request \
             ({namespace})",
            text("namespace")
        )));
    }
    let (uid, here) = (text("uid"), metadata(before, "uid"));
    if !uid.is_empty() && uid != here && kind == WriteKind::Update {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{namespace}/{name}, \
             ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, \
             UID in object meta: {here}",
            resource.plural
        );
        return Err(Failure::conflict(resource, name, &why));
    }
    let version = text("resourceVersion");
    if version.is_empty() && !resource.is_unconditional && kind == WriteKind::Update {
        let why = "Invalid value: 0: must be specified for an update";
        let field = "metadata.resourceVersion";
        return Err(Failure::invalid(resource, name, field, "FieldValueInvalid", why));
    }
    if !version.is_empty() && version != metadata(before, "resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and \
                   try again";
        return Err(Failure::conflict(resource, name, why));
    }
    if !uid.is_empty() && uid != here {
        return Err(Failure::immutable(resource, name, "metadata.uid", uid));
    }
    given.insert("namespace".to_owned(), namespace.into());
    if namespace.is_empty() {
        given.remove("namespace");
    }
    Ok(())
}

/// Keeps what the write is not about: the status, or all but the status.
fn keep_other_part(resource: &Resource, before: &Value, after: &mut Value, is_status: bool) {
    if !resource.has_status {
        return;
    }
    let Some(fields) = after.as_object_mut() else { return };
    if !is_status {
        fields.insert("status".to_owned(), before["status"].clone());
        return;
    }
    fields.retain(|field, _| matches!(field.as_str(), "metadata" | "status"));
    for (field, value) in before.as_object().into_iter().flatten() {
        fields.entry(field).or_insert_with(|| value.clone());
    }
    // A status that is gone is gone.
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata
            .insert("ownerReferences".to_owned(), before["metadata"]["ownerReferences"].clone());
    }
}

fn keep_metadata(before: &Value, after: &mut Value) -> Result<(), Failure> {
    let fields = metadata_mut(after)?;
    for field in OF_SERVER {
        match &before["metadata"][field] {
            Value::Null => fields.remove(field),
            value => fields.insert(field.to_owned(), value.clone()),
        };
    }
    Ok(())
}

/// Nothing new holds up an object that is being deleted.
fn check_finalizers(
    resource: &Resource,
    name: &str,
    before: &Value,
    after: &Value,
) -> Result<(), Failure> {
    if !is_ending(before) {
        return Ok(());
    }
    let list = |object: &Value| -> Vec<Value> {
        object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default()
    };
    let old = list(before);
    let new: Vec<Value> = list(after).into_iter().filter(|one| !old.contains(one)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let why = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{{{}}}",
        new.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    );
    Err(Failure::invalid(resource, name, "metadata.finalizers", "FieldValueForbidden", &why))
}

/// Whether more than metadata and status changed.
fn is_other_spec(before: &Value, after: &Value) -> bool {
    let spec = |object: &Value| {
        let mut spec = object.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|field, _| !matches!(field.as_str(), "metadata" | "status"));
        }
        spec
    };
    spec(before) != spec(after)
}
