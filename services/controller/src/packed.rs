//! Objects in less memory. Most objects of a type differ in a few fields, so a payload is kept as a
//! patch to the payload of another object of its type.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::ObjectHash;
use headwater_object::patch::{apply_patch, create_patch};
use headwater_object::{Object, ObjectHead};
use headwater_view::EntrySummary;
use serde_json::Value;

/// The payload of an object. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct PackedPayload {
    /// The payload that `bytes` is a patch to; `None`: `bytes` is the payload.
    base: Option<Arc<[u8]>>,
    bytes: Arc<[u8]>,
    digest: ObjectHash,
}

/// An object, in little memory. Clones share the payload.
#[derive(Clone, Debug)]
pub(crate) struct PackedObject {
    /// Everything but the payload.
    pub(crate) head: ObjectHead,
    payload: PackedPayload,
}

/// A base is used for a payload of at least this fraction of its size: with a larger base, packing
/// costs the time of the base and saves little.
const BASE_RATIO_MAX: usize = 8;

/// Packs payloads, with the last one of each type that was kept whole as the base.
#[derive(Debug, Default)]
pub(crate) struct PayloadPacker {
    bases: HashMap<Box<str>, Arc<[u8]>>,
}

impl PayloadPacker {
    /// Packs the payload of an object of the type `object_type`.
    pub(crate) fn pack(&mut self, object_type: &str, payload: &[u8]) -> PackedPayload {
        self.pack_hashed(object_type, payload, ObjectHash::of(payload))
    }

    /// As [`PayloadPacker::pack`]; `digest` is the hash of `payload`.
    pub(crate) fn pack_hashed(
        &mut self,
        object_type: &str,
        payload: &[u8],
        digest: ObjectHash,
    ) -> PackedPayload {
        if let Some(base) = self.bases.get(object_type)
            && base.len() / BASE_RATIO_MAX <= payload.len()
            && let Some(patch) = create_patch(base, payload)
        {
            return PackedPayload { base: Some(base.clone()), bytes: patch[..].into(), digest };
        }
        let bytes: Arc<[u8]> = payload.into();
        self.bases.insert(object_type.into(), bytes.clone());
        PackedPayload { base: None, bytes, digest }
    }

    /// Packs an object.
    pub(crate) fn pack_object(&mut self, object: Object) -> PackedObject {
        let (head, payload, digest) = object.into_parts();
        let payload = self.pack_hashed(head.key().kind(), &payload, digest);
        PackedObject { head, payload }
    }
}

impl PackedObject {
    /// The BLAKE3 hash of the payload.
    pub(crate) fn digest(&self) -> &ObjectHash {
        self.payload.digest()
    }

    /// Whether a published entry is this object.
    pub(crate) fn is_published_as(&self, published: &EntrySummary) -> bool {
        *self.digest() == published.object_hash && *self.head.uid() == *published.uid
    }

    /// The object.
    pub(crate) fn unpack(&self) -> Object {
        self.head.with_payload(self.payload.unpack(), *self.digest())
    }
}

impl PackedPayload {
    /// The BLAKE3 hash of the payload.
    pub(crate) fn digest(&self) -> &ObjectHash {
        &self.digest
    }

    /// The payload as a value.
    pub(crate) fn value(&self) -> Value {
        // The payload is the serialized form of a value.
        serde_json::from_slice(&self.unpack()).unwrap_or_default()
    }

    /// The payload.
    pub(crate) fn unpack(&self) -> Bytes {
        match &self.base {
            // The patch was made from this base, so it applies.
            Some(base) => apply_patch(base, &self.bytes).unwrap_or_default(),
            None => Bytes::copy_from_slice(&self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(n: u32) -> Vec<u8> {
        let image = format!("registry.example/shop/till@sha256:{:064x}", n.wrapping_mul(7919));
        let env: Vec<_> = (0..12)
            .map(|at| serde_json::json!({"name": format!("SETTING_{at}"), "value": "the same"}))
            .collect();
        let container = serde_json::json!({"name": "main", "image": image, "env": env});
        let pod = serde_json::json!({"metadata": {"name": format!("p-{n}")},
                                     "spec": {"containers": [container]}});
        serde_json::to_vec(&pod).expect("JSON")
    }

    #[test]
    fn payloads_of_one_type_take_a_fraction_and_come_back_byte_for_byte() {
        let mut packer = PayloadPacker::default();
        let packed: Vec<_> = (0..100).map(|n| packer.pack("pod", &pod(n))).collect();
        for (n, packed) in (0..100).zip(&packed) {
            assert_eq!(packed.unpack(), pod(n));
        }
        let bytes: usize = packed.iter().map(|packed| packed.bytes.len()).sum();
        let whole: usize = (0..100).map(|n| pod(n).len()).sum();
        assert!(bytes * 4 < whole, "{bytes} of {whole}");
    }

    #[test]
    fn a_payload_that_is_like_no_other_is_kept_whole_and_is_the_next_base() {
        let mut packer = PayloadPacker::default();
        let key = |n: u32| [0, 1, 2].map(|at| blake3::hash(&[n as u8, at]).to_string()).concat();
        packer.pack("secret", key(1).as_bytes());
        let other = packer.pack("secret", key(2).as_bytes());
        assert!(other.base.is_none());
        assert_eq!(other.unpack(), key(2));
        let like = packer.pack("secret", format!("{} again", key(2)).as_bytes());
        assert!(like.base.is_some());
        assert!(packer.pack("pod", key(2).as_bytes()).base.is_none(), "a type has its own base");
    }
}
