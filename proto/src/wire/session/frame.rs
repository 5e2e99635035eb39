//! Bodies of reports as zstd frames, alone or as patches.

use bytes::Bytes;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, MAGICNUMBER, compress_bound, get_error_name, get_frame_content_size,
};

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
    if let Some(base) = base {
        with.ref_prefix(base).ok()?;
    }
    with.compress2(&mut frame, body).ok()?;
    frame.strip_prefix(&MAGIC).map(Bytes::copy_from_slice)
}

/// The body in a frame, of at most `max` bytes, or what is wrong with it. Takes no more memory
/// than the body.
pub(super) fn unpack(frame: &[u8], base: Option<&[u8]>, max: usize) -> Result<Bytes, String> {
    let frame = [&MAGIC, frame].concat();
    let size = get_frame_content_size(&frame)
        .map_err(|_| "it is no zstd frame")?
        .ok_or("it does not name its content size")?;
    let size = usize::try_from(size)
        .ok()
        .filter(|size| *size <= max)
        .ok_or_else(|| format!("it names {size} bytes, at most {max} are taken"))?;
    let mut body = Vec::with_capacity(size);
    let mut with = DCtx::try_create().ok_or("no memory")?;
    if let Some(base) = base {
        with.ref_prefix(base).map_err(get_error_name)?;
    }
    let found = with.decompress(&mut body, &frame).map_err(get_error_name)?;
    if found == size { Ok(body.into()) } else { Err("it holds less than it names".to_owned()) }
}
