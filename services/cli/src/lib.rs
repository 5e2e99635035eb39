//! The command line: arguments, the client commands, tables, completion.
//!
//! | module | what it owns |
//! |---|---|
//! | [`args`] | the arguments of every command, as clap parses them |
//! | `commands` | the client commands of a running process, and `ca` |
//! | `object_selection`, `selector`, `path` | the objects that a command selects |
//! | `comma_list` | lists with commas |
//! | `moment` | the moment as of which objects are shown |
//! | [`table`], `render` | tables and values as text |
//! | `template`, `custom_columns` | output forms that the user writes |
//! | [`completion`] | shell completion |
//! | `candidates` | what a completion offers |
//! | [`exit`] | errors on stderr, exit statuses |
//!
//! A client command uses a running process through the operator API only. The binary runs the
//! commands that start a service or open a database or Kafka.

#[expect(missing_docs, reason = "clap shows doc comments of arguments as help")]
pub mod args;
mod candidates;
mod comma_list;
mod commands;
pub mod completion;
mod custom_columns;
pub mod exit;
mod moment;
mod object_selection;
mod path;
mod render;
mod selector;
pub mod table;
mod template;

pub use self::commands::run;
