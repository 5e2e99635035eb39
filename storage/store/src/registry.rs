//! The key registry: it assigns the first byte of keys to tables.
//!
//! A database is one flat key space. A table consists of the keys that begin with its byte. No byte
//! is ever reused: the byte of a retired table moves to [`RETIRED`] and stays there, so that no build
//! reads old rows as rows of another table.

/// A table, by the byte that begins each of its keys.
///
/// One registry serves every kind of database; each uses the tables it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum TableId {
    /// The kind of the database and its schema version. Every database has this row.
    Meta = 0x01,

    /// Per stream: the checkpoint of the state, and its hash.
    Checkpoints = 0x10,
    /// Per stream and entry key: the entry.
    Entries = 0x11,
    /// Pods as the pod worker sees them, derived from the entries.
    Pods = 0x12,
    /// The staged rows of a snapshot or correction that is not visible yet.
    Staging = 0x13,
    /// Statuses of the node's pods, as the pod worker reported them.
    PodStatuses = 0x15,

    /// Reports not yet acknowledged: the latest of each key.
    OutboxReports = 0x20,
    /// The order of the reports: report id to key.
    OutboxOrder = 0x21,
    /// The node's identity and boot.
    Identity = 0x22,
    /// The pod status snapshot that the cloud has acknowledged.
    AcknowledgedStatuses = 0x23,
    /// Per pod and claim: a token of a ServiceAccount.
    Tokens = 0x24,

    /// Per partition and offset: a record of the embedded log.
    LogRecords = 0x30,
    /// Per partition: what the embedded log knows of itself.
    LogPartitions = 0x31,
    /// Per partition and record key: the offset of its latest record, for compaction.
    LogKeys = 0x33,

    /// Per partition: the cursor up to which the log is folded.
    Cursors = 0x40,
    /// What a reader of the log must remember to accept the next record.
    Acceptance = 0x41,
    /// Per stream and seq: the entry key that was last changed there.
    HubChanges = 0x42,
    /// Per stream and seq: the latest events, unchanged.
    HubEvents = 0x43,
    /// Per stream: the state of the hub's history (holes, the end of its tail).
    HubStreams = 0x44,
    /// Per stream: the position up to which a reader of the log has accepted it.
    AcceptedStreams = 0x45,
    /// Per stream and entry key: the seq that last changed it, in `HubChanges`.
    HubKeys = 0x46,
    /// Per partition, epoch and number: a body of the log, to which entries refer.
    Bodies = 0x47,
    /// Per body: how many entries refer to it.
    BodyReferences = 0x48,
    /// Per pod, node and UID: a pod that left the node's stream.
    DepartedPods = 0x49,

    /// The cloud's picture of the nodes.
    NodePictures = 0x50,
    /// The cloud's picture of pod statuses, per node and pod.
    StatusPictures = 0x51,
    /// Per node: its progress, as the hubs report it.
    NodeProgress = 0x52,
    /// Of earlier versions: pods under deletion whose containers have all stopped, by any node's
    /// report.
    Terminations = 0x55,
    /// Keys whose last record in the log is older than the key's valid report.
    StaleReports = 0x56,
    /// The last claim of the log that this controller won.
    OwnClaim = 0x57,
    /// Per node and pod: the termination that the upstream log has.
    LoggedTerminations = 0x58,
    /// Per node and pod: pods under deletion whose containers have all stopped, as their nodes
    /// report.
    NodeTerminations = 0x59,
    /// Per Event: what its node reported of it.
    NodeEvents = 0x5a,
    /// Per node: the latest registration of its Node that the upstream log has.
    LoggedRegistrations = 0x5b,

    /// Objects that an earlier log had, and that the present log may still lack.
    InheritedEntries = 0x60,
    /// The highest writer epoch that this controller has read from the log.
    HighestEpoch = 0x61,
    /// Per session and number: a report of the edge, the base of later patches. Each session deletes
    /// its own rows.
    SessionReports = 0x62,
    /// Per node: the highest identity that the upstream log named.
    NodeIdentities = 0x63,
    /// Per partition of the upstream log: the cursor up to which the identities are folded.
    IdentityCursors = 0x64,
    /// Per node: the latest start of its edge during which a cluster had its Node, as this controller saw it.
    NodeRegistrations = 0x65,
    /// Per node: its last position that the upstream log had, without its streams.
    NodeContacts = 0x66,
    /// Nodes whose own reports do not add up.
    NodeDifferences = 0x67,
}

