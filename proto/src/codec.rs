//! Protobuf over gRPC with small buffers. A hub has thousands of streams with little traffic, and
//! tonic's default buffers take 8 KiB in each direction.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

use crate::replication::{EdgeMessage, HubMessage};
use crate::wire::HubFrame;

/// Bytes of an idle buffer; it grows for a larger message. A heartbeat, an acknowledgement and most
/// patches fit.
const BUFFER_BYTES: usize = 512;

/// Encoded bytes at which the encoder yields to the transport: tonic's own default.
const YIELD_BYTES: usize = 32 << 10;

/// The codec of all services.
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

/// The codec of a hub's sessions. A push that many sessions send is encoded once.
#[derive(Clone, Copy, Debug, Default)]
pub struct HubCodec;

/// Encodes the messages of a hub, or copies those that are encoded.
#[derive(Clone, Copy, Debug)]
pub struct HubFrameEncoder;

impl Codec for HubCodec {
    type Encode = HubFrame;
    type Decode = EdgeMessage;
    type Encoder = HubFrameEncoder;
    type Decoder = <LeanCodec<HubMessage, EdgeMessage> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        HubFrameEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        LeanCodec::<HubMessage, EdgeMessage>::default().decoder()
    }
}

impl Encoder for HubFrameEncoder {
    type Item = HubFrame;
    type Error = Status;

    fn encode(&mut self, frame: HubFrame, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(frame.encoded_len());
        frame.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}
