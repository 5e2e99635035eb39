//! What Kafka does to the log while edges hang on it: a leader that dies, a tail that is lost, a
//! topic that is made again, records that are compacted away behind a sleeping edge's back, a full
//! disk. After each everything has converged, nothing is lost, doubled or where it does not
//! belong, no pod noticed, no process died that nobody killed, and it was said.

mod absence;
mod full_disk;
mod leader;
mod load;
mod poison;
mod recreated;
mod scene;
mod truncated;
