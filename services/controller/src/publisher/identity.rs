//! The UIDs of objects whose source assigns them, where one controller writes after another.
//!
//! A manifest has no UID: every controller that reads it assigns one of its own. The UID that was
//! published counts. A controller that becomes the writer after another adopts the published UIDs
//! of the objects that its sources still describe, as after a restart. Every other object gets a
//! new UID: the one that its source assigned may have been published and removed since, and a
//! removed UID must never come back. The source continues with the UIDs that it assigned, so this
//! map translates them.
//!
//! A standby adopts before it takes over, so that a take-over adopts only what has changed since.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use headwater_event::{ResourceKey, WriterEpoch};
use headwater_object::Object;
use headwater_store::{Engine, EngineError};
use serde_json::Value;
use uuid::Uuid;

use super::backup::PublishedSnapshot;
use super::unadopted_keys::{AdoptionScope, UnadoptedKeys};
use super::{UuidGenerator, backup};
use crate::interest::SharedInterest;
use crate::source::{PublishedObject, UidAssignment};

/// The objects whose published identity differs from the source's.
pub(crate) struct IdentityMap {
    identities: HashMap<ResourceKey, Identity>,
    /// How the sources assign UIDs.
    assignments: Vec<Arc<dyn UidAssignment>>,
    new_uuid: UuidGenerator,
    /// The claim of the writer whose objects the sources found at their start.
    started_from: Option<Uuid>,
    must_adopt: bool,
    unadopted: UnadoptedKeys,
    /// Whether this controller is the writer: what its sources change then is what counts.
    is_writer: bool,
}

/// The identity of one object.
#[derive(Debug)]
struct Identity {
    /// The UID that the source assigned.
    source_uid: String,
    /// The UID that counts, and the creation time that belongs to it.
    uid: String,
    created: Value,
}

impl IdentityMap {
    pub(super) fn new(
        assignments: Vec<Arc<dyn UidAssignment>>,
        unadopted: UnadoptedKeys,
        new_uuid: UuidGenerator,
    ) -> Self {
        Self {
            identities: HashMap::new(),
            assignments,
            new_uuid,
            started_from: None,
            must_adopt: false,
            unadopted,
            is_writer: false,
        }
    }

    /// The sources started from what this writer had published.
    pub(super) fn started_from(&mut self, writer: Option<Uuid>) {
        self.started_from = writer;
    }

    /// Another controller may have written since.
    pub(super) fn another_wrote(&mut self) {
        self.must_adopt = true;
    }

    /// This controller writes no more.
    pub(super) fn ended(&mut self) {
        self.is_writer = false;
    }

    /// See [`super::intake::Intake::claimed`].
    pub(super) fn claimed(&mut self, another: Option<Uuid>, own: WriterEpoch, has_gap: bool) {
        self.must_adopt |= has_gap || (another.is_some() && another != self.started_from);
        self.is_writer = true;
        self.unadopted.note_claim(own, self.must_adopt);
        if !self.must_adopt() {
            // The sources started from what is published, and no other controller wrote since. But
            // events of a former writer count in a partition that has not taken this controller's
            // claim, so some may have been read since.
            self.must_adopt |= self.unadopted.retain_events();
        }
    }

    /// Whether another controller may have written since this one did, or since its sources started.
    pub(super) fn follows_another(&self) -> bool {
        self.must_adopt
    }

    /// Notes that there are no published UIDs to adopt.
    pub(super) fn adopt_nothing(&mut self) {
        self.must_adopt = false;
    }

    /// Whether published UIDs are to be adopted before anything is compared. UIDs that no source
    /// assigns are the same for every controller.
    pub(super) fn must_adopt(&self) -> bool {
        self.must_adopt && !self.assignments.is_empty()
    }

    /// Whether a standby has never adopted, or too much was published since.
    pub(super) fn must_prepare(&self) -> bool {
        !self.assignments.is_empty() && self.unadopted.is_everything()
    }

    /// Notes an object that a source has changed.
    pub(super) fn note_change(&self, key: &ResourceKey) {
        if !self.is_writer {
            self.unadopted.note_change(key);
        }
    }

