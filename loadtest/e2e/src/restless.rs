//! A source that never rests: a manifest folder that is edited and an objects socket that is
//! spoken to, by a thread of their own, whether or not anybody listens just now.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::running::{Running, WAIT};

/// How the names of what is never touched begin.
pub const ANCHORS: &str = "anchor";

/// The most of each kind of thing that comes and goes.
const BRIEF_MAX: u64 = 4;
const CREW_MAX: u64 = 4;

/// What only the stream of `node` holds.
pub fn marker(node: &str) -> String {
    format!("for the eyes of {node}")
}

/// See the module.
pub struct Restless {
    world: Option<World>,
    thread: Option<JoinHandle<World>>,
    stop: Arc<AtomicBool>,
}

/// What the source says just now.
struct World {
    chance: Chance,
    nodes: Vec<String>,
    manifests: PathBuf,
    beside: PathBuf,
    /// None: it writes manifests only.
    socket: Option<PathBuf>,
    word: u64,
    crew: u64,
    /// The node and the command of the pod that is replaced.
    swap: (usize, u64),
    brief: BTreeSet<u64>,
    /// The objects sent over the socket: the word, and whether the pod exists.
    wire: (u64, bool),
}

impl Restless {
    /// A source in `folder` for `nodes`: the folder `manifests` in it, and what it says over the
    /// socket `objects.sock` there.
    pub fn new(folder: &Path, nodes: &[&str], seed: u64) -> Self {
        let mut world = World {
            chance: Chance::of(seed ^ 1),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            manifests: folder.join("manifests"),
            beside: folder.join("beside"),
            socket: Some(folder.join("objects.sock")),
            word: 0,
            crew: 2,
            swap: (0, 0),
            brief: BTreeSet::new(),
            wire: (0, false),
        };
        world.write_all();
        Self { world: Some(world), thread: None, stop: Arc::default() }
    }

    /// The same without the socket.
    ///
    /// # Panics
    /// When it has begun.
    pub fn on_manifests(folder: &Path, nodes: &[&str], seed: u64) -> Self {
        let mut restless = Self::new(folder, nodes, seed);
        restless.world.as_mut().expect("at rest").socket = None;
        restless
    }

    /// How `up` is to be started.
    ///
    /// # Panics
    /// When it has begun, or has no socket.
    pub fn args(&self) -> Vec<String> {
        let world = self.world.as_ref().expect("at rest");
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let socket = world.socket.as_deref().expect("a socket");
        let flags = ["--objects", &text(socket), "--sync-interval", "1s"].map(str::to_owned);
        [text(&world.manifests)].into_iter().chain(flags).collect()
    }

