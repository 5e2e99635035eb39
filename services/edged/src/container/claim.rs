//! A claim whose volume is a directory of the node, and the claims of a node's view. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::{Deserialize, Serialize};

use crate::desired::objects::Objects;
use crate::pod::is_plain_name;

/// The annotation of a claim without a PersistentVolume that states what becomes of its directory:
/// `Retain` or `Delete`.
pub const RECLAIM_ANNOTATION: &str = "headwater/reclaim-policy";

/// A claim whose volume is a directory of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: ClaimName,
    /// Its UID, safe as the name of a directory. A claim that is made again under its name has
    /// another one.
    pub uid: String,
    /// What becomes of the directory when the claim is deleted.
    pub policy: ReclaimPolicy,
    /// The cloud deletes the claim.
    pub is_deleting: bool,
}

/// The namespace and the name of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimName {
    /// Its namespace.
    pub namespace: String,
    /// Its name in the namespace.
    pub name: String,
}

/// What becomes of the directory of a deleted claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReclaimPolicy {
    /// It stays until a person removes it. Data that exists nowhere else is not lost by default.
    #[default]
    Retain,
    /// It is removed after the last pod that uses it.
    Delete,
}

/// The claims of a node's view at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimView {
    /// The claims that the view has.
    pub claims: BTreeMap<ClaimName, Claim>,
    /// The claims that pods of the view name, present or not.
    pub named: BTreeSet<ClaimName>,
    /// A claim that the view lacks is not on the node: the view has folded its streams, and no
    /// listing is under way.
    pub is_settled: bool,
}

impl Claim {
    /// The claim as the view has it.
    ///
    /// # Errors
    /// It has no usable UID, or its policy is not one.
    pub(crate) fn of(
        name: ClaimName,
        object: &PersistentVolumeClaim,
        objects: &Objects,
    ) -> Result<Self, String> {
        let uid = object.metadata.uid.clone().unwrap_or_default();
        // An earlier version named directories `<namespace>_<name>`.
        if !is_plain_name(&uid) || uid.contains('_') {
            return Err(format!(
                "persistentvolumeclaim \"{}\" has no UID that can name a directory: {uid:?}",
                name.name
            ));
        }
        let policy = ReclaimPolicy::of(object, objects)
            .map_err(|why| format!("persistentvolumeclaim \"{}\": {why}", name.name))?;
        let is_deleting = object.metadata.deletion_timestamp.is_some();
        Ok(Self { name, uid, policy, is_deleting })
    }

    /// The claim as the view has it, also one that no pod can use: it is present. A policy that is
    /// none removes nothing.
    pub(crate) fn present(
        name: ClaimName,
        object: &PersistentVolumeClaim,
        objects: &Objects,
    ) -> Self {
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let policy = ReclaimPolicy::of(object, objects).unwrap_or_default();
        let is_deleting = object.metadata.deletion_timestamp.is_some();
        Self { name, uid, policy, is_deleting }
    }
}

impl ReclaimPolicy {
    /// The policy of the claim's volume, else of the claim's annotation, else `Retain`.
    fn of(claim: &PersistentVolumeClaim, objects: &Objects) -> Result<Self, String> {
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let volume = bound.and_then(|bound| objects.volume(bound)?.spec.as_ref());
        let of_volume =
            volume.and_then(|volume| volume.persistent_volume_reclaim_policy.as_deref());
        let annotations = claim.metadata.annotations.as_ref();
        let of_claim = annotations.and_then(|all| all.get(RECLAIM_ANNOTATION)).map(String::as_str);
        match (of_volume, of_claim) {
            (Some("Delete"), _) | (None, Some("Delete")) => Ok(Self::Delete),
            (Some(_), _) | (None, None | Some("Retain")) => Ok(Self::Retain),
            (None, Some(other)) => Err(format!(
                "annotation {RECLAIM_ANNOTATION} is {other:?}: set it to Retain or Delete"
            )),
        }
    }
}

impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(annotation: Option<&str>) -> PersistentVolumeClaim {
        let annotations = annotation.map(|policy| json!({RECLAIM_ANNOTATION: policy}));
        let metadata = json!({"name": "data", "uid": "c1", "annotations": annotations});
        let spec = json!({"volumeName": "pv"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a claim")
    }

    fn with_volume(policy: Option<&str>) -> Objects {
        let spec = json!({"persistentVolumeReclaimPolicy": policy});
        let volume = json!({"metadata": {"name": "pv"}, "spec": spec}).to_string();
        let mut objects = Objects::default();
        let key = "null/persistentvolume/pv".parse().expect("a key");
        objects.insert(&key, "", volume.as_bytes()).expect("a volume");
        objects
    }

    #[test]
    fn a_directory_is_retained_unless_the_volume_or_the_claim_states_delete() {
        use ReclaimPolicy::{Delete, Retain};
        let policy = |annotation, of_volume: Option<Option<&str>>| {
            let objects = of_volume.map(with_volume).unwrap_or_default();
            ReclaimPolicy::of(&claim(annotation), &objects)
        };
        assert_eq!(policy(None, None), Ok(Retain));
        assert_eq!(policy(Some("Retain"), None), Ok(Retain));
        assert_eq!(policy(Some("Delete"), None), Ok(Delete));
        assert_eq!(policy(Some("Delete"), Some(None)), Ok(Delete), "the volume states none");
        assert_eq!(policy(Some("Delete"), Some(Some("Retain"))), Ok(Retain));
        assert_eq!(policy(None, Some(Some("Delete"))), Ok(Delete));
        assert_eq!(policy(None, Some(Some("Recycle"))), Ok(Retain));
        let error = policy(Some("delete"), None).expect_err("no policy");
        assert!(error.contains("\"delete\": set it to Retain or Delete"), "{error}");
    }

    #[test]
    fn a_claim_without_a_uid_for_a_directory_is_refused_by_its_name() {
        let name = || ClaimName { namespace: "shop".to_owned(), name: "data".to_owned() };
        let objects = Objects::default();
        assert_eq!(Claim::of(name(), &claim(None), &objects).expect("whole").uid, "c1");
        for uid in [None, Some("../up"), Some("shop_data")] {
            let mut claim = claim(None);
            claim.metadata.uid = uid.map(str::to_owned);
            let error = Claim::of(name(), &claim, &objects).expect_err("no name of a directory");
            assert!(error.contains("persistentvolumeclaim \"data\" has no UID"), "{error}");
        }
    }
}
