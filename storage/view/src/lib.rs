//! Materialized state: projections, the materializer, the pod status snapshot.
