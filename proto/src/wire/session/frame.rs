//! Bodies of reports as zstd frames, alone or as patches.

use bytes::Bytes;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, MAGICNUMBER, compress_bound, get_error_name};

/// Every frame begins with it, so it is not said.
const MAGIC: [u8; 4] = MAGICNUMBER.to_le_bytes();

/// The zstd level: on a status of 1 KiB the ones below it need a sixth more bytes, the ones above
/// it no fewer. It takes a tenth of a millisecond, at an edge that has a report to say.
const LEVEL: i32 = 9;

/// The frame of `body`, a patch of `base` where there is one; `checked` adds zstd's own checksum.
/// `None` when the compressor refuses.
pub(super) fn pack(body: &[u8], base: Option<&[u8]>, checked: bool) -> Option<Bytes> {
    let mut frame = Vec::with_capacity(compress_bound(body.len()));
    let mut with = CCtx::try_create()?;
    with.set_parameter(CParameter::CompressionLevel(LEVEL)).ok()?;
    with.set_parameter(CParameter::ChecksumFlag(checked)).ok()?;
    // The other end knows the most that it may be.
    with.set_parameter(CParameter::ContentSizeFlag(false)).ok()?;
    if let Some(base) = base {
        with.ref_prefix(base).ok()?;
    }
    with.compress2(&mut frame, body).ok()?;
    frame.strip_prefix(&MAGIC).map(Bytes::copy_from_slice)
}

/// The body in a frame, of at most `max` bytes, or what is wrong with it.
pub(super) fn unpack(frame: &[u8], base: Option<&[u8]>, max: usize) -> Result<Bytes, String> {
    let frame = [&MAGIC, frame].concat();
    let mut body = Vec::with_capacity(max);
    let mut with = DCtx::try_create().ok_or("no memory")?;
    if let Some(base) = base {
        with.ref_prefix(base).map_err(get_error_name)?;
    }
    let unpacked = with.decompress(&mut body, &frame).map_err(get_error_name);
    unpacked.map_err(|error| format!("{error}; at most {max} bytes are taken"))?;
    // What is kept takes no more room than it needs.
    Ok(Bytes::copy_from_slice(&body))
}
