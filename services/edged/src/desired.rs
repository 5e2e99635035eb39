//! What should run, folded from the edge's watch; and when absence means something.
//!
//! ```text
//!            INIT                 INIT_DONE{complete}
//!   gap ----------> listing ------------------------> live --(APPLY, DELETE)--> live
//!    ^                 |                                |
//!    +---- the watch ended -----------------------------+
//! ```
//!
//! What a listing names counts at once. What it does not name goes only at its end, and only if
//! it was complete: before a node has had its whole stream once, absence means nothing.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{NodeName, ResourceKey};
use headwater_proto::local::{self, WatchEvent, watch_event::Kind};
use k8s_openapi::api::core::v1::Pod;

use crate::objects::Objects;
use crate::packed::Packed;
use crate::pod::{BadUid, PodUid};

/// A pod that the view holds.
#[derive(Clone, Debug)]
pub(crate) struct DesiredPod {
    /// Its UID.
    pub(crate) uid: PodUid,
    /// The object.
    pub(crate) pod: Packed<Pod>,
}

/// The desired state.
#[derive(Debug)]
pub(crate) struct Desired {
    node: NodeName,
    pods: BTreeMap<ResourceKey, DesiredPod>,
    objects: Objects,
    listed: Option<BTreeSet<ResourceKey>>,
    complete: bool,
}

/// What an event meant.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    /// The desired state may have changed.
    State,
    /// A listing has ended.
    Listed,
    /// Somebody asks for something.
    Operation(local::Operation),
    /// Nothing.
    Nothing,
}

/// An event that cannot be taken in; the former state stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DesiredError {
    /// The event lacks what its kind needs.
    #[error("a watch event lacks its {0}")]
    Lacks(&'static str),
    /// Its key is none.
    #[error(transparent)]
    Key(#[from] headwater_event::KeyError),
    /// Its pod's UID cannot be used.
    #[error("pod {key}")]
    Uid {
        /// Which pod.
        key: ResourceKey,
        /// Why not.
        #[source]
        source: BadUid,
    },
    /// Its object is none of its type.
    #[error("object {key} is malformed")]
    Object {
        /// Which object.
        key: ResourceKey,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl Desired {
    /// Nothing yet, and absence means nothing.
    pub(crate) fn new(node: NodeName) -> Self {
        Self {
            node,
            pods: BTreeMap::new(),
            objects: Objects::default(),
            listed: None,
            complete: false,
        }
    }

    /// The pods of this node.
    pub(crate) fn pods(&self) -> &BTreeMap<ResourceKey, DesiredPod> {
        &self.pods
    }

    /// What pods name.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Whether what is absent here should not run.
    pub(crate) fn absence_counts(&self) -> bool {
        self.complete
    }

    /// Takes one event in.
    ///
    /// # Errors
    /// When it is malformed; nothing has changed then.
    pub(crate) fn apply(&mut self, event: WatchEvent) -> Result<Change, DesiredError> {
        match event.kind() {
            Kind::Init => {
                self.listed = Some(BTreeSet::new());
                Ok(Change::Nothing)
            }
            Kind::InitApply | Kind::Apply => {
                self.insert(event.object.ok_or(DesiredError::Lacks("object"))?)?;
                Ok(Change::State)
            }
            Kind::Delete => {
                let object = event.object.ok_or(DesiredError::Lacks("object"))?;
                self.remove(&object.key.parse()?);
                Ok(Change::State)
            }
            Kind::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                if event.complete {
                    self.pods.retain(|key, _| listed.contains(key));
                    self.objects.retain(|key| listed.contains(key));
                }
                self.complete = event.complete;
                Ok(Change::Listed)
            }
            Kind::Operation => {
                Ok(Change::Operation(event.operation.ok_or(DesiredError::Lacks("operation"))?))
            }
            Kind::Unspecified => Ok(Change::Nothing),
        }
    }

    fn insert(&mut self, object: local::Object) -> Result<(), DesiredError> {
        let key: ResourceKey = object.key.parse()?;
        // Named is named, even if it cannot be read: it must not count as absent.
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        let malformed = |source| DesiredError::Object { key: key.clone(), source };
        if key.kind() != "pod" {
            return self.objects.insert(&key, &object.object).map_err(malformed);
        }
        let mut pod: Pod = serde_json::from_slice(&object.object).map_err(malformed)?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if node.is_some_and(|node| node != self.node.as_str()) {
            self.pods.remove(&key);
            return Ok(());
        }
        let uid = pod.metadata.uid.clone().unwrap_or(object.uid);
        let uid = PodUid::try_from(uid)
            .map_err(|source| DesiredError::Uid { key: key.clone(), source })?;
        // The key is the authority on the pod's name; fields and logs are told from the object.
        pod.metadata.namespace = key.namespace().map(str::to_owned);
        pod.metadata.name = Some(key.name().to_owned());
        pod.metadata.uid = Some(uid.as_str().to_owned());
        // What others say of it is not read here, and may be larger than its spec.
        pod.metadata.managed_fields = None;
        pod.status = None;
        let pod = Packed::pack(&pod).map_err(malformed)?;
        self.pods.insert(key, DesiredPod { uid, pod });
        Ok(())
    }

    fn remove(&mut self, key: &ResourceKey) {
        if let Some(listed) = &mut self.listed {
            listed.remove(key);
        }
        self.pods.remove(key);
        self.objects.remove(key);
    }
}

#[cfg(test)]
mod tests;
