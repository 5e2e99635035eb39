//! Invariant checkers, one per file, shared by every test harness.
//!
//! A checker takes plain values and returns a violation that names what broke, with both sides.
//! None of them knows a part of the system: a simulation, a session test and a test with real
//! processes ask the same question in the same words.
//!
//! | invariant | module |
//! |---|---|
//! | I1 what an edge shows is a prefix of its streams | [`prefix`] |
//! | I2 no acknowledged report is lost | [`acknowledged`] |
//! | I3 nothing is applied twice | [`once`] |
//! | I4 what a node says never goes back | [`monotonic`] |
//! | I5 a removed UID never comes back | [`removed`] |
//! | I6 a private stream reaches its node alone | [`isolation`] |
//! | I7 a gap means stop | [`gap`] |
//! | I8 acknowledged and acted on is durable | [`durable`] |
//! | I9 snapshot and tail make the full replay | [`snapshot`] |
//! | I10 when faults stop, everything converges | [`convergence`] |
//! | I11 a fenced writer's write is never visible | [`fencing`] |
//! | I12 memory, files and disk stay in their budgets | [`budget`] |
//! | I13 no input makes it panic | [`mod@panic`] |
//! | I14 an incomplete log never makes an edge delete | [`deletion`] |
//! | I15 a cluster shows what its nodes report, and nothing older for long | [`cluster`] |
//! | `acked <= durable <= applied <= received <= sent <= tail` | [`positions`] |
//! | for all of them: the state of a stream | [`state`] |
//! | what each stream should have because of a cluster | [`cluster_oracle`] |

pub mod acknowledged;
pub mod budget;
pub mod cluster;
pub mod cluster_oracle;
pub mod convergence;
pub mod deletion;
pub mod durable;
pub mod fencing;
pub mod gap;
pub mod isolation;
pub mod monotonic;
pub mod once;
pub mod panic;
pub mod positions;
pub mod prefix;
pub mod removed;
pub mod snapshot;
pub mod state;

pub use state::{Entry, State};
