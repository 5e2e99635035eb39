//! The replication protocol as a pure state machine, both ends.
