//! The load-test harness: scenarios as data, open-loop load through the controller's objects
//! socket, edges real or light, and figures that are only what was measured.
//!
//! | module | what it owns |
//! |---|---|
//! | [`scenario`] | what a run does, as data |
//! | [`object`], [`inventory`], [`schedule`] | the objects, their bytes and lines; when what changes (pure) |
//! | [`watching`] | what becomes visible at an edge, and its receivers |
//! | [`generator`], [`pacer`] | sends every change at its moment, in a real-time thread |
//! | [`sightings`] | which edge saw which change, and how late |
//! | [`latency`] | histograms, and when a quantile may be spoken of |
//! | [`target`], [`deployment`], [`stopped`] | the Headwater under load: started on loopback, or elsewhere; what it leaves behind |
//! | [`testbed`] | a target with its edges, on which one load runs after the other |
//! | `edges`, `hops` | the edges of a run; the slow links before the first of them |
//! | `echo`, `picture` | the statuses of light edges, and their return to the cloud |
//! | [`socket`], [`metrics`] | requests to a part: its operator API and its metrics |
//! | `lock` | a lock that ignores poisoning |
//! | [`correctness`] | whether a run was right, from what is on disk |
//! | [`disks`] | the databases that a node leaves behind |
//! | [`processes`], [`kernel`], [`machine`] | what it cost, and where |
//! | [`run`], [`record`] | one run, and its record |
//! | `tables`, [`report`] | what a run says, as tables; and as one HTML file |
//! | [`series`] | runs that differ in one key, and how costs grow with it |
//! | [`compare`] | two runs, and when not to conclude |
//! | [`cli`] | the command line |
//! | [`failure`] | why something could not be run |
//! | [`light`] | edges over databases in memory, thousands in one process |

pub mod cli;
pub mod compare;
pub mod correctness;
pub mod deployment;
pub mod disks;
mod echo;
mod edges;
pub mod failure;
pub mod generator;
mod hops;
pub mod inventory;
pub mod kernel;
pub mod latency;
pub mod light;
mod lock;
pub mod machine;
pub mod metrics;
pub mod object;
pub mod pacer;
pub mod picture;
pub mod processes;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
pub mod schedule;
pub mod series;
pub mod sightings;
pub mod socket;
pub mod stopped;
mod tables;
pub mod target;
pub mod testbed;
pub mod watching;
