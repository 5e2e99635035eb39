//! Objects at rest. Parsed, an object takes several times what its compressed JSON does, and a worker
//! reads those of its pod only when something happens to it.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::bulk::{Compressor, Decompressor};

/// For objects of a few KB a higher level takes longer and saves nothing to speak of.
const LEVEL: i32 = 1;

// To make one takes longer than what it does for an object.
thread_local! {
    static COMPRESSOR: RefCell<Compressor<'static>> =
        RefCell::new(Compressor::new(LEVEL).expect("a level that there is"));
    static DECOMPRESSOR: RefCell<Decompressor<'static>> =
        RefCell::new(Decompressor::new().expect("no dictionary to refuse"));
}

/// An object of a type of Kubernetes, compressed; cheap to clone.
#[derive(Debug)]
pub(crate) struct Packed<T> {
    frame: Arc<[u8]>,
    json_bytes: usize,
    object: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Packs what [`Self::open`] gives back.
    ///
    /// # Errors
    /// When it could not be read back: a year before the first is read, and written as none.
    pub(crate) fn pack(object: &T) -> Result<Self, serde_json::Error> {
        let json = serde_json::to_vec(object)?;
        serde_json::from_slice::<T>(&json)?;
        let frame = COMPRESSOR.with_borrow_mut(|with| with.compress(&json));
        let frame = frame.expect("a buffer made for the worst case");
        Ok(Self { frame: frame.into(), json_bytes: json.len(), object: PhantomData })
    }

    /// The object.
    pub(crate) fn open(&self) -> T {
        let json =
            DECOMPRESSOR.with_borrow_mut(|with| with.decompress(&self.frame, self.json_bytes));
        let json = json.expect("what was packed");
        serde_json::from_slice(&json).expect("what could be read when it was packed")
    }

    /// Whether both are one, rather than alike.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.frame, &other.frame)
    }
}

/// What is alike as JSON is alike: that may be less than what was packed. Times have whole seconds.
impl<T> PartialEq for Packed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.frame == other.frame
    }
}

impl<T> Clone for Packed<T> {
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
    fn what_is_packed_comes_back() {
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
        let packed = Packed::pack(&pod).expect("packs");
        assert_eq!(packed.open(), pod);
        assert!(4 * packed.frame.len() < packed.json_bytes, "{} bytes", packed.frame.len());
        assert!(packed.same(&packed.clone()));
        assert!(!packed.same(&Packed::pack(&pod).expect("packs")));
        assert_eq!(Packed::pack(&Pod::default()).expect("packs").open(), Pod::default());
    }

    #[test]
    fn times_come_back_in_whole_seconds_or_are_refused() {
        let pod = |time: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"creationTimestamp": time}})).expect("a pod")
        };
        for (time, whole) in [
            ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"),
            ("9999-12-30T22:00:00.999999999Z", "9999-12-30T22:00:00Z"),
        ] {
            let packed = Packed::pack(&pod(time)).expect("packs");
            assert_eq!(packed.open(), pod(whole));
            assert!(packed == Packed::pack(&pod(whole)).expect("packs"));
        }
        Packed::pack(&pod("-000001-01-01T00:00:00Z"))
            .map(drop)
            .expect_err("a year that is no text");
    }
}
