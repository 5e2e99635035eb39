//! The encoding of an object in a record's value.
//!
//! The first byte selects the encoding, so old records stay readable after a new encoding is added:
//!
//! | first byte | encoding |
//! |---|---|
//! | the start of any JSON text | plain: readable with ordinary Kafka tools |
//! | `0x01` | one zstd frame that names its content size |
//! | `0x02` | reserved: zstd with a trained dictionary, whose id follows |
//! | `0x03` | reserved: sealed |
//! | `0x04` | no object: the number of the body that has it, see [`crate::bodies`] |
//!
//! A reserved encoding is an error that names the encoding. A reader stops at a value that it cannot
//! decode.

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::get_frame_content_size;

/// The largest object, in bytes, uncompressed: the limit of a record, and above Kubernetes' own
/// 1.5 MiB. A frame that claims more is refused before anything is allocated for it.
pub const OBJECT_BYTES_MAX: usize = 2 << 20;

/// Objects of at least this many bytes are compressed; below, a frame without a dictionary saves
/// little, and people read plain values with ordinary tools.
pub const COMPRESS_BYTES_MIN: usize = 4 << 10;

/// The zstd level: its own default, about 300 MB/s on one core.
const ZSTD_LEVEL: i32 = 3;

const ZSTD: u8 = 0x01;
const ZSTD_DICTIONARY: u8 = 0x02;
const SEALED: u8 = 0x03;
const REFERENCE: u8 = 0x04;

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// There are no bytes; a removal has no value at all.
    #[error("the value is empty")]
    Empty,
    /// The value is compressed with a trained dictionary.
    #[error("the value is compressed with a dictionary, which this build cannot read: upgrade")]
    Dictionary,
    /// The value is sealed.
    #[error("the value is sealed, which this build cannot open: upgrade")]
    Sealed,
    /// The value refers to a body where an object is required.
    #[error("the value refers to a body and has no object")]
    Reference,
    /// The first byte names no encoding.
    #[error("the value's encoding {first:#04x} is unknown to this build: upgrade")]
    Unknown {
        /// The first byte.
        first: u8,
    },
    /// The object is larger than [`OBJECT_BYTES_MAX`].
    #[error("the object has {bytes} bytes, at most {OBJECT_BYTES_MAX} are taken")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The frame is damaged.
    #[error("the value's frame is damaged: {reason}")]
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
}

/// Encodes objects; keeps the compressor's memory between them.
pub struct ValueEncoder {
    compressor: Option<Compressor<'static>>,
}

impl ValueEncoder {
    /// An encoder.
    pub fn new() -> Self {
        // Without a compressor values stay plain, which every reader takes.
        Self { compressor: Compressor::new(ZSTD_LEVEL).ok() }
    }

    /// The value of `object`: plain when small or when compression would not make it smaller.
    pub fn encode(&mut self, object: &Bytes) -> Bytes {
        let plain_is_readable = object.first().is_some_and(|first| starts_json(*first));
        if plain_is_readable && object.len() < COMPRESS_BYTES_MIN {
            return object.clone();
        }
        let Some(frame) = self.compressor.as_mut().and_then(|with| with.compress(object).ok())
        else {
            return object.clone();
        };
        if plain_is_readable && frame.len() >= object.len() {
            return object.clone();
        }
        let mut value = Vec::with_capacity(1 + frame.len());
        value.push(ZSTD);
        value.extend_from_slice(&frame);
        value.into()
    }
}

impl Default for ValueEncoder {
    fn default() -> Self {
        Self::new()
    }
}

/// The object's bytes, as the writer had them.
///
/// # Errors
/// Says why the value cannot be read.
pub fn decode_value(value: &Bytes) -> Result<Bytes, ValueError> {
    match value.first() {
        None => Err(ValueError::Empty),
        Some(first) if starts_json(*first) => match value.len() {
            bytes if bytes > OBJECT_BYTES_MAX => Err(ValueError::TooLarge { bytes: bytes as u64 }),
            _ => Ok(value.clone()),
        },
        Some(&ZSTD) => decompress(&value[1..]),
        Some(&ZSTD_DICTIONARY) => Err(ValueError::Dictionary),
        Some(&SEALED) => Err(ValueError::Sealed),
        Some(&REFERENCE) => Err(ValueError::Reference),
        Some(&first) => Err(ValueError::Unknown { first }),
    }
}

/// The value of an event whose object is in the body `number` of its epoch: the number's bytes,
/// big-endian, without leading zeros.
pub fn encode_reference(number: u64) -> Bytes {
    let bytes = number.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let mut value = Vec::with_capacity(1 + bytes.len() - zeros);
    value.push(REFERENCE);
    value.extend_from_slice(&bytes[zeros..]);
    value.into()
}

