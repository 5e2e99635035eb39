//! A source that never rests: a manifest folder that is edited and an objects socket that is
//! spoken to, by a thread of their own, whether or not anybody listens just now.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use headwater_e2e::chance::Chance;
use serde_json::{Value, json};

/// The nodes.
pub(crate) const NODES: [&str; 2] = ["node-1", "node-2"];

/// How the names of what is never touched begin.
pub(crate) const ANCHORS: &str = "anchor";

/// The most of each kind of thing that comes and goes.
const BRIEF_MAX: u64 = 4;
const CREW_MAX: u64 = 4;

/// What only the stream of `node` holds.
pub(crate) fn marker(node: &str) -> String {
    format!("for the eyes of {node}")
}

/// See the module.
pub(crate) struct Restless {
    world: Option<World>,
    thread: Option<JoinHandle<World>>,
    stop: Arc<AtomicBool>,
}

/// What the source says just now.
struct World {
    chance: Chance,
    manifests: PathBuf,
    beside: PathBuf,
    socket: PathBuf,
    word: u64,
    crew: u64,
    /// The node and the command of the pod that is replaced.
    swap: (usize, u64),
    brief: BTreeSet<u64>,
    /// What was said over the socket: each word, and whether the pod is there.
    wire: (u64, bool),
}

impl Restless {
    /// A source in `folder`.
    pub(crate) fn new(folder: &Path, seed: u64) -> Self {
        let mut world = World {
            chance: Chance::of(seed ^ 1),
            manifests: folder.join("manifests"),
            beside: folder.join("beside"),
            socket: folder.join("objects.sock"),
            word: 0,
            crew: 2,
            swap: (0, 0),
            brief: BTreeSet::new(),
            wire: (0, false),
        };
        world.write_all();
        Self { world: Some(world), thread: None, stop: Arc::default() }
    }

    /// How `up` is to be started.
    pub(crate) fn args(&self) -> Vec<String> {
        let world = self.world.as_ref().expect("at rest");
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let (manifests, socket) = (text(&world.manifests), text(&world.socket));
        let flags = ["--objects", &socket, "--sync-interval", "1s"].map(str::to_owned);
        [manifests].into_iter().chain(flags).collect()
    }

    /// Begins to change.
    pub(crate) fn begin(&mut self) {
        let (mut world, stop) = (self.world.take().expect("at rest"), self.stop.clone());
        self.thread = Some(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                world.step();
                let pace = world.chance.below(60);
                thread::sleep(Duration::from_millis(pace));
            }
            world
        }));
    }

    /// Rests; what was said last is said once more, to whoever listens now.
    pub(crate) fn settle(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("restless");
        let mut world = thread.join().expect("it never fails");
        world.write_all();
        let deadline = std::time::Instant::now() + headwater_e2e::running::WAIT;
        while !world.say_wire() {
            assert!(std::time::Instant::now() < deadline, "the socket hears nothing");
            thread::sleep(Duration::from_millis(20));
        }
        self.world = Some(world);
    }

    /// The pods that are to be, but for those of the crew, whose names are made.
    pub(crate) fn pods(&self) -> Vec<String> {
        let world = self.world.as_ref().expect("at rest");
        let each = ["anchor", "blink", "restless"];
        let mut pods: Vec<String> = each
            .iter()
            .flat_map(|name| NODES.map(|node| format!("{name}-{node}")))
            .chain(world.brief.iter().map(|n| format!("brief-{n}")))
            .chain(world.wire.1.then(|| "wired".to_owned()))
            .chain(["swap".to_owned()])
            .chain((0..world.crew).map(|n| format!("crew-{n}")))
            .collect();
        pods.sort_unstable();
        pods
    }

    /// Whether these sorted names are those of the pods that are to be.
    pub(crate) fn names_are(&self, names: &[&str]) -> bool {
        let is_crew = |name: &str| name.starts_with("crew-");
        let wanted = self.pods();
        let (crew, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|n| is_crew(n));
        let (wanted_crew, wanted): (Vec<&str>, Vec<&str>) =
            wanted.iter().map(String::as_str).partition(|name| is_crew(name));
        crew.len() == wanted_crew.len() && others == wanted
    }

    /// The last word of the ConfigMap that every node has.
    pub(crate) fn word(&self) -> String {
        self.world.as_ref().expect("at rest").word.to_string()
    }
}

