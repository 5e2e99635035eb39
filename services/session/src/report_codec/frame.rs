//! Bodies of reports as zstd frames, alone or as patches.

use bytes::Bytes;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, MAGICNUMBER, compress_bound, get_error_name};

/// Every frame begins with it, so it is not sent.
const MAGIC: [u8; 4] = MAGICNUMBER.to_le_bytes();

/// The zstd level. On a status of 1 KiB lower levels need a sixth more bytes, and higher levels save
/// none. It takes a tenth of a millisecond, at an edge that has a report to send.
const LEVEL: i32 = 9;

/// Compresses `body`, as a patch of `base` if there is one; `checked` adds zstd's own checksum.
/// `None` when the compressor refuses.
pub(super) fn pack(body: &[u8], base: Option<&[u8]>, checked: bool) -> Option<Bytes> {
    let mut frame = Vec::with_capacity(compress_bound(body.len()));
    let mut context = CCtx::try_create()?;
    context.set_parameter(CParameter::CompressionLevel(LEVEL)).ok()?;
    context.set_parameter(CParameter::ChecksumFlag(checked)).ok()?;
    // The decoder knows the upper bound.
    context.set_parameter(CParameter::ContentSizeFlag(false)).ok()?;
    if let Some(base) = base {
        context.ref_prefix(base).ok()?;
    }
    context.compress2(&mut frame, body).ok()?;
    frame.strip_prefix(&MAGIC).map(Bytes::copy_from_slice)
}

/// Decompresses a frame of at most `max` bytes.
///
/// # Errors
/// The reason, for people.
pub(super) fn unpack(frame: &[u8], base: Option<&[u8]>, max: usize) -> Result<Bytes, String> {
    let frame = [&MAGIC, frame].concat();
    let mut body = Vec::with_capacity(max);
    let mut context = DCtx::try_create().ok_or("no memory")?;
    if let Some(base) = base {
        context.ref_prefix(base).map_err(get_error_name)?;
    }
    let unpacked = context.decompress(&mut body, &frame).map_err(get_error_name);
    unpacked.map_err(|error| format!("{error}; at most {max} bytes are taken"))?;
    // Copied, so that a base takes no more memory than it needs.
    Ok(Bytes::copy_from_slice(&body))
}
