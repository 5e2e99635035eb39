//! The figures of a release, each beside the limit that was measured in the same run.
//!
//! ```sh
//! cargo build -p headwater -p headwater-e2e --bins --tests
//! cargo test -p headwater-e2e --test figures -- --ignored --nocapture --test-threads=1
//! ```
//!
//! They are measurements and no tests: nothing fails because a machine is slow, only because an
//! answer is wrong. A name behind `--ignored` (`apply`, `propagation`, `memory`, `restart`,
//! `cold_start`) measures one of them.

mod apply;
mod canned;
mod cold_start;
mod memory;
mod pods;
mod propagation;
mod restart;
mod table;
