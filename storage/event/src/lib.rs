//! The vocabulary of Headwater: identifiers, positions, events, reports and the state hash.
//!
//! Every type is a value. This crate does no I/O, reads no clock, needs no async runtime and depends
//! on no other crate of Headwater. All other crates use these words in these senses.
//!
//! # Glossary
//!
//! The log:
//!
//! | word | meaning |
//! |---|---|
//! | log | all records of one direction, in one topic with a fixed number of partitions |
//! | record | key, value and header in the log; without a value it is a tombstone |
//! | offset | the position of a record in its partition ([`Offset`]); offsets have gaps |
//! | cursor | the position of a reader in one partition ([`Cursor`]) |
//! | log id | one life of a log ([`LogId`]); a re-created log has the next number |
//! | writer | the one process that appends events; its epoch ([`WriterEpoch`]) fences all earlier writers |
//! | claim | the record by which a process becomes the writer of the next epoch |
//! | heartbeat | the record by which a writer shows that it is alive |
//! | reconciled | the record of a writer, in each partition, that all differences to its sources are appended |
//! | catch-up target | the ends of the partitions that a reader must reach after its start |
//! | replay window | the time for which a superseded record stays readable |
//!
//! Downstream, from the cloud to the nodes:
//!
//! | word | meaning |
//! |---|---|
//! | stream | an ordered history ([`StreamId`]): `node/<name>` is private to a node, all nodes share `cluster` |
//! | event | a fact in a stream ([`Event`]): an entry was applied or removed, or the head was marked |
//! | seq | the position of an event in its stream ([`Seq`]), counted from 1 without a gap |
//! | entry | one object, or one reserved value, in the state of a stream ([`EntryKey`]) |
//! | state | all entries of a stream at one seq; the fold of its events up to that seq |
//! | state hash | a sum over the entries of a state ([`StateHash`]); equal states have equal hashes |
//! | checkpoint | the position of a stored state ([`Checkpoint`]), committed together with the state |
//! | replica | the states of an edge's streams, on its disk |
//! | catch up | to bring a replica from its position to the end: by tail, delta, snapshot or correction |
//! | tail | every event after a position; also the last seq of a stream |
//! | delta | the latest change of each key after a position |
//! | snapshot | the complete state |
//! | correction | what differs between the complete state and the digests of a replica |
//! | transfer | a delta, snapshot or correction that a hub sends in parts |
//! | advance | a step of a state to a later checkpoint, in one part or more |
//!
//! In a session with a hub, `acked <= durable <= applied <= received <= sent <= tail` holds for each
//! stream of a node.
//!
//! Upstream, from the nodes to the cloud:
//!
//! | word | meaning |
//! |---|---|
//! | report | a node's own data ([`Report`]): a pod status, its Node object, a message |
//! | outbox | the reports of an edge that the log has not acknowledged |
//! | report id | the position of a report among all reports of its node ([`ReportId`]) |
//! | incarnation | the issue number of a node's identity ([`Incarnation`]) |
//! | boot | one start of an edge ([`Boot`]) |
//! | progress | a node's connection and positions, as a hub reports them ([`NodeProgress`]) |
//! | registration | the latest start of an edge during which a cluster had its Node ([`EdgeStart`]) |
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`name`] | node names, validated once |
//! | [`key`] | keys of resources and of stream entries |
//! | [`stream`] | stream ids and their partition |
//! | [`position`] | seq, log id, writer epoch, checkpoint, offset, cursor |
//! | [`event`] | events, and the envelope with an event's position |
//! | [`body`] | objects that several events of a partition refer to |
//! | [`header`] | the binary header of a downstream record |
//! | [`hash`] | the state hash |
//! | [`summary`] | the comparison of two replicas by digests |
//! | [`advance`] | the rule by which the state of a stream accepts an advance |
//! | [`assignment`] | the streams of a node: the object of its `!streams` entry |
//! | [`report`] | reports and their order |
//! | [`upstream`] | reports as records of the upstream log |
//! | [`node_progress`] | the progress of a node, as a hub reports it |
//! | [`presence`] | which nodes are connected to a hub, beside the log |
//! | [`request`] | requests of a node to the cloud, and why one has no answer |
//! | [`record`] | the keys and reserved values of log records, for both topics |

pub mod advance;
pub mod assignment;
pub mod body;
pub mod event;
pub mod hash;
pub mod header;
pub mod key;
pub mod name;
pub mod node_progress;
pub mod position;
pub mod presence;
pub mod record;
pub mod report;
pub mod request;
pub mod stream;
pub mod summary;
pub mod upstream;

pub use advance::{AdvanceBase, AdvanceFault, check_advance};
pub use assignment::{Assignment, AssignmentError};
pub use body::{BodyAddress, BodyHeader, BodyId, SharedObject};
pub use event::{Applied, Change, Envelope, Event, Removed};
pub use hash::{HashKey, ObjectHash, StateHash};
pub use header::EventHeader;
pub use key::{EntryKey, KeyError, ResourceKey};
pub use name::{NameError, NodeName};
pub use node_progress::{NodeProgress, NodeStreamProgress};
pub use position::{
    Checkpoint, Cursor, LeaderEpoch, LogId, Offset, Partition, Seq, TopicId, WriterEpoch,
};
pub use presence::{ConnectedNode, DisconnectedNode, NodeState, PresenceUpdate};
pub use record::{RecordKey, ReportKey, WriterAddress};
pub use report::{
    Boot, EdgeStart, Identity, Incarnation, Report, ReportBody, ReportId, ReportKind,
};
pub use request::{AnswerBody, GetRule, NodeRequest, RequestError, RequestVerb};
pub use stream::StreamId;
pub use summary::{DigestKey, EntryDigest, RemovalRuns};