    /// Begins to change, or goes on with it.
    ///
    /// # Panics
    /// When it has begun.
    pub fn begin(&mut self) {
        let (mut world, stop) = (self.world.take().expect("at rest"), self.stop.clone());
        stop.store(false, Ordering::Relaxed);
        self.thread = Some(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                world.step();
                let pace = world.chance.below(60);
                thread::sleep(Duration::from_millis(pace));
            }
            world
        }));
    }

    /// Changes nothing any more.
    ///
    /// # Panics
    /// When it rests.
    pub fn rest(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("restless");
        self.world = Some(thread.join().expect("it never fails"));
    }

    /// Changes so much, as fast as it can.
    ///
    /// # Panics
    /// When it does not rest.
    pub fn change(&mut self, changes: u32) {
        let world = self.world.as_mut().expect("at rest");
        (0..changes).for_each(|_| world.step());
    }

    /// Stops changing, if it has not yet, and sends the last lines again to the present listener.
    ///
    /// # Panics
    /// No controller listens in [`WAIT`].
    pub fn settle(&mut self) {
        if self.thread.is_some() {
            self.rest();
        }
        let world = self.world.as_mut().expect("at rest");
        world.write_all();
        let deadline = Instant::now() + WAIT;
        while world.socket.is_some()
            && let Err(answer) = world.say_wire()
        {
            assert!(Instant::now() < deadline, "the socket does not accept the object: {answer}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The objects sent over the socket that must exist.
    ///
    /// # Panics
    /// When it does not rest.
    pub fn socket_objects(&self) -> Vec<Value> {
        let world = self.world.as_ref().expect("at rest");
        let has_sent = world.socket.is_some() && world.wire.0 + u64::from(world.wire.1) > 0;
        let pod = (has_sent && world.wire.1).then(|| world.wired());
        has_sent.then(|| world.wire_words()).into_iter().chain(pod).collect()
    }

    /// The pods that are to be, but for those of the crew, whose names are made.
    ///
    /// # Panics
    /// When it does not rest.
    pub fn pods(&self) -> Vec<String> {
        let world = self.world.as_ref().expect("at rest");
        let each = ["anchor", "blink", "restless"];
        let mut pods: Vec<String> = each
            .iter()
            .flat_map(|name| world.nodes.iter().map(move |node| format!("{name}-{node}")))
            .chain(world.brief.iter().map(|n| format!("brief-{n}")))
            .chain(world.wire.1.then(|| "wired".to_owned()))
            .chain(["swap".to_owned()])
            .chain((0..world.crew).map(|n| format!("crew-{n}")))
            .collect();
        pods.sort_unstable();
        pods
    }

    /// Whether these sorted names are those of the pods that are to be.
    ///
    /// # Panics
    /// When it does not rest.
    pub fn names_are(&self, names: &[&str]) -> bool {
        let is_crew = |name: &str| name.starts_with("crew-");
        let wanted = self.pods();
        let (crew, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|n| is_crew(n));
        let (wanted_crew, wanted): (Vec<&str>, Vec<&str>) =
            wanted.iter().map(String::as_str).partition(|name| is_crew(name));
        crew.len() == wanted_crew.len() && others == wanted
    }

    /// Waits until every node has the last word of the ConfigMap that all have. `when` is for the message.
    ///
    /// # Panics
    /// When it does not rest, or a node does not have the word in [`WAIT`].
    pub fn wait_for_word(&self, running: &Running, when: &str) {
        let world = self.world.as_ref().expect("at rest");
        let word = world.word.to_string();
        for node in &world.nodes {
            running.wait_for(&format!("the last word at {node}, {when}"), |running| {
                let maps = running.items(&["get", "configmaps", "--node", node]);
                let words = maps.iter().find(|map| map["metadata"]["name"] == "words")?;
                (words["data"]["word"] == word).then_some(())
            });
        }
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
                self.swap = ((self.swap.0 + 1) % self.nodes.len(), self.swap.1 + 1);
                self.write_swap();
            }
            7 | 8 => self.brief(),
            9 | 10 => {
                self.wire.0 += 1;
                // A controller that is away takes nothing; the next one is sent everything again.
                let _ = self.say_wire();
            }
            _ => {
                self.wire.1 = !self.wire.1;
                let _ = self.say_wire();
            }
        }
    }

    fn write_all(&mut self) {
        fs::create_dir_all(&self.manifests).expect("a folder");
        for node in &self.nodes {
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
        let named = |kind: &str, name: &str, word: &str| {
            json!({
                "apiVersion": "v1", "kind": kind, "metadata": {"name": name},
                "data": {"word": word},
            })
        };
        let words = named("ConfigMap", "words", &self.word.to_string());
        // Base64 of a word that changes less often.
        let hush =
            named("Secret", "hush", ["cXVpZXQ=", "c3RpbGw="][usize::from(self.word % 8 > 3)]);
        self.write("words", &[words, hush]);
    }

    fn write_crew(&self) {
        let mut member = pod("crew", "", "c", &["sleep", "86400"]);
        // One on each node at least has the words: those that blink.
        member["metadata"] = json!({"labels": {"app": "crew"}});
        member["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "hush"}}]);
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
        self.write("swap", &[pod("swap", &self.nodes[node], "c", &["sh", "-c", &command])]);
    }

    /// A pod that ends soon comes, or one that came goes.
    fn brief(&mut self) {
        let n = self.chance.below(BRIEF_MAX);
        if self.brief.remove(&n) {
            let _ = fs::remove_file(self.manifests.join(format!("brief-{n}.yaml")));
            return;
        }
        self.brief.insert(n);
        let node = self.chance.one_of(&self.nodes);
        let mut brief = pod(&format!("brief-{n}"), node, "c", &["sleep", "0.1"]);
        brief["spec"]["restartPolicy"] = json!("Never");
        self.write(&format!("brief-{n}"), &[brief]);
    }

    /// Sends the wanted objects over the socket, which accepts each of them. The deletion of an
    /// object that is gone already is refused, so it comes last.
    fn say_wire(&self) -> Result<(), String> {
        let objects = std::iter::once(self.wire_words()).chain(self.wire.1.then(|| self.wired()));
        let mut lines: Vec<_> = objects.map(|object| json!({"object": object})).collect();
        let objects = lines.len();
        if !self.wire.1 {
            lines.push(json!({"delete": "default/pod/wired"}));
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let answers = self.send(&text).map_err(|error| error.to_string())?;
        let is_read = answers.last().is_some_and(|last| last["lines"] == lines.len());
        let refused = answers.iter().filter_map(|answer| answer["line"].as_u64());
        if is_read && refused.min().is_none_or(|line| line > objects as u64) {
            return Ok(());
        }
        Err(format!("{answers:?}"))
    }

    fn wire_words(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wire"},
            "data": {"word": self.wire.0.to_string()},
        })
    }

    fn wired(&self) -> Value {
        let node = self.nodes.last().map_or("", String::as_str);
        let mut wired = pod("wired", node, "c", &["sleep", "86400"]);
        wired["spec"]["volumes"] = json!([{"name": "wire", "configMap": {"name": "wire"}}]);
        wired
    }

    /// Sends lines, and returns the answers: one for each refused line, and one for all.
    fn send(&self, lines: &str) -> std::io::Result<Vec<Value>> {
        let Some(socket) = &self.socket else { return Ok(Vec::new()) };
        let mut socket = UnixStream::connect(socket)?;
        // A frozen controller does not answer.
        socket.set_read_timeout(Some(WAIT))?;
        socket.set_write_timeout(Some(WAIT))?;
        socket.write_all(lines.as_bytes())?;
        socket.shutdown(Shutdown::Write)?;
        let answers = serde_json::Deserializer::from_reader(socket).into_iter();
        answers.map(|answer| answer.map_err(std::io::Error::from)).collect()
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
