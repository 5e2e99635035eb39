//! The containers that run below a data directory, as `/proc` shows them, not as Headwater reports
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A container's process tree: the shim, its parent, and the container's own process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tree {
    /// The shim, and when it was started (clock ticks since boot).
    pub shim: (i32, u64),
    /// The container's first process, likewise; `None`: it is being started, or has just ended.
    pub process: Option<(i32, u64)>,
}

/// Which container: node, pod UID and container name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Container {
    /// The node.
    pub node: String,
    /// UID of its pod.
    pub uid: String,
    /// Its name in the pod.
    pub name: String,
}

/// The facts of a process that tests need.
struct Process {
    id: i32,
    parent: i32,
    started: u64,
    command: Vec<String>,
}

/// Every container that runs below `data`, with its trees: one, unless something is wrong.
pub fn containers(data: &Path) -> BTreeMap<Container, Vec<Tree>> {
    let processes: Vec<Process> = processes().collect();
    let mut found: BTreeMap<Container, Vec<Tree>> = BTreeMap::new();
    for shim in &processes {
        let Some(container) = container_of(&shim.command, data) else { continue };
        let process = processes.iter().find(|process| {
            // Until it has called exec, the child looks like its parent.
            process.parent == shim.id && process.command != shim.command
        });
        let process = process.map(|process| (process.id, process.started));
        let tree = Tree { shim: (shim.id, shim.started), process };
        // A fork of the shim on its way to exec is not another shim.
        if !processes.iter().any(|p| p.id == shim.parent && p.command == shim.command) {
            found.entry(container).or_default().push(tree);
        }
    }
    found
}

/// Kills the shims and containers below `data`, as a machine that goes down does.
pub fn kill_all(data: &Path) {
    for trees in containers(data).into_values() {
        for tree in trees {
            for (id, _) in [Some(tree.shim), tree.process].into_iter().flatten() {
                // It may have ended meanwhile.
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

/// Reads `.../nodes/NODE/edged/pods/UID/containers/NAME/ATTEMPT` from a shim's command line.
fn container_of(command: &[String], data: &Path) -> Option<Container> {
    let [_, shim, .., run] = command else { return None };
    let run = (shim == "shim").then(|| Path::new(run).strip_prefix(data).ok()).flatten()?;
    let parts: Vec<&str> = run.iter().filter_map(|part| part.to_str()).collect();
    match parts.as_slice() {
        ["nodes", node, "edged", "pods", uid, "containers", name, _] => Some(Container {
            node: (*node).to_owned(),
            uid: (*uid).to_owned(),
            name: (*name).to_owned(),
        }),
        _ => None,
    }
}

fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The program's name is in brackets and may have any character.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if *fields.first()? == "Z" {
            return None;
        }
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let command = command.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        Some(Process {
            id,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            command: command.map(|part| String::from_utf8_lossy(part).into_owned()).collect(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_names_the_owner_of_its_container() {
        let line = |run: &str| ["headwater", "shim", run].map(str::to_owned).to_vec();
        let found =
            container_of(&line("/d/nodes/gw/edged/pods/u1/containers/web/2"), Path::new("/d"));
        let found = found.expect("a container");
        assert_eq!((found.node.as_str(), found.uid.as_str()), ("gw", "u1"));
        assert_eq!(found.name, "web");
        assert!(container_of(&line("/e/nodes/gw/edged"), Path::new("/d")).is_none());
        assert!(containers(Path::new("/no/such")).is_empty());
    }
}
