//! The objects that pods name, from the edge's view.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::ResourceKey;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, ServiceAccount,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment};
use serde::de::DeserializeOwned;

/// A cheap copy of the objects at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    by_key: Arc<BTreeMap<ResourceKey, Object>>,
}

/// An object of a kind that pods name.
#[derive(Clone, Debug)]
enum Object {
    ConfigMap(Arc<ConfigMap>),
    Secret(Arc<Secret>),
    Account(Arc<ServiceAccount>),
    Volume(Arc<PersistentVolume>),
    Claim(Arc<PersistentVolumeClaim>),
    Driver(Arc<CSIDriver>),
    Attachment(Arc<VolumeAttachment>),
    RuntimeClass(Arc<RuntimeClass>),
}

impl Objects {
    /// Inserts an object. Kinds that no pod names are ignored. `uid` is the object's in the log; the
    /// object itself may state none.
    ///
    /// # Errors
    /// The bytes are not an object of the key's type. The earlier object stays.
    pub(crate) fn insert(
        &mut self,
        key: &ResourceKey,
        uid: &str,
        json: &[u8],
    ) -> Result<(), serde_json::Error> {
        let object = match key.kind() {
            "configmap" => Object::ConfigMap(parse(json)?),
            "secret" => Object::Secret(parse(json)?),
            "serviceaccount" => Object::Account(parse(json)?),
            "persistentvolume" => Object::Volume(parse(json)?),
            "csidriver" => Object::Driver(parse(json)?),
            "volumeattachment" => Object::Attachment(parse(json)?),
            "persistentvolumeclaim" => {
                let mut claim: PersistentVolumeClaim = serde_json::from_slice(json)?;
                let metadata = &mut claim.metadata;
                metadata.uid = metadata.uid.take().or_else(|| Some(uid.to_owned()));
                Object::Claim(Arc::new(claim))
            }
            "runtimeclass" => Object::RuntimeClass(parse(json)?),
            _ => return Ok(()),
        };
        Arc::make_mut(&mut self.by_key).insert(key.clone(), object);
        Ok(())
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, key: &ResourceKey) {
        if self.by_key.contains_key(key) {
            Arc::make_mut(&mut self.by_key).remove(key);
        }
    }

    /// Keeps only the objects whose key `keep` accepts.
    pub(crate) fn retain(&mut self, keep: impl Fn(&ResourceKey) -> bool) {
        if self.by_key.keys().any(|key| !keep(key)) {
            Arc::make_mut(&mut self.by_key).retain(|key, _| keep(key));
        }
    }

    /// Whether both are the same allocation, which is cheaper than equality.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.by_key, &other.by_key)
    }

    /// The ConfigMap of that name.
    pub(crate) fn config_map(&self, namespace: &str, name: &str) -> Option<&ConfigMap> {
        match self.get(Some(namespace), "configmap", name)? {
            Object::ConfigMap(map) => Some(map),
            _ => None,
        }
    }

    /// The Secret of that name.
    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Option<&Secret> {
        match self.get(Some(namespace), "secret", name)? {
            Object::Secret(secret) => Some(secret),
            _ => None,
        }
    }

    /// The ServiceAccount of that name.
    pub(crate) fn account(&self, namespace: &str, name: &str) -> Option<&ServiceAccount> {
        match self.get(Some(namespace), "serviceaccount", name)? {
            Object::Account(account) => Some(account),
            _ => None,
        }
    }

    /// The PersistentVolumeClaim of that name.
    pub(crate) fn claim(&self, namespace: &str, name: &str) -> Option<&PersistentVolumeClaim> {
        match self.get(Some(namespace), "persistentvolumeclaim", name)? {
            Object::Claim(claim) => Some(claim),
            _ => None,
        }
    }

    /// All claims, by namespace and name.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&str, &str, &PersistentVolumeClaim)> {
        self.by_key.iter().filter_map(|(key, object)| match object {
            Object::Claim(claim) => Some((key.namespace()?, key.name(), &**claim)),
            _ => None,
        })
    }

    /// The handlers of all RuntimeClasses, by the name of the class.
    pub(crate) fn runtime_classes(&self) -> BTreeMap<String, String> {
        let classes = self.by_key.iter().filter_map(|(key, object)| match object {
            Object::RuntimeClass(class) => Some((key.name().to_owned(), class.handler.clone())),
            _ => None,
        });
        classes.collect()
    }

    /// The PersistentVolume of that name.
    pub(crate) fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        match self.get(None, "persistentvolume", name)? {
            Object::Volume(volume) => Some(volume),
            _ => None,
        }
    }

    /// What the CSIDriver of that name states.
    pub(crate) fn csi_driver(&self, name: &str) -> Option<&CSIDriverSpec> {
        match self.get(None, "csidriver", name)? {
            Object::Driver(driver) => Some(&driver.spec),
            _ => None,
        }
    }

    /// The attachments of volumes to this node.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = &VolumeAttachment> {
        self.by_key.values().filter_map(|object| match object {
            Object::Attachment(attachment) => Some(&**attachment),
            _ => None,
        })
    }

    fn get(&self, namespace: Option<&str>, kind: &str, name: &str) -> Option<&Object> {
        self.by_key.get(&ResourceKey::new(namespace, kind, name).ok()?)
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<Arc<T>, serde_json::Error> {
    serde_json::from_slice(json).map(Arc::new)
}
