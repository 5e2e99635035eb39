//! The command line: arguments, the commands that ask a running process, tables, completion.
//!
//! | module | what it owns |
//! |---|---|
//! | [`args`] | the arguments of every command, as clap parses them |
//! | `commands` | the commands that ask a running process, and `ca` |
//! | `object_selection`, `selector`, `path` | which objects a command names |
//! | [`table`], `render` | tables and values as text |
//! | [`completion`] | shell completion |
//! | `candidates` | what a completion offers |
//! | [`exit`] | errors on stderr, exit statuses |
//!
//! A command talks to a running process through the operator API alone. The binary runs the
//! commands that start a service or open a database or Kafka.

#[expect(missing_docs, reason = "clap shows doc comments of arguments as help")]
pub mod args;
mod candidates;
mod commands;
pub mod completion;
pub mod exit;
mod object_selection;
mod path;
mod render;
mod selector;
pub mod table;

pub use self::commands::run;
