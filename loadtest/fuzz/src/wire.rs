//! Messages of the wire. The generated decoders, and our conversions behind them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use headwater_proto::wire::{EdgeMessageDecoder, EdgeMessageEncoder};
use headwater_proto::{local, operator, replication};
use headwater_session::message::{EdgeMessage, HubMessage};
use prost::Message;

/// What an edge says: as a first message, and as a session of messages, each after its length.
pub fn edge(bytes: &[u8]) {
    converts::<replication::EdgeMessage, EdgeMessage>(bytes);
    let (mut rest, mut encoder) = (bytes, EdgeMessageEncoder::default());
    let (mut decoder, mut kept) = (EdgeMessageDecoder::default(), BTreeMap::new());
    let (mut another, mut kept_there) = (EdgeMessageDecoder::default(), BTreeMap::new());
    while let Ok(message) = replication::EdgeMessage::decode_length_delimited(&mut rest) {
        let Ok(decoded) = decoder.decode(message, &mut kept) else { return };
        let encoded = encoder.encode(decoded.clone());
        let understood = another.decode(encoded, &mut kept_there);
        assert_eq!(understood.expect("what was written is read"), decoded);
    }
}

/// What a hub says.
pub fn hub(bytes: &[u8]) {
    converts::<replication::HubMessage, HubMessage>(bytes);
}

/// What is read is written as what is read as the same.
fn converts<W, M>(bytes: &[u8])
where
    W: Message + Default + From<M>,
    M: TryFrom<W> + Clone + PartialEq + Debug,
    M::Error: Debug,
{
    let Ok(wire) = W::decode(bytes) else { return };
    let Ok(message) = M::try_from(wire) else { return };
    let written = W::from(message.clone()).encode_to_vec();
    let wire = W::decode(written.as_slice()).expect("what was encoded is decoded");
    assert_eq!(M::try_from(wire).expect("what was written is read"), message);
}

/// What is asked of, and answered by, the local API. The first byte chooses the message.
pub fn local(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 5 {
        0 => decodes::<local::Operation>(rest),
        1 => decodes::<local::OperationResult>(rest),
        2 => decodes::<local::WatchRequest>(rest),
        3 => decodes::<local::WatchEvent>(rest),
        _ => decodes::<local::EdgeStatus>(rest),
    }
}

/// What is asked of, and answered by, the operator API. The first byte chooses the message.
pub fn operator(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 7 {
        0 => decodes::<operator::GetRequest>(rest),
        1 => decodes::<operator::StateRequest>(rest),
        2 => decodes::<operator::HistoryRequest>(rest),
        3 => decodes::<operator::HistoryEvent>(rest),
        4 => decodes::<operator::StatusResponse>(rest),
        5 => decodes::<operator::VerifyResponse>(rest),
        _ => decodes::<operator::LogsRequest>(rest),
    }
}

fn decodes<W: Message + Default>(bytes: &[u8]) {
    let Ok(message) = W::decode(bytes) else { return };
    // Not compared: a NaN equals nothing, itself included.
    assert!(W::decode(message.encode_to_vec().as_slice()).is_ok());
}