/// The end, exclusive, of the tables that a wipe of the fold deletes. Tables from this byte on
/// outlive the fold, as does [`TableId::Meta`].
pub const FOLD_TABLES_END: u8 = TableId::InheritedEntries.prefix();

/// The bytes of retired tables, reserved for ever.
pub const RETIRED: &[u8] = &[
    0x14, // StagingCommits
    0x32, // LogTimes
    0x53, // Published
    0x54, // RequestedInterest
];

impl TableId {
    /// Every table, in the order of their bytes.
    pub const ALL: &'static [Self] = &[
        Self::Meta,
        Self::Checkpoints,
        Self::Entries,
        Self::Pods,
        Self::Staging,
        Self::PodStatuses,
        Self::OutboxReports,
        Self::OutboxOrder,
        Self::Identity,
        Self::AcknowledgedStatuses,
        Self::Tokens,
        Self::LogRecords,
        Self::LogPartitions,
        Self::LogKeys,
        Self::Cursors,
        Self::Acceptance,
        Self::HubChanges,
        Self::HubEvents,
        Self::HubStreams,
        Self::AcceptedStreams,
        Self::HubKeys,
        Self::Bodies,
        Self::BodyReferences,
        Self::DepartedPods,
        Self::NodePictures,
        Self::StatusPictures,
        Self::NodeProgress,
        Self::Terminations,
        Self::StaleReports,
        Self::OwnClaim,
        Self::LoggedTerminations,
        Self::NodeTerminations,
        Self::NodeEvents,
        Self::LoggedRegistrations,
        Self::InheritedEntries,
        Self::HighestEpoch,
        Self::SessionReports,
        Self::NodeIdentities,
        Self::IdentityCursors,
        Self::NodeRegistrations,
        Self::NodeContacts,
        Self::NodeDifferences,
    ];

    /// Returns the first byte of each key of the table.
    pub const fn prefix(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_given_away_twice() {
        let bytes: Vec<u8> = TableId::ALL.iter().map(|id| id.prefix()).collect();
        assert!(bytes.is_sorted_by(|a, b| a < b), "listed once each, in order: {bytes:x?}");
        for byte in RETIRED {
            assert!(!bytes.contains(byte), "{byte:#x} is retired and must not be used again");
        }
        assert!(!bytes.contains(&u8::MAX), "every table needs a key behind its last");
    }

    #[test]
    fn the_bytes_on_disk_never_change() {
        // Fixed by the format. A new table adds a line, a retired one moves to `RETIRED`.
        let registry = TableId::ALL.iter().map(|id| format!("{:02x} {id:?}", id.prefix()));
        assert_eq!(
            registry.collect::<Vec<_>>(),
            [
                "01 Meta",
                "10 Checkpoints",
                "11 Entries",
                "12 Pods",
                "13 Staging",
                "15 PodStatuses",
                "20 OutboxReports",
                "21 OutboxOrder",
                "22 Identity",
                "23 AcknowledgedStatuses",
                "24 Tokens",
                "30 LogRecords",
                "31 LogPartitions",
                "33 LogKeys",
                "40 Cursors",
                "41 Acceptance",
                "42 HubChanges",
                "43 HubEvents",
                "44 HubStreams",
                "45 AcceptedStreams",
                "46 HubKeys",
                "47 Bodies",
                "48 BodyReferences",
                "49 DepartedPods",
                "50 NodePictures",
                "51 StatusPictures",
                "52 NodeProgress",
                "55 Terminations",
                "56 StaleReports",
                "57 OwnClaim",
                "58 LoggedTerminations",
                "59 NodeTerminations",
                "5a NodeEvents",
                "5b LoggedRegistrations",
                "60 InheritedEntries",
                "61 HighestEpoch",
                "62 SessionReports",
                "63 NodeIdentities",
                "64 IdentityCursors",
                "65 NodeRegistrations",
                "66 NodeContacts",
                "67 NodeDifferences",
            ]
        );
    }
}
