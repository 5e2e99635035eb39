//! Patches: an object as its difference to a base. Most updates change one or two fields of many.
//!
//! A patch is one zstd frame, compressed with the base as its prefix, as by `zstd --patch-from`.
//! With the same base it restores the object, byte for byte. With another base it fails or yields
//! other bytes, so the caller compares the hash of the result.

use std::cell::RefCell;

use bytes::Bytes;
use zstd::zstd_safe::{CCtx, DCtx, get_error_name, get_frame_content_size};

use crate::payload::OBJECT_BYTES_MAX;

/// The zstd level: on objects of 2 KiB, higher levels take twice the time for the same size.
const LEVEL: i32 = 1;

/// A patch is used only if it is shorter than the object by this factor. Otherwise the compression
/// of many objects together is as good, and needs no base.
const WORTH: usize = 2;

/// Up to this many bytes of base and object together, a thread reuses its buffers: to allocate them
/// takes ten times as long as to compress an object of 2 KiB. They have up to 0.4 MB a thread.
const KEPT_FOR_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = RefCell::new(CCtx::try_create());
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = RefCell::new(DCtx::try_create());
}

/// The bytes are not a patch of this base.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a patch cannot be applied: {reason}")]
pub struct PatchError {
    /// The cause.
    pub reason: String,
}

/// Returns the patch from `base` to `object`; `None` if it saves too little.
pub fn create_patch(base: &[u8], object: &[u8]) -> Option<Bytes> {
    let room = object.len() / WORTH;
    if base.is_empty() || object.len().max(base.len()) > OBJECT_BYTES_MAX {
        return None;
    }
    let mut patch = Vec::with_capacity(room);
    // A patch that needs more space ends in an error.
    let mut compress =
        |with: &mut CCtx<'static>| with.compress_using_dict(&mut patch, object, base, LEVEL).ok();
    if base.len() + object.len() <= KEPT_FOR_BYTES_MAX {
        COMPRESSOR.with_borrow_mut(|with| compress(with.as_mut()?))?;
    } else {
        compress(&mut CCtx::try_create()?)?;
    }
    Some(patch.into())
}

/// Returns the size of the patched object in bytes, as `patch` declares it: at most
/// [`OBJECT_BYTES_MAX`].
///
/// # Errors
/// When the bytes are not a patch, or the object would be too large.
pub fn patched_bytes(patch: &[u8]) -> Result<usize, PatchError> {
    let size = get_frame_content_size(patch)
        .map_err(|_| error("not a zstd frame"))?
        .ok_or_else(|| error("the frame does not declare its content size"))?;
    let size = usize::try_from(size).ok().filter(|size| *size <= OBJECT_BYTES_MAX);
    size.ok_or_else(|| error("the declared size is above the maximum of an object"))
}

/// Applies `patch` to `base` and returns the object. It needs no more memory than the object.
///
/// # Errors
/// When the bytes are not a patch of that base.
pub fn apply_patch(base: &[u8], patch: &[u8]) -> Result<Bytes, PatchError> {
    let size = patched_bytes(patch)?;
    let mut object = Vec::with_capacity(size);
    let mut decompress = |with: Option<&mut DCtx<'static>>| {
        let with = with.ok_or_else(|| error("no memory"))?;
        let found = with.decompress_using_dict(&mut object, patch, base);
        found.map_err(|code| error(get_error_name(code)))
    };
    let found = if base.len() + size <= KEPT_FOR_BYTES_MAX {
        DECOMPRESSOR.with_borrow_mut(|with| decompress(with.as_mut()))?
    } else {
        decompress(DCtx::try_create().as_mut())?
    };
    if found == size {
        Ok(object.into())
    } else {
        Err(error("the object is shorter than the declared size"))
    }
}

fn error(reason: &str) -> PatchError {
    PatchError { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pod(image: &str) -> Vec<u8> {
        let container = |n: u32| {
            json!({
                "name": format!("c{n}"), "image": image, "command": ["sleep", n.to_string()],
                "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
                "volumeMounts": [{"name": "settings", "mountPath": format!("/etc/{n}")}],
            })
        };
        let containers: Vec<_> = (0..8).map(container).collect();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
        serde_json::to_vec(&pod).expect("JSON")
    }

    #[test]
    fn an_update_of_a_field_is_a_small_part_of_the_object() {
        let (before, after) = (pod("shop:1.0"), pod("shop:1.1"));
        let patch = create_patch(&before, &after).expect("worth it");
        assert!(patch.len() * 10 < after.len(), "{} of {}", patch.len(), after.len());
        assert_eq!(patched_bytes(&patch), Ok(after.len()));
        assert_eq!(apply_patch(&before, &patch).expect("patched"), after);
    }

    #[test]
    fn what_has_nothing_in_common_is_no_patch() {
        assert_eq!(create_patch(b"", &pod("shop")), None);
        assert_eq!(create_patch(&pod("shop"), br#"{"data":{"a":"Zm9v"}}"#), None);
    }

    #[test]
    fn another_base_never_gives_the_object() {
        let patch = create_patch(&pod("shop:1.0"), &pod("shop:1.1")).expect("worth it");
        for other in [pod("till:3.0"), pod("shop:1.0")[1..].to_vec(), Vec::new()] {
            assert_ne!(apply_patch(&other, &patch).ok().as_deref(), Some(&pod("shop:1.1")[..]));
        }
    }

    #[test]
    fn a_patch_that_would_take_too_much_memory_is_refused_before() {
        let bomb = zstd::bulk::compress(&vec![0; OBJECT_BYTES_MAX + 1], 1).expect("compresses");
        assert!(
            apply_patch(b"base", &bomb)
                .expect_err("too large")
                .reason
                .contains("above the maximum")
        );
    }

    proptest! {
        #[test]
        fn any_object_comes_back(base in any::<Vec<u8>>(), object in any::<Vec<u8>>()) {
            if let Some(patch) = create_patch(&base, &object) {
                prop_assert_eq!(apply_patch(&base, &patch).expect("patched"), object);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_bounded(base in any::<Vec<u8>>(), bytes in any::<Vec<u8>>()) {
            if let Ok(object) = apply_patch(&base, &bytes) {
                prop_assert!(object.len() <= OBJECT_BYTES_MAX);
            }
        }
    }
}
