//! Single behaviours of a session, one end at a time.

mod edge;
mod hub;
mod reports;
mod versions;

use bytes::Bytes;
use headwater_event::{
    Applied, Boot, Checkpoint, Identity, Incarnation, LogId, Seq, StateHash, StreamId, WriterEpoch,
};
use uuid::Uuid;

fn log_id() -> LogId {
    LogId { number: 1, uuid: Uuid::from_u128(1) }
}

fn at(seq: u64) -> Checkpoint {
    Checkpoint { log_id: log_id(), epoch: WriterEpoch(1), seq: Seq(seq) }
}

fn identity(number: u64) -> Identity {
    let node = "a".parse().expect("well-formed");
    Identity { node, incarnation: Incarnation(1), boot: Boot { number, nonce: number } }
}

fn private() -> StreamId {
    StreamId::node(&identity(1).node)
}

fn hash(of: u8) -> StateHash {
    StateHash::from_bytes(&[of; 32])
}

fn pod(name: &str, object: impl Into<Bytes>) -> Applied {
    Applied {
        key: format!("ns/pod/{name}").parse().expect("well-formed"),
        uid: format!("uid-{name}"),
        resource_version: String::new(),
        object: object.into(),
    }
}
