//! The whole pod worker on a container runtime: a real containerd, CRI-O, and the twin with its faults.

mod bench;
mod calls;
mod cgroups;
mod classes;
mod collection;
mod cpus;
mod crio;
mod csi;
mod deletion;
mod devices;
mod ephemeral;
mod eviction;
#[allow(dead_code, reason = "the tests of the pod worker use all of it")]
#[path = "../../../../services/edged/tests/edged/fake_edge.rs"]
mod fake_edge;
#[allow(dead_code, reason = "the tests of device plugins use all of it")]
#[path = "../../../../services/devices/tests/plugins/fake_plugin.rs"]
mod fake_plugin;
mod faults;
mod life;
mod logs;
mod loss;
mod neighbours;
mod network;
mod pending_ends;
mod policy;
mod pulls;
mod reboot;
mod resize;
mod restarts;
mod strays;
mod subpaths;
mod upgrade;