impl Drop for Restless {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl World {
    /// One change.
    fn step(&mut self) {
        match self.chance.below(12) {
            0..=3 => {
                self.word += 1;
                self.write_words();
            }
            4 | 5 => {
                self.crew = 1 + self.chance.below(CREW_MAX);
                self.write_crew();
            }
            6 => {
                self.swap = (1 - self.swap.0, self.swap.1 + 1);
                self.write_swap();
            }
            7 | 8 => self.brief(),
            9 | 10 => {
                self.wire.0 += 1;
                self.say_wire();
            }
            _ => {
                self.wire.1 = !self.wire.1;
                self.say_wire();
            }
        }
    }

    fn write_all(&mut self) {
        fs::create_dir_all(&self.manifests).expect("a folder");
        for node in NODES {
            let name = |kind: &str| format!("{kind}-{node}");
            let words = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name("anchor-words")},
                "data": {"word": marker(node)},
            });
            let mut anchor = pod(&name(ANCHORS), node, ANCHORS, &["sleep", "86400"]);
            anchor["spec"]["volumes"] =
                json!([{"name": "words", "configMap": {"name": name("anchor-words")}}]);
            // Ready every other second.
            let mut blink = pod(&name("blink"), node, "c", &["sleep", "86400"]);
            blink["spec"]["containers"][0]["readinessProbe"] = json!({
                "exec": {"command": ["sh", "-c", "test $(( $(date +%s) % 2 )) = 0"]},
                "periodSeconds": 1, "failureThreshold": 1,
            });
            let restless = pod(&name("restless"), node, "c", &["sh", "-c", "sleep 0.2; exit 1"]);
            self.write(&name("fixed"), &[words, anchor, blink, restless]);
        }
        self.write_words();
        self.write_crew();
        self.write_swap();
    }

    fn write_words(&self) {
        let words = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
            "data": {"word": self.word.to_string()},
        });
        self.write("words", &[words]);
    }

    fn write_crew(&self) {
        let mut member = pod("crew", "", "c", &["sleep", "86400"]);
        // One on each node at least has the words: those that blink.
        member["metadata"] = json!({"labels": {"app": "crew"}});
        let crew = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "crew"},
            "spec": {
                "replicas": self.crew,
                "selector": {"matchLabels": {"app": "crew"}},
                "template": member,
            },
        });
        self.write("crew", &[crew]);
    }

    fn write_swap(&self) {
        let (node, generation) = self.swap;
        let command = format!("sleep 86400 # {generation}");
        self.write("swap", &[pod("swap", NODES[node], "c", &["sh", "-c", &command])]);
    }

    /// A pod that ends soon comes, or one that came goes.
    fn brief(&mut self) {
        let n = self.chance.below(BRIEF_MAX);
        if self.brief.remove(&n) {
            let _ = fs::remove_file(self.manifests.join(format!("brief-{n}.yaml")));
            return;
        }
        self.brief.insert(n);
        let node = *self.chance.one_of(&NODES);
        let mut brief = pod(&format!("brief-{n}"), node, "c", &["sleep", "0.1"]);
        brief["spec"]["restartPolicy"] = json!("Never");
        self.write(&format!("brief-{n}"), &[brief]);
    }

    /// Says over the socket what is to be there; whether all of it was heard. What is to go may be
    /// gone already, which is refused.
    fn say_wire(&self) -> bool {
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wire"},
            "data": {"word": self.wire.0.to_string()},
        });
        let mut wired = pod("wired", NODES[1], "c", &["sleep", "86400"]);
        wired["spec"]["volumes"] = json!([{"name": "wire", "configMap": {"name": "wire"}}]);
        let second = if self.wire.1 {
            json!({"object": wired})
        } else {
            json!({"delete": "default/pod/wired"})
        };
        let lines = format!("{}\n{second}\n", json!({"object": config}));
        self.say(&lines).is_ok_and(|answer| answer["lines"] == 2)
    }

    fn say(&self, lines: &str) -> std::io::Result<Value> {
        let mut socket = UnixStream::connect(&self.socket)?;
        socket.write_all(lines.as_bytes())?;
        socket.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(serde_json::from_str(answer.lines().last().unwrap_or_default()).unwrap_or_default())
    }

    /// Writes a file of the folder at once, as editors do.
    fn write(&self, name: &str, objects: &[Value]) {
        let texts: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
        fs::write(&self.beside, texts.concat()).expect("written");
        let name = self.manifests.join(format!("{name}.yaml"));
        fs::rename(&self.beside, name).expect("renamed");
    }
}

/// A pod with the ConfigMap that every node has.
fn pod(name: &str, node: &str, container: &str, command: &[&str]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "words", "configMap": {"name": "words"}}],
            "containers": [{"name": container, "command": command}],
        },
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}
