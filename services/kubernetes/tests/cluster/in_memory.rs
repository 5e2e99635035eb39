//! The source against the server in memory, by a seed: objects come, change and go; the server restarts,
//! stops, freezes, forgets and goes back to a backup; requests and watches fail. When it is quiet, the log
//! has what the server has; and nothing was ever removed that had not left the server.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use headwater_apiserver::{ApiServer, Faults};
use headwater_check::cluster_oracle::{ClusterOracle, EDGE_LABEL, Wanted, WantedObject};
use headwater_event::{EntryKey, ResourceKey};
use headwater_kubernetes::{Connection, KubernetesSettings};
use http::Method;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::World;

/// The seeds of a check: some seconds in all.
const SEEDS: u64 = 40;

/// The nodes of a run.
const NODES: [&str; 2] = ["gw-0", "gw-1"];

/// Names of each kind.
const NAMES: u64 = 5;

/// The steps of a run in which faults strike.
const STEPS: u64 = 80;

/// How long everything may take to be right after the last fault: longer than a silent watch and the
/// looks at a server that went back.
const RIGHT_WITHIN: Duration = Duration::from_secs(200);

/// The writes that a backup is behind: more than happen until it is noticed that the server went back.
const WRITES_AFTER_BACKUP: u64 = 400;

/// The pause after a restore, in which it is noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(100);

/// A run.
struct Run {
    server: ApiServer,
    chance: Xoshiro256PlusPlus,
    oracle: Arc<Mutex<ClusterOracle>>,
    written: u64,
}

#[test]
fn what_the_log_has_is_what_the_server_has() {
    let seed = std::env::var("HEADWATER_APISERVER_SEED").ok();
    let seeds: Vec<u64> = match seed.map(|seed| seed.parse().expect("a seed is a number")) {
        Some(seed) => vec![seed],
        None => (0..SEEDS).collect(),
    };
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let run = AssertUnwindSafe(run(seed)).catch_unwind();
        if let Err(panic) = runtime.block_on(run) {
            eprintln!("seed {seed}; again: HEADWATER_APISERVER_SEED={seed} cargo test");
            std::panic::resume_unwind(panic);
        }
    }
}

async fn run(seed: u64) {
    let began = Instant::now();
    let clock = move || 1_700_000_000_000 + i64::try_from(began.elapsed().as_millis()).unwrap_or(0);
    let mut of_server = Xoshiro256PlusPlus::seed_from_u64(seed);
    let server = ApiServer::new(clock, move || of_server.next_u64());
    let nodes = NODES.map(|node| node.parse().expect("a name"));
    let oracle = Arc::new(Mutex::new(ClusterOracle::new(nodes)));
    let observer = oracle.clone();
    server.observe(move |change| {
        let now_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (place, before) = (&change.place, change.before.as_deref());
        let mut oracle = observer.lock().expect("no panic");
        oracle.observe(now_ms, place.plural, &place.path, before, change.after.as_ref());
    });
    let chance = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let mut run = Run { server: server.clone(), chance, oracle, written: 0 };
    for node in NODES {
        run.put("/api/v1/nodes", node, json!({"metadata": {"labels": {EDGE_LABEL: ""}}}));
    }
    for _ in 0..20 {
        run.change();
    }
    let world = World::new();
    let connection = Connection::over(server.clone(), "the server in memory");
    let running = world.start_over(connection, KubernetesSettings::default()).await;
    for _ in 0..STEPS {
        run.step().await;
    }
    server.set_faults(Faults::default());
    server.set_frozen(false);
    server.start();
    // What lasts longer than the quiet is over before it.
    sleep(Duration::from_secs(130)).await;
    run.change();
    let end = Instant::now() + RIGHT_WITHIN;
    loop {
        let difference = run.difference(&world).await;
        match difference {
            None => break,
            Some(difference) if Instant::now() > end => {
                let states = running.controller.source_states();
                panic!("{difference}; {:?}", states.borrow().troubles());
            }
            Some(_) => sleep(Duration::from_secs(1)).await,
        }
    }
    let removed = world.removed().await;
    running.controller.stop().await;
    let oracle = run.oracle.lock().expect("no panic");
    for (stream, key, uid) in removed {
        // What pods name leaves with the last of them that the source knows, and comes back with another.
        let kind = EntryKey::resource(&key).map(ResourceKey::kind);
        let is_checked = kind.is_some_and(|kind| !matches!(kind, "configmap" | "secret"));
        assert!(
            !is_checked || oracle.left(&stream).contains(&key, &uid),
            "{stream}: {key} {uid} was removed, it is there"
        );
    }
}

impl Run {
    fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    /// Changes of objects, or something that befalls the server; then a pause.
    async fn step(&mut self) {
        match self.below(40) {
            0 => self.server.restart(),
            1 => {
                self.server.stop();
                self.changes(3);
                self.pause(20_000).await;
                self.server.start();
            }
            2 => {
                self.server.set_frozen(true);
                self.changes(3);
                self.pause(90_000).await;
                self.server.set_frozen(false);
            }
            3 => self.server.compact(),
            4 => self.go_back().await,
            5..=10 => {
                let faults = self.faults();
                self.server.set_faults(faults);
            }
            11..=13 => self.server.set_faults(Faults::default()),
            _ => self.changes(3),
        }
        let pause = [50, 500, 3_000, 70_000][usize::try_from(self.below(4)).unwrap_or(0)];
        self.pause(pause).await;
    }

