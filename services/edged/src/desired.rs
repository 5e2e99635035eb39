//! The desired state of the node: pods and the objects that they name, folded from the edge's watch.
//!
//! ```text
//!            INIT                 INIT_DONE{complete}
//!   gap ----------> listing ------------------------> live --(APPLY, DELETE)--> live
//!    ^                 |                                |
//!    +---- the watch ended -----------------------------+
//! ```
//!
//! An object that a listing contains applies immediately. An object that it lacks is removed at the
//! end of the listing, and only if the listing was complete: until the node has received its whole
//! stream once, absence has no meaning.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_event::{NodeName, ResourceKey};
use headwater_proto::local::{self, WatchEvent, watch_event::Kind};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;
use serde_json::Value;

use crate::container::claim::{Claim, ClaimName, ClaimView};
use crate::pod::{self, InvalidPodUid, PodUid};
use crate::pod_fields::{Column, PodFindings, inspect};
use crate::static_pods::StaticPods;

pub(crate) mod change_traces;
pub(crate) mod compressed_object;
pub(crate) mod objects;

use compressed_object::CompressedObject;
use objects::Objects;

/// The annotation that says where a pod comes from, which a kubelet sets.
const SOURCE: &str = "/metadata/annotations/kubernetes.io~1config.source";

/// A pod of the edge's view.
#[derive(Clone, Debug)]
pub(crate) struct DesiredPod {
    /// Its UID.
    pub(crate) uid: PodUid,
    /// The object.
    pub(crate) pod: CompressedObject<Pod>,
    /// What the runtime does not do for it.
    pub(crate) findings: Arc<PodFindings>,
    /// The claims that its volumes name.
    claims: Box<[String]>,
    /// Whether it comes from a file of the node.
    pub(crate) is_static: bool,
}

/// The desired state of one node.
#[derive(Debug)]
pub(crate) struct DesiredState {
    node: NodeName,
    /// The fields that the node's runtime honours.
    column: Column,
    pods: BTreeMap<ResourceKey, DesiredPod>,
    /// Pods of the view whose names static pods have. One comes back when the file has gone.
    hidden: BTreeMap<ResourceKey, DesiredPod>,
    /// The view's mirrors of static pods. None of them runs.
    mirrors: BTreeMap<ResourceKey, Mirror>,
    objects: Objects,
    listed: Option<BTreeSet<ResourceKey>>,
    complete: bool,
    /// Whether a static pod that is absent has no file any more.
    has_all_files: bool,
    /// Static pods whose files were seen to go.
    removed_files: BTreeSet<ResourceKey>,
}

/// A pod by which the cloud shows a static pod.
#[derive(Debug)]
struct Mirror {
    uid: PodUid,
    /// The UID of the static pod: the hash of its file.
    mirrored: PodUid,
}

/// What the absence of a pod from the desired pods means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// The view of the cloud is complete: an absent pod of it ends.
    pub view: bool,
    /// The files of the node are complete: an absent static pod ends.
    pub files: bool,
    /// Static pods that end although the files are not complete: theirs were seen to go.
    pub removed: BTreeSet<ResourceKey>,
}

/// The result of an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    /// The desired state may have changed.
    State,
    /// A listing has ended.
    Listed,
    /// The edge delivers an operation.
    Operation(local::Operation),
    /// Nothing.
    Nothing,
}

