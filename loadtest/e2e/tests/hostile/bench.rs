//! A real `up` with a pod that goes on, its addresses, and what must be true after an attack.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater_e2e::memory::peak_bytes;
use headwater_e2e::running::{Running, processes_in};
use serde_json::Value;

/// Memory that the whole process ever had, two nodes and the cloud, whatever is sent to it.
const PEAK_BYTES_MAX: u64 = 512 << 20;

/// Two nodes, and on the first a pod that names the ConfigMap `words`.
pub(crate) struct Bench {
    pub(crate) running: Running,
    pub(crate) manifests: PathBuf,
    edits: Cell<u32>,
    _folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manifests = folder.path().join("manifests");
        fs::create_dir_all(&manifests).expect("a folder");
        fs::write(manifests.join("config.yaml"), config(0)).expect("written");
        fs::write(manifests.join("pod.yaml"), POD).expect("written");
        let running = Running::start(&[manifests.to_str().expect("UTF-8")]);
        running.wait_for_pods(1, |status| status == "Running");
        running.wait_until_in_step();
        Self { running, manifests, edits: Cell::new(0), _folder: folder }
    }

    /// Writes a manifest of one object.
    pub(crate) fn write(&self, name: &str, object: &Value) {
        let path = self.manifests.join(format!("{name}.json"));
        fs::write(path, object.to_string()).expect("written");
    }

    /// A change made now arrives at its node; nothing has panicked, and memory is in bounds.
    pub(crate) fn goes_on(&self, after: &str) {
        let edit = self.edits.get() + 1;
        self.edits.set(edit);
        fs::write(self.manifests.join("config.yaml"), config(edit)).expect("edited");
        self.running.wait_for(&format!("a change after {after}"), |running| {
            let held = one(running, &["get", "configmap", "words", "--node", "node-1"])?;
            (held["data"]["word"] == edit.to_string().as_str()).then_some(())
        });
        let output = self.running.output();
        assert!(!output.contains("panicked"), "after {after}:\n{output}");
        let process = u32::try_from(self.process()).expect("a process id");
        let peak = peak_bytes(process).expect("it lives");
        assert!(peak <= PEAK_BYTES_MAX, "{peak} bytes were taken after {after}");
    }

    /// Where the hub listens: of the process's listening sockets the one that talks HTTP/2 at
    /// once and is no other's. The attacks use all of them.
    pub(crate) fn listens(&self) -> Vec<SocketAddr> {
        let inodes = sockets_of(self.process());
        let table = fs::read_to_string("/proc/net/tcp").expect("the table of sockets");
        let listening = table.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (address, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
            if *state != "0A" || !inodes.contains(&(*inode).to_owned()) {
                return None;
            }
            let port = u16::from_str_radix(address.rsplit(':').next()?, 16).ok()?;
            Some(SocketAddr::from(([127, 0, 0, 1], port)))
        });
        let found: Vec<SocketAddr> = listening.collect();
        assert!(!found.is_empty(), "it listens nowhere");
        found
    }

    /// The unix sockets of the local API and of the operator.
    pub(crate) fn sockets(&self) -> [PathBuf; 2] {
        let data = self.running.data();
        [data.join("nodes/node-1/edge.sock"), data.join("headwater.sock")]
    }

    /// The process that is `up`: the one whose command says so.
    fn process(&self) -> i32 {
        let is_up = |id: &i32| {
            let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            command.split(|byte| *byte == 0).nth(1) == Some(b"up")
        };
        let all = processes_in(self.running.folder()).into_iter().map(nix::unistd::Pid::as_raw);
        all.into_iter().find(is_up).expect("it lives")
    }
}

/// The object that is asked for by its name.
pub(crate) fn one(running: &Running, args: &[&str]) -> Option<Value> {
    running.json(&[args, &["-o", "json"]].concat())
}

fn sockets_of(process: i32) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it lives").flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    links.filter_map(|link| inode(&link)).collect()
}

fn inode(link: &Path) -> Option<String> {
    Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
}

fn config(edit: u32) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: words}}\ndata: {{word: \"{edit}\"}}\n"
    )
}

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: good}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  volumes: [{name: words, configMap: {name: words}}]
  containers: [{name: c, command: [sleep, '100000']}]
";