    async fn pause(&mut self, ms_max: u64) {
        let ms = self.below(ms_max);
        sleep(Duration::from_millis(ms)).await;
    }

    /// The server starts on a backup, which is much older.
    async fn go_back(&mut self) {
        let backup = self.server.backup();
        self.changes(6);
        for _ in 0..WRITES_AFTER_BACKUP {
            self.put("/api/v1/namespaces/default/configmaps", "filler", json!({}));
        }
        // The source has seen some of that.
        self.pause(40_000).await;
        self.server.restore(&backup);
        self.server.set_faults(Faults::default());
        sleep(NOTICED_WITHIN).await;
    }

    fn faults(&mut self) -> Faults {
        let mut some = |most: u64| u16::try_from(self.chance.next_u64() % most).unwrap_or(0);
        Faults {
            way_ms_max: some(100).into(),
            request_lost: some(200),
            answer_lost: some(200),
            silent: some(300),
            throttled: some(100),
            unavailable: some(100),
            store_timeout: some(50),
            slow: some(100),
            slow_ms_max: 20_000,
            expired: some(50),
            watch_ends: some(200),
            watch_hangs: some(100),
            event_ms_max: some(2_000).into(),
            stale_versions_max: some(20).into(),
        }
    }

    fn changes(&mut self, most: u64) {
        for _ in 0..=self.below(most) {
            self.change();
        }
    }

    /// A change of an object.
    fn change(&mut self) {
        let name = |prefix: &str, n: u64| format!("{prefix}{n}");
        let (n, other) = (self.below(NAMES), self.below(NAMES));
        let node = NODES[usize::try_from(self.below(2)).unwrap_or(0)];
        let core = "/api/v1/namespaces/default";
        match self.below(12) {
            0..=2 => {
                let env = json!([{"configMapRef": {"name": name("o", other), "optional": true}}]);
                let spec = json!({
                    "nodeName": node,
                    "containers": [{"name": "main", "image": "i", "envFrom": env}],
                    "volumes": [{"name": "s", "secret": {"secretName": name("o", n)}}],
                });
                self.put(&format!("{core}/pods"), &name("p", n), json!({"spec": spec}));
            }
            3 => self.delete(&format!("{core}/pods/p{n}?gracePeriodSeconds=0")),
            4 => self.delete(&format!("{core}/pods/p{n}")),
            5 => {
                let status = json!({"status": {"phase": "Running", "message": name("m", other)}});
                self.server.request(
                    Method::PATCH,
                    &format!("{core}/pods/p{n}/status"),
                    Some(&status),
                );
            }
            6 => {
                let value = if other < 2 { Value::Null } else { "".into() };
                let label = json!({"metadata": {"labels": {EDGE_LABEL: value}}});
                self.server.request(Method::PATCH, &format!("/api/v1/nodes/{node}"), Some(&label));
            }
            7 => self.put(&format!("{core}/configmaps"), &name("o", n), json!({})),
            8 => self.put(&format!("{core}/secrets"), &name("o", n), json!({})),
            9 => {
                let spec = json!({"spec": {"ports": [{"port": 80}]}});
                self.put(&format!("{core}/services"), &name("o", n), spec);
            }
            10 => {
                let kind =
                    ["configmaps", "secrets", "services"][usize::try_from(n % 3).unwrap_or(0)];
                self.delete(&format!("{core}/{kind}/o{other}"));
            }
            _ => {
                let source = json!({"persistentVolumeName": "v"});
                let spec = json!({"attacher": "a", "nodeName": node, "source": source});
                let path = "/apis/storage.k8s.io/v1/volumeattachments";
                if other == 0 {
                    self.delete(&format!("{path}/{}", name("a", n)));
                } else {
                    self.put(path, &name("a", n), json!({"spec": spec}));
                }
            }
        }
    }

    /// Creates an object, or writes a new mark on it if it is there.
    fn put(&mut self, path: &str, name: &str, mut object: Value) {
        self.written += 1;
        object["metadata"]["name"] = name.into();
        object["metadata"]["annotations"] = json!({"n": self.written.to_string()});
        let (code, answer) = self.server.request(Method::POST, path, Some(&object));
        if code == 409 {
            let mark = json!({"metadata": {"annotations": {"n": self.written.to_string()}}});
            let (code, answer) =
                self.server.request(Method::PATCH, &format!("{path}/{name}"), Some(&mark));
            assert_eq!(code, 200, "{answer}");
        } else {
            assert_eq!(code, 201, "{answer}");
        }
    }

    fn delete(&mut self, path: &str) {
        let (code, answer) = self.server.request(Method::DELETE, path, None);
        assert!(matches!(code, 200 | 404), "{answer}");
    }

    /// What the log has otherwise than the server.
    async fn difference(&self, world: &World) -> Option<String> {
        let wanted = self.oracle.lock().expect("no panic").wanted().clone();
        for (stream, wanted) in wanted {
            let found = world.objects(&stream).await;
            let found = found.into_iter().map(|(key, (uid, object))| {
                let mark = object["metadata"]["annotations"]["n"].as_str().unwrap_or_default();
                let key: ResourceKey = key.parse().expect("a key");
                (key, WantedObject { uid, mark: mark.to_owned() })
            });
            // The identity of the cluster is always there.
            let found: Wanted = found.filter(|(key, _)| key.kind() != "namespace").collect();
            if found != wanted {
                return Some(format!("{stream} has {found:#?}, not {wanted:#?}"));
            }
        }
        None
    }
}
