//! Whatever anybody sends or writes: the process lives, its memory stays in bounds, what is wrong
//! is named, and everything else goes on.

#[path = "hostile/bench.rs"]
mod bench;
#[path = "hostile/folder.rs"]
mod folder;
#[path = "hostile/frames.rs"]
mod frames;
#[path = "hostile/messages.rs"]
mod messages;
#[path = "hostile/namespace.rs"]
mod namespace;
#[path = "hostile/objects.rs"]
mod objects;
#[path = "hostile/peers.rs"]
mod peers;
#[path = "hostile/pods.rs"]
mod pods;
#[path = "hostile/questions.rs"]
mod questions;
#[path = "hostile/settings.rs"]
mod settings;
