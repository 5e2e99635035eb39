//! The pod worker against a local API of its own on a real unix socket, with real processes.

mod autonomy;
mod bench;
mod claims;
mod collection;
mod conformance;
mod content;
mod cpus;
mod deletion;
mod eviction;
mod fake_edge;
mod fields;
mod health;
mod isolation;
mod life;
mod mounts;
mod node;
mod resize;
mod restarts;
mod runtime_change;
mod sandboxes;
mod shim;
mod static_pods;
mod tokens;
mod view;
