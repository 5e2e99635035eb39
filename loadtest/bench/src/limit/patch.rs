//! The same bytes through a compressor: the least that has to be sent.

use std::io::Write as _;

use headwater_loadtest::failure::{Attempt, Failure};
use zstd::stream::Encoder;

/// As `zstd -3` does.
const LEVEL: i32 = 3;

/// The bytes that turn `before` into `after`, as `zstd --patch-from` makes them.
///
/// # Errors
/// When the compressor refuses.
pub(crate) fn bytes(before: &[u8], after: &[u8]) -> Result<usize, Failure> {
    let encoder = Encoder::with_ref_prefix(Vec::new(), LEVEL, before);
    end(encoder.tried("making a compressor")?, &[after])
}

/// The bytes of all `objects` in one frame, without a base.
///
/// # Errors
/// When the compressor refuses.
pub(crate) fn frame_bytes(objects: &[&[u8]]) -> Result<usize, Failure> {
    end(Encoder::new(Vec::new(), LEVEL).tried("making a compressor")?, objects)
}

fn end(mut encoder: Encoder<'_, Vec<u8>>, objects: &[&[u8]]) -> Result<usize, Failure> {
    encoder.include_checksum(false).tried("setting up a compressor")?;
    for object in objects {
        encoder.write_all(object).tried("compressing")?;
    }
    Ok(encoder.finish().tried("compressing")?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_of_the_former_version_needs_little() {
        let pods = crate::pods::NodePods::new("gw-1".parse().expect("a name"), 2 << 10);
        let (before, after) = (pods.object(3, 41), pods.object(3, 42));
        let patch = bytes(&before, &after).expect("compresses");
        let whole = frame_bytes(&[&after]).expect("compresses");
        assert!(patch < 60 && patch * 5 < whole, "{patch} of {whole}");
    }
}
