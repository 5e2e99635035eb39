//! Changes packed together: what the objects of a push have in common travels once.
//!
//! One zstd frame, which names its content size, of the changes, each after its length.

use std::cell::RefCell;

use bytes::Bytes;
use prost::Message as _;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::get_frame_content_size;

use super::{CHANGES_MAX, WireError, WireFault};
use crate::replication::Change;

/// Changes of at least this many bytes are packed; below, a frame saves little, and what is pushed
/// as it happens costs the hub no time for it.
const PACKED_FROM_BYTES: usize = 4 << 10;

/// What a frame may hold: as much as a message that is not packed. One that claims more is refused
/// before anything is allocated for it.
const UNPACKED_BYTES_MAX: usize = 4 << 20;

/// The zstd level: its own default, about 300 MB/s on one core.
const ZSTD_LEVEL: i32 = 3;

/// The field, as the .proto file names it.
const FIELD: &str = "Push.packed";

thread_local! {
    /// Keeps its memory from push to push; without one, changes go as they are.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> =
        RefCell::new(Compressor::new(ZSTD_LEVEL).ok());
}

/// The frame of `changes`; `None` where it would not be less.
pub(super) fn pack(changes: &[Change]) -> Option<Bytes> {
    let plain: usize = changes.iter().map(Change::encoded_len).sum();
    if !(PACKED_FROM_BYTES..UNPACKED_BYTES_MAX).contains(&plain) {
        return None;
    }
    let mut text = Vec::with_capacity(plain + changes.len() * 5);
    for change in changes {
        // A vector grows as far as it has to.
        change.encode_length_delimited(&mut text).ok()?;
    }
    let compress = |with: &mut Compressor<'static>| with.compress(&text).ok();
    let frame = COMPRESSOR.with_borrow_mut(|with| with.as_mut().and_then(compress))?;
    (frame.len() < plain && text.len() <= UNPACKED_BYTES_MAX).then(|| frame.into())
}

/// The changes in a frame.
pub(super) fn unpack(frame: &[u8]) -> Result<Vec<Change>, WireError> {
    let wrong = |reason: String| WireFault::Packed { reason }.of(FIELD);
    let size = get_frame_content_size(frame)
        .map_err(|_| wrong("it has no zstd header".to_owned()))?
        .ok_or_else(|| wrong("it does not name its content size".to_owned()))?;
    let capacity = usize::try_from(size)
        .ok()
        .filter(|size| *size <= UNPACKED_BYTES_MAX)
        .ok_or_else(|| wrong(format!("it names {size} bytes, at most {UNPACKED_BYTES_MAX}")))?;
    let text = Decompressor::new()
        .and_then(|mut with| with.decompress(frame, capacity))
        .map_err(|error| wrong(error.to_string()))?;
    let (mut text, mut changes) = (Bytes::from(text), Vec::new());
    while !text.is_empty() {
        if changes.len() == CHANGES_MAX {
            return Err(WireFault::TooMany { count: CHANGES_MAX + 1, max: CHANGES_MAX }.of(FIELD));
        }
        let change = Change::decode_length_delimited(&mut text);
        changes.push(change.map_err(|error| wrong(error.to_string()))?);
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
    fn what_many_objects_have_in_common_travels_once() {
        let changes: Vec<_> = (0..100).map(|n| change(n, 1_000)).collect();
        let plain: usize = changes.iter().map(Change::encoded_len).sum();
        let frame = pack(&changes).expect("it is less");
        assert!(frame.len() * 20 < plain, "{} of {plain} bytes", frame.len());
        assert_eq!(unpack(&frame), Ok(changes));
    }

    #[test]
    fn little_goes_as_it_is() {
        assert_eq!(pack(&[]), None);
        assert_eq!(pack(&[change(1, 3_000)]), None);
        assert!(pack(&[change(1, 5_000)]).is_some());
    }

    #[test]
    fn a_frame_that_would_blow_up_is_refused_before_it_is_opened() {
        let frame = |bytes| zstd::bulk::compress(&vec![0; bytes], 1).expect("compresses");
        let said = unpack(&frame(UNPACKED_BYTES_MAX + 1)).expect_err("too much").to_string();
        assert!(said.contains("Push.packed") && said.contains("4194305"), "{said}");
        // Each zero is a change of no bytes, and each of those takes memory here.
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