/// An event that cannot be applied. The state does not change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DesiredError {
    /// The event has no field that its kind needs.
    #[error("a watch event has no {0}")]
    MissingField(&'static str),
    /// Its key is invalid.
    #[error(transparent)]
    Key(#[from] headwater_event::KeyError),
    /// The pod's UID is invalid.
    #[error("pod {key}")]
    Uid {
        /// Which pod.
        key: ResourceKey,
        /// Why not.
        #[source]
        source: InvalidPodUid,
    },
    /// The object is not one of the key's type.
    #[error("object {key} is malformed")]
    Object {
        /// Which object.
        key: ResourceKey,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl DesiredState {
    /// An empty state in which absence has no meaning.
    pub(crate) fn new(node: NodeName, column: Column) -> Self {
        Self {
            node,
            column,
            pods: BTreeMap::new(),
            hidden: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            objects: Objects::default(),
            listed: None,
            complete: false,
            has_all_files: false,
            removed_files: BTreeSet::new(),
        }
    }

    /// The pods of this node, the static ones among them.
    pub(crate) fn pods(&self) -> &BTreeMap<ResourceKey, DesiredPod> {
        &self.pods
    }

    /// The pods by which the cloud shows static pods: by the UID of the static pod, that of its mirror.
    pub(crate) fn mirrors(&self) -> BTreeMap<PodUid, PodUid> {
        let pairs = self.mirrors.values().map(|it| (it.mirrored.clone(), it.uid.clone()));
        pairs.collect()
    }

    /// The objects that pods may name.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Whether a pod that is absent from this state must end: the last listing of its origin was complete.
    pub(crate) fn completeness(&self) -> Completeness {
        let removed = self.removed_files.clone();
        Completeness { view: self.complete, files: self.has_all_files, removed }
    }

    /// Replaces the static pods. A static pod keeps its name from a pod of the view.
    pub(crate) fn set_static(&mut self, found: &StaticPods) {
        self.has_all_files = found.is_complete;
        self.removed_files = found.removed.clone();
        let gone =
            self.pods.extract_if(.., |key, pod| pod.is_static && !found.pods.contains_key(key));
        let gone: Vec<ResourceKey> = gone.map(|(key, _)| key).collect();
        for key in gone {
            if let Some(hidden) = self.hidden.remove(&key) {
                self.pods.insert(key, hidden);
            }
        }
        for (key, file) in &found.pods {
            let before = self.pods.get(key);
            if before.is_some_and(|before| before.is_static && before.uid == file.uid) {
                continue;
            }
            let pod = match desired_pod(key, file.uid.clone(), &file.object, self.column) {
                Ok(pod) => DesiredPod { is_static: true, ..pod },
                Err(error) => {
                    tracing::warn!(pod = %key, %error, "a static pod cannot be encoded");
                    continue;
                }
            };
            if let Some(before) = self.pods.insert(key.clone(), pod)
                && !before.is_static
            {
                tracing::warn!(pod = %key, "a static pod has the name of a pod of the cloud, which waits");
                self.hidden.insert(key.clone(), before);
            }
        }
    }

    /// The claims of the view, and those that its pods name.
    pub(crate) fn claims(&self) -> ClaimView {
        let name = |namespace: &str, name: &str| ClaimName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let claims = self.objects.claims().map(|(namespace, own_name, claim)| {
            Claim::present(name(namespace, own_name), claim, &self.objects)
        });
        let named = self.pods.iter().flat_map(|(key, pod)| {
            let namespace = key.namespace().unwrap_or_default();
            pod.claims.iter().map(move |claim| name(namespace, claim))
        });
        ClaimView {
            claims: claims.map(|claim| (claim.name.clone(), claim)).collect(),
            named: named.collect(),
            is_settled: self.complete && self.listed.is_none(),
        }
    }

    /// Applies one event.
    ///
    /// # Errors
    /// The event is malformed. The state does not change.
    pub(crate) fn apply(&mut self, event: WatchEvent) -> Result<Change, DesiredError> {
        match event.kind() {
            Kind::Init => {
                self.listed = Some(BTreeSet::new());
                Ok(Change::Nothing)
            }
            Kind::InitApply | Kind::Apply => {
                self.insert(event.object.ok_or(DesiredError::MissingField("object"))?)?;
                Ok(Change::State)
            }
            Kind::Delete => {
                let object = event.object.ok_or(DesiredError::MissingField("object"))?;
                self.remove(&object.key.parse()?);
                Ok(Change::State)
            }
            Kind::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                if event.complete {
                    self.pods.retain(|key, pod| pod.is_static || listed.contains(key));
                    self.hidden.retain(|key, _| listed.contains(key));
                    self.mirrors.retain(|key, _| listed.contains(key));
                    self.objects.retain(|key| listed.contains(key));
                }
                self.complete = event.complete;
                Ok(Change::Listed)
            }
            Kind::Operation => Ok(Change::Operation(
                event.operation.ok_or(DesiredError::MissingField("operation"))?,
            )),
            Kind::Unspecified => Ok(Change::Nothing),
        }
    }

    fn insert(&mut self, object: local::Object) -> Result<(), DesiredError> {
        let key: ResourceKey = object.key.parse()?;
        // A listed object is not absent, even if it cannot be decoded.
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        let malformed = |source| DesiredError::Object { key: key.clone(), source };
        if key.kind() != "pod" {
            return self.objects.insert(&key, &object.uid, &object.object).map_err(malformed);
        }
        // A field of a later API is in the JSON only.
        let mut json: Value = serde_json::from_slice(&object.object).map_err(malformed)?;
        let node = json["spec"]["nodeName"].as_str();
        if node.is_some_and(|node| node != self.node.as_str()) {
            self.remove_pod(&key);
            return Ok(());
        }
        let uid = json["metadata"]["uid"].as_str().map_or(object.uid, str::to_owned);
        let uid = PodUid::try_from(uid)
            .map_err(|source| DesiredError::Uid { key: key.clone(), source })?;
        if let Some(mirrored) = json["metadata"]["annotations"][pod::MIRROR].as_str() {
            // The file decides, also where it has gone.
            self.remove_pod(&key);
            if let Ok(mirrored) = PodUid::try_from(mirrored.to_owned()) {
                self.mirrors.insert(key, Mirror { uid, mirrored });
            }
            return Ok(());
        }
        self.mirrors.remove(&key);
        if let Some(source) = json.pointer_mut(SOURCE) {
            // Its author may not make it one of a file.
            *source = "api".into();
        }
        let pod = desired_pod(&key, uid, &json, self.column).map_err(malformed)?;
        if self.pods.get(&key).is_some_and(|before| before.is_static) {
            self.hidden.insert(key, pod);
        } else {
            self.pods.insert(key, pod);
        }
        Ok(())
    }

    fn remove(&mut self, key: &ResourceKey) {
        if let Some(listed) = &mut self.listed {
            listed.remove(key);
        }
        self.remove_pod(key);
        self.objects.remove(key);
    }

    /// Removes a pod of the view.
    fn remove_pod(&mut self, key: &ResourceKey) {
        self.hidden.remove(key);
        self.mirrors.remove(key);
        if self.pods.get(key).is_some_and(|pod| !pod.is_static) {
            self.pods.remove(key);
        }
    }
}

fn desired_pod(
    key: &ResourceKey,
    uid: PodUid,
    json: &Value,
    column: Column,
) -> Result<DesiredPod, serde_json::Error> {
    let mut pod = Pod::deserialize(json)?;
    // The key decides the pod's name; the downward API and logs read it from the object.
    pod.metadata.namespace = key.namespace().map(str::to_owned);
    pod.metadata.name = Some(key.name().to_owned());
    pod.metadata.uid = Some(uid.as_str().to_owned());
    // Nothing here reads them, and they may be larger than the spec.
    pod.metadata.managed_fields = None;
    pod.status = pod::gate_conditions(&pod);
    let claims = pod::claims(&pod).map(Cow::into_owned).collect();
    let pod = CompressedObject::encode(&pod)?;
    let findings = Arc::new(inspect(column, json));
    Ok(DesiredPod { uid, pod, findings, claims, is_static: false })
}

#[cfg(test)]
mod tests;
