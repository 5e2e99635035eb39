//! Conversions between the wire and the replication protocol.
