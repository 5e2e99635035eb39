//! Servers on loopback as processes that end with their starter: what Kafka and Kubernetes have in
//! common when tests and development run them.
//!
//! | module | what it owns |
//! |---|---|
//! | `daemon` | a server on its data: started, ready, frozen, killed, started again |
//! | `data_folder` | the folder of its data, kept or not |
//! | `process` | a process that ends with the process that started it |
//! | `output` | the end of a long output |
//! | `time_limit` | commands and lines that are waited for no longer than a time limit |
//! | `ports` | free ports of loopback |
//! | `cache` | the folder that keeps what every clone and every process shares |
//! | `programs` | programs that are installed on the machine |
//! | `go_programs` | programs that Go builds from modules, in the cache |
//! | `go_build` | their build |
//! | `foreground` | a program that runs until it is stopped |
//! | `error` | the failures |

mod cache;
mod daemon;
mod data_folder;
mod error;
mod foreground;
mod go_build;
mod go_programs;
mod output;
mod ports;
mod process;
mod programs;
mod time_limit;

pub use cache::{CacheFolder, CacheLock};
pub use daemon::{Daemon, Readiness};
pub use data_folder::DataFolder;
pub use error::DaemonError;
pub use foreground::{StopSignals, exit_code};
pub use go_programs::{GoPrograms, required_version};
pub use output::tail;
pub use ports::free_ports;
pub use process::{Process, run};
pub use programs::{find_program, search_path};
pub use time_limit::{OutputLines, end_within, output_within};
