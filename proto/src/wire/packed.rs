//! The packed changes of a push: the common parts of its objects travel once.
//!
//! The form is one zstd frame with its content size in the header. It contains the changes, each
//! after its length.

use std::cell::RefCell;

use bytes::Bytes;
use prost::Message as _;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::get_frame_content_size;

use super::{CHANGES_MAX, WireError, WireFault};
use crate::replication::Change;

/// The least bytes of changes to pack. Below, a frame saves little; a single live change costs the
/// hub no time for it.
const PACKED_FROM_BYTES: usize = 4 << 10;

/// Unpacked bytes of a frame: the size that a message without packing may have. [`unpack`] refuses
/// a frame with a larger content size before it allocates memory.
const UNPACKED_BYTES_MAX: usize = 4 << 20;

/// The zstd level: its own default, about 300 MB/s on one core.
const ZSTD_LEVEL: i32 = 3;

/// The field, by its name in the .proto file.
const FIELD: &str = "Push.packed";

thread_local! {
    /// Keeps its memory from push to push. `None`: its creation failed; changes are not packed.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> =
        RefCell::new(Compressor::new(ZSTD_LEVEL).ok());
}

/// Packs `changes` into a frame; `None`: the frame would not be smaller.
pub(super) fn pack(changes: &[Change]) -> Option<Bytes> {
    let plain: usize = changes.iter().map(Change::encoded_len).sum();
    if !(PACKED_FROM_BYTES..UNPACKED_BYTES_MAX).contains(&plain) {
        return None;
    }
    let mut text = Vec::with_capacity(plain + changes.len() * 5);
    for change in changes {
        // A vector grows as needed, so that this succeeds.
        change.encode_length_delimited(&mut text).ok()?;
    }
    let compress = |with: &mut Compressor<'static>| with.compress(&text).ok();
    let frame = COMPRESSOR.with_borrow_mut(|with| with.as_mut().and_then(compress))?;
    (frame.len() < plain && text.len() <= UNPACKED_BYTES_MAX).then(|| frame.into())
}

/// Unpacks the changes of a frame.
pub(super) fn unpack(frame: &[u8]) -> Result<Vec<Change>, WireError> {
    let malformed = |reason: String| WireFault::Packed { reason }.of(FIELD);
    let size = get_frame_content_size(frame)
        .map_err(|_| malformed("it has no zstd header".to_owned()))?
        .ok_or_else(|| malformed("its header has no content size".to_owned()))?;
    let capacity =
        usize::try_from(size).ok().filter(|size| *size <= UNPACKED_BYTES_MAX).ok_or_else(|| {
            malformed(format!("it has {size} bytes, at most {UNPACKED_BYTES_MAX} are allowed"))
        })?;
    let text = Decompressor::new()
        .and_then(|mut with| with.decompress(frame, capacity))
        .map_err(|error| malformed(error.to_string()))?;
    let (mut text, mut changes) = (Bytes::from(text), Vec::new());
    while !text.is_empty() {
        if changes.len() == CHANGES_MAX {
            return Err(WireFault::TooMany { count: CHANGES_MAX + 1, max: CHANGES_MAX }.of(FIELD));
        }
        let change = Change::decode_length_delimited(&mut text);
        changes.push(change.map_err(|error| malformed(error.to_string()))?);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change(n: usize, bytes: usize) -> Change {
        let object =
            Bytes::from(format!("{{\"n\":{n},\"text\":\"{}\"}}", "word ".repeat(bytes / 5)));
        Change {
            key: format!("default/configmap/c-{n}"),
            object: Some(object),
            ..Change::default()
        }
    }

    #[test]
    fn the_common_parts_of_many_objects_travel_once() {
        let changes: Vec<_> = (0..100).map(|n| change(n, 1_000)).collect();
        let plain: usize = changes.iter().map(Change::encoded_len).sum();
        let frame = pack(&changes).expect("it is smaller");
        assert!(frame.len() * 20 < plain, "{} of {plain} bytes", frame.len());
        assert_eq!(unpack(&frame), Ok(changes));
    }

    #[test]
    fn small_pushes_are_not_packed() {
        assert_eq!(pack(&[]), None);
        assert_eq!(pack(&[change(1, 3_000)]), None);
        assert!(pack(&[change(1, 5_000)]).is_some());
    }

    #[test]
    fn a_frame_with_too_large_a_content_is_refused_before_it_is_unpacked() {
        let frame = |bytes| zstd::bulk::compress(&vec![0; bytes], 1).expect("compresses");
        let text = unpack(&frame(UNPACKED_BYTES_MAX + 1)).expect_err("too much").to_string();
        assert!(text.contains("Push.packed") && text.contains("4194305"), "{text}");
        // Each zero is a change of no bytes, which still takes memory here.
        let error = unpack(&frame(UNPACKED_BYTES_MAX)).expect_err("too many");
        assert_eq!(error.fault, WireFault::TooMany { count: CHANGES_MAX + 1, max: CHANGES_MAX });
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = unpack(&bytes);
            let _ = unpack(&zstd::bulk::compress(&bytes, 1).expect("compresses"));
        }
    }
}
