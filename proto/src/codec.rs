//! Protobuf over gRPC with small buffers. A hub has thousands of streams with little traffic, and
//! tonic's default buffers take 8 KiB in each direction.
//!
//! A hub frames the messages of its sessions itself ([`append_message`]): tonic's encoder keeps a buffer
//! of its largest message for as long as the call lasts, and a push that many sessions send is encoded
//! once.

use std::marker::PhantomData;

use bytes::BufMut;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

use crate::wire::HubFrame;

/// Bytes of an idle buffer; it grows for a larger message. A heartbeat, an acknowledgement and most
/// patches fit.
const BUFFER_BYTES: usize = 512;

/// Encoded bytes at which an encoder yields to the transport: tonic's own default.
pub const YIELD_BYTES: usize = 32 << 10;

/// The bytes of gRPC before each message: whether it is compressed, and its length.
pub const HEADER_BYTES: usize = 5;

/// The first of them.
pub const NOT_COMPRESSED: u8 = 0;

/// The codec of all services, but for the sessions of a hub.
#[derive(Clone, Copy, Debug)]
pub struct LeanCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for LeanCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for LeanCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }
}

/// Appends a message of a hub to `buffer` as gRPC carries it: whether it is compressed, its length, its
/// bytes. An empty buffer grows to exactly these bytes.
///
/// # Errors
/// `out of range` for a message of more than `bytes_max`. `buffer` is then as before.
pub fn append_message(
    buffer: &mut Vec<u8>,
    frame: &HubFrame,
    bytes_max: usize,
) -> Result<(), Status> {
    let bytes = frame.encoded_len();
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= bytes_max);
    let length = length.ok_or_else(|| {
        Status::out_of_range(format!(
            "a message has {bytes} bytes, at most {bytes_max} are allowed"
        ))
    })?;
    buffer.reserve(HEADER_BYTES + bytes);
    buffer.put_u8(NOT_COMPRESSED);
    buffer.put_u32(length);
    frame.encode(buffer).map_err(|error| Status::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tonic::Code;

    use super::*;

    #[test]
    fn a_frame_has_a_header_and_takes_no_more_room_than_it_needs() {
        let mut buffer = Vec::new();
        let frame = HubFrame::Encoded(Bytes::from(vec![7; 1_000]));
        append_message(&mut buffer, &frame, 1_000).expect("within the bound");
        assert_eq!(buffer[..HEADER_BYTES], [0, 0, 0, 3, 232]);
        assert_eq!(buffer[HEADER_BYTES..], [7; 1_000]);
        assert_eq!(buffer.capacity(), buffer.len());
    }

    #[test]
    fn a_message_above_the_bound_leaves_those_before_it_as_they_are() {
        let mut buffer = Vec::new();
        let frame = |bytes| HubFrame::Encoded(Bytes::from(vec![7; bytes]));
        append_message(&mut buffer, &frame(10), 10).expect("within the bound");
        let before = buffer.clone();
        let refused = append_message(&mut buffer, &frame(11), 10).expect_err("above the bound");
        assert_eq!(refused.code(), Code::OutOfRange);
        assert_eq!(buffer, before);
    }
}