    /// The object of a source, under the identity that counts.
    pub(super) fn identify(&mut self, object: Object) -> Object {
        let Some(identity) = self.identities.get(object.key()) else { return object };
        if identity.source_uid == object.uid()
            && let Some(identified) = identity.set_in(&object)
        {
            return identified;
        }
        // The source describes another object now, with a UID that was never published.
        self.identities.remove(object.key());
        object
    }

    /// The UID that counts of an object which its source deleted under `uid`.
    pub(super) fn remove(&mut self, key: &ResourceKey, uid: String) -> String {
        match self.identities.get(key) {
            Some(identity) if identity.source_uid == uid => {
                self.identities.remove(key).map_or(uid, |identity| identity.uid)
            }
            _ => uid,
        }
    }

    /// Gives every object whose source assigns UIDs the published one, or a new one, if it may have
    /// changed since the last adoption. `engine` has the fold of the log. The interest is held for one object at a
    /// time: its readers run where the heartbeats do, and all objects take minutes.
    ///
    /// # Errors
    /// When the fold cannot be read; everything is to be adopted then.
    pub(super) fn adopt(
        &mut self,
        interest: &SharedInterest,
        engine: &dyn Engine,
    ) -> Result<(), EngineError> {
        let scope = self.unadopted.take();
        let adopted = self.adopt_scope(interest, engine, scope);
        match adopted {
            Ok(()) => self.must_adopt = false,
            Err(_) => self.unadopted.note_everything(),
        }
        adopted
    }

    fn adopt_scope(
        &mut self,
        interest: &SharedInterest,
        engine: &dyn Engine,
        scope: AdoptionScope,
    ) -> Result<(), EngineError> {
        match scope {
            AdoptionScope::Everything => {
                let mut others: BTreeSet<ResourceKey> = interest.read().keys().cloned().collect();
                for row in PublishedSnapshot::of(engine)?.objects() {
                    let (key, object) = row?;
                    if others.remove(&key) {
                        self.adopt_key(interest, &key, |_| Ok(Some(object)))?;
                    }
                }
                for key in &others {
                    self.adopt_key(interest, key, |_| Ok(None))?;
                }
            }
            AdoptionScope::Keys(keys) => {
                for (key, stream) in keys {
                    let known = interest.read().streams_of(&key);
                    let streams: Vec<_> = stream.into_iter().chain(known).collect();
                    self.adopt_key(interest, &key, |key| {
                        backup::published_in(engine, key, &streams)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn adopt_key(
        &mut self,
        interest: &SharedInterest,
        key: &ResourceKey,
        published: impl FnOnce(&ResourceKey) -> Result<Option<PublishedObject>, EngineError>,
    ) -> Result<(), EngineError> {
        let Some(object) = interest.read().object(key) else { return Ok(()) };
        let value = object.value();
        let Some(assignment) = self.assignments.iter().find(|one| one.is_assigned(&value)) else {
            return Ok(());
        };
        let before = published(key)?;
        if before.as_ref().is_some_and(|before| before.uid == object.uid()) {
            return Ok(());
        }
        let before = before.map(|before| (before.uid.clone(), before.value()));
        let (uid, created) = match before {
            Some((uid, before)) if assignment.is_same_object(key, &before, &value) => {
                (uid, before["metadata"]["creationTimestamp"].clone())
            }
            _ => {
                let created = value["metadata"]["creationTimestamp"].clone();
                ((self.new_uuid)().to_string(), created)
            }
        };
        let known = self.identities.remove(key);
        let source_uid = known.map_or_else(|| object.uid().to_owned(), |known| known.source_uid);
        let identity = Identity { source_uid, uid, created };
        if let Some(identified) = identity.set_in(&object) {
            interest.write().apply(identified);
            self.identities.insert(key.clone(), identity);
        }
        Ok(())
    }
}

impl Identity {
    /// The object with this identity; `None` where it would be no valid object.
    fn set_in(&self, object: &Object) -> Option<Object> {
        let mut value = object.versioned_value();
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        metadata.insert("uid".to_owned(), self.uid.as_str().into());
        if !self.created.is_null() {
            metadata.insert("creationTimestamp".to_owned(), self.created.clone());
        }
        Object::from_value(value).ok()
    }
}
