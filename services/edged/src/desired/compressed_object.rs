//! An object as compressed JSON. A parsed object takes several times the memory, and a worker reads
//! the objects of its pod only when something happens to the pod.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::bulk::{Compressor, Decompressor};

/// For objects of a few KB a higher level takes longer and saves almost nothing.
const LEVEL: i32 = 1;

// The creation of a compressor takes longer than the compression of one object.
thread_local! {
    static COMPRESSOR: RefCell<Compressor<'static>> =
        RefCell::new(Compressor::new(LEVEL).expect("the level is valid"));
    static DECOMPRESSOR: RefCell<Decompressor<'static>> =
        RefCell::new(Decompressor::new().expect("there is no dictionary"));
}

/// An object of a Kubernetes type, compressed. Cheap to clone.
#[derive(Debug)]
pub(crate) struct CompressedObject<T> {
    frame: Arc<[u8]>,
    json_bytes: usize,
    object: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> CompressedObject<T> {
    /// Compresses an object, which [`Self::decode`] returns.
    ///
    /// # Errors
    /// The object's JSON cannot be decoded: a year before year 1 can be parsed, but not written.
    pub(crate) fn encode(object: &T) -> Result<Self, serde_json::Error> {
        let json = serde_json::to_vec(object)?;
        serde_json::from_slice::<T>(&json)?;
        let frame = COMPRESSOR.with_borrow_mut(|with| with.compress(&json));
        let frame = frame.expect("the buffer is made for the worst case");
        Ok(Self { frame: frame.into(), json_bytes: json.len(), object: PhantomData })
    }

    /// The object.
    pub(crate) fn decode(&self) -> T {
        let json =
            DECOMPRESSOR.with_borrow_mut(|with| with.decompress(&self.frame, self.json_bytes));
        let json = json.expect("the frame was compressed here");
        serde_json::from_slice(&json).expect("the JSON was decoded when it was compressed")
    }

    /// Whether both are the same allocation, which is cheaper than equality.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.frame, &other.frame)
    }
}

/// Objects with equal JSON are equal. Times have whole seconds in JSON.
impl<T> PartialEq for CompressedObject<T> {
    fn eq(&self, other: &Self) -> bool {
        self.frame == other.frame
    }
}

impl<T> Clone for CompressedObject<T> {
    fn clone(&self) -> Self {
        let Self { frame, json_bytes, object } = self;
        Self { frame: frame.clone(), json_bytes: *json_bytes, object: *object }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decoded_object_equals_the_encoded_one() {
        let container = json!({"name": "a", "image": "b", "args": vec!["c"; 200], "ports": [
            {"containerPort": 80, "hostIP": "127.0.0.1"}],
            "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 3},
            "resources": {"limits": {"cpu": "100m", "memory": 5}}});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"ä": "\u{0}"}},
            "spec": {"containers": [container], "tolerations": [{"tolerationSeconds": 5}]},
        }))
        .expect("a pod");
        let compressed = CompressedObject::encode(&pod).expect("encodes");
        assert_eq!(compressed.decode(), pod);
        assert!(
            4 * compressed.frame.len() < compressed.json_bytes,
            "{} bytes",
            compressed.frame.len()
        );
        assert!(compressed.same(&compressed.clone()));
        assert!(!compressed.same(&CompressedObject::encode(&pod).expect("encodes")));
        assert_eq!(
            CompressedObject::encode(&Pod::default()).expect("encodes").decode(),
            Pod::default()
        );
    }

    #[test]
    fn times_are_decoded_in_whole_seconds_or_refused() {
        let pod = |time: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"creationTimestamp": time}})).expect("a pod")
        };
        for (time, whole) in [
            ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"),
            ("9999-12-30T22:00:00.999999999Z", "9999-12-30T22:00:00Z"),
        ] {
            let compressed = CompressedObject::encode(&pod(time)).expect("encodes");
            assert_eq!(compressed.decode(), pod(whole));
            assert!(compressed == CompressedObject::encode(&pod(whole)).expect("encodes"));
        }
        CompressedObject::encode(&pod("-000001-01-01T00:00:00Z"))
            .map(drop)
            .expect_err("the year cannot be written");
    }
}
