//! What Kafka does to the log while edges hang on it: a leader that dies, a tail that is lost, a
//! topic that is made again, records that are compacted away behind a sleeping edge's back, a full
//! disk. After each fault the fleet has converged: nothing is lost, doubled or at a wrong
//! node, no pod was touched, no process died by itself, and the fault was reported.

mod absence;
mod full_disk;
mod leader;
mod load;
mod poison;
mod recreated;
mod scene;
mod truncated;