/// The number of the body to which a value refers; `None`: the value is not a reference.
///
/// # Errors
/// [`ValueError::Damaged`]: the number is no number.
pub fn decode_reference(value: &[u8]) -> Result<Option<u64>, ValueError> {
    let Some((&REFERENCE, number)) = value.split_first() else { return Ok(None) };
    let mut bytes = [0; size_of::<u64>()];
    let zeros = bytes.len().checked_sub(number.len());
    match zeros {
        Some(zeros) if number.first().is_some_and(|first| *first != 0) => {
            bytes[zeros..].copy_from_slice(number);
            Ok(Some(u64::from_be_bytes(bytes)))
        }
        _ => Err(ValueError::Damaged { reason: "it names no body".to_owned() }),
    }
}

fn decompress(frame: &[u8]) -> Result<Bytes, ValueError> {
    let damaged = |reason: String| ValueError::Damaged { reason };
    let size = get_frame_content_size(frame)
        .map_err(|_| damaged("it has no zstd header".to_owned()))?
        .ok_or_else(|| damaged("it does not name its content size".to_owned()))?;
    let capacity = usize::try_from(size)
        .ok()
        .filter(|size| *size <= OBJECT_BYTES_MAX)
        .ok_or(ValueError::TooLarge { bytes: size })?;
    let object = Decompressor::new()
        .and_then(|mut with| with.decompress(frame, capacity))
        .map_err(|error| damaged(error.to_string()))?;
    if object.len() != capacity {
        return Err(damaged(format!("it holds {} bytes and names {capacity}", object.len())));
    }
    Ok(object.into())
}

/// Whether a JSON text can start with this byte (RFC 8259, section 2).
fn starts_json(first: u8) -> bool {
    matches!(first, b'{' | b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9')
        || matches!(first, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_objects_stay_readable_and_large_ones_shrink() {
        let mut encoder = ValueEncoder::new();
        let small = Bytes::from_static(b"{\"kind\":\"Pod\"}");
        assert_eq!(encoder.encode(&small), small);
        let large = Bytes::from(format!("{{\"a\":\"{}\"}}", "x".repeat(COMPRESS_BYTES_MIN)));
        let value = encoder.encode(&large);
        assert!(value[0] == ZSTD && value.len() < large.len() / 2, "{} bytes", value.len());
        assert_eq!(decode_value(&value), Ok(large));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let decode = |bytes: &'static [u8]| decode_value(&Bytes::from_static(bytes));
        assert_eq!(decode(b""), Err(ValueError::Empty));
        assert_eq!(decode(&[2, 0]), Err(ValueError::Dictionary));
        assert_eq!(decode(&[3, 0]), Err(ValueError::Sealed));
        assert_eq!(decode(&[5]), Err(ValueError::Unknown { first: 5 }));
        assert!(matches!(decode(&[1, 0]), Err(ValueError::Damaged { .. })));
    }

    #[test]
    fn a_frame_that_would_blow_up_is_refused_before_it_is_opened() {
        let frame = zstd::bulk::compress(&vec![b' '; OBJECT_BYTES_MAX + 1], 1).expect("compresses");
        let value = Bytes::from([&[ZSTD], frame.as_slice()].concat());
        let bytes = OBJECT_BYTES_MAX as u64 + 1;
        assert_eq!(decode_value(&value), Err(ValueError::TooLarge { bytes }));
    }

    #[test]
    fn a_reference_takes_no_more_bytes_than_its_number() {
        assert_eq!(encode_reference(7).as_ref(), [4, 7]);
        for bad in [&[4][..], &[4, 0], &[4, 0, 1], &[4, 1, 2, 3, 4, 5, 6, 7, 8, 9]] {
            assert!(decode_reference(bad).is_err(), "{bad:?}");
        }
        assert_eq!(decode_reference(b"{}"), Ok(None));
        assert_eq!(decode_value(&encode_reference(7)), Err(ValueError::Reference));
    }

    proptest! {
        #[test]
        fn references_survive_encoding(number in 1u64..) {
            prop_assert_eq!(decode_reference(&encode_reference(number)), Ok(Some(number)));
        }

        #[test]
        fn values_survive_encoding(object in proptest::collection::vec(any::<u8>(), 1..9000)) {
            let object = Bytes::from(object);
            prop_assert_eq!(decode_value(&ValueEncoder::new().encode(&object)), Ok(object));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = decode_value(&Bytes::from(bytes.clone()));
            let _ = decode_value(&Bytes::from([&[ZSTD], bytes.as_slice()].concat()));
        }
    }
}
