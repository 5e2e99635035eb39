//! Who is who where one controller writes after another.
//!
//! A manifest gives no UID: every controller that reads it draws one of its own. What counts is
//! the one that was published. Whoever writes after another one therefore takes over the identity
//! of what that one published and the manifests still describe, as a restart does, and draws a
//! new one for the rest: what it once published itself may have been removed since, and a UID
//! that was removed never comes back. Its source goes on with the UIDs that it drew, so what it
//! says is translated.

use std::collections::HashMap;

use headwater_event::ResourceKey;
use headwater_follow::Follower;
use headwater_object::Object;
use serde_json::Value;
use uuid::Uuid;

use super::{PublishError, Publisher};
use crate::publisher::backup;
use crate::source::identity::is_same_object;
use crate::source::manifest::MANIFEST_ANNOTATION;

/// The objects whose identity is another than the source says.
#[derive(Debug, Default)]
pub(crate) struct IdentityMap {
    identities: HashMap<ResourceKey, Identity>,
    /// The last writer of the log whose objects the source took up, or that this controller was.
    agrees_with: Option<Uuid>,
    is_due: bool,
}

/// What an object is called.
#[derive(Debug)]
struct Identity {
    /// The UID that the source says.
    said: String,
    /// The one that counts, and since when it is there.
    uid: String,
    created: Value,
}

impl IdentityMap {
    /// The source began with what this writer had published.
    pub(super) fn agree_with(&mut self, writer: Option<Uuid>) {
        self.agrees_with = writer;
    }

    /// Another may have written since.
    pub(super) fn other_wrote(&mut self) {
        self.is_due = true;
    }

    /// The log is `own` to write, after `newest`, or after one that claimed `between` the two.
    pub(super) fn follow(&mut self, newest: Option<Uuid>, own: Uuid, between: bool) {
        self.is_due |= between || newest != self.agrees_with;
        self.agrees_with = Some(own);
    }

    /// The object that the source told, under the identity that counts.
    pub(super) fn object(&mut self, object: Object) -> Object {
        let Some(identity) = self.identities.get(object.key()) else { return object };
        if identity.said == object.uid()
            && let Some(known) = identity.give_to(&object)
        {
            return known;
        }
        // It is another one now, with a UID that nobody had.
        self.identities.remove(object.key());
        object
    }

    /// The UID that counts of an object which is gone, as the source says.
    pub(super) fn end(&mut self, key: &ResourceKey, uid: String) -> String {
        match self.identities.get(key) {
            Some(identity) if identity.said == uid => {
                self.identities.remove(key).map_or(uid, |identity| identity.uid)
            }
            _ => uid,
        }
    }
}

impl Identity {
    fn give_to(&self, object: &Object) -> Option<Object> {
        let mut value = object.value();
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        metadata.insert("uid".to_owned(), self.uid.as_str().into());
        if !self.created.is_null() {
            metadata.insert("creationTimestamp".to_owned(), self.created.clone());
        }
        Object::from_value(value).ok()
    }
}

impl Publisher {
    /// Adopts what another writer has published, if one has.
    pub(super) fn adopt(&mut self, follower: &Follower<()>) -> Result<(), PublishError> {
        if !std::mem::take(&mut self.identities.is_due) {
            return Ok(());
        }
        let published = backup::published(&**follower.state().engine())?;
        let mut interest = self.interest.write();
        let described: Vec<Object> = interest.objects().cloned().collect();
        for object in described {
            let (key, value) = (object.key(), object.value());
            let metadata = &value["metadata"];
            // Who else tells of objects knows their UIDs.
            if metadata["annotations"][MANIFEST_ANNOTATION].is_null() {
                continue;
            }
            let before = published.get(key);
            if before.is_some_and(|before| before.uid == object.uid()) {
                continue;
            }
            let before = before.map(|before| (before.uid.clone(), before.value()));
            let (uid, created) = match before {
                Some((uid, before)) if is_same_object(key, &before, &value) => {
                    (uid, before["metadata"]["creationTimestamp"].clone())
                }
                _ => ((self.draw)().to_string(), metadata["creationTimestamp"].clone()),
            };
            let said = self.identities.identities.remove(key);
            let said = said.map_or_else(|| object.uid().to_owned(), |known| known.said);
            let identity = Identity { said, uid, created };
            if let Some(known) = identity.give_to(&object) {
                interest.apply(known);
                self.identities.identities.insert(key.clone(), identity);
            }
        }
        drop(interest);
        self.changes.publish_everything();
        Ok(())
    }
}
