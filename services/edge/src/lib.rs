//! The edge node: replication client, materialized view, outbox, MetaSync, local API.
