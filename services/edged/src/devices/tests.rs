//! The devices of a node with plugins of a test.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use async_trait::async_trait;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const RESOURCE: &str = "e.com/gpu";

/// A plugin that gives each device its node.
#[derive(Debug, Default)]
struct Fake {
    options: PluginOptions,
    fails: AtomicBool,
    /// It answers no call until it is notified.
    hangs: Option<tokio::sync::Notify>,
    allocated: AtomicUsize,
    prepared: AtomicUsize,
}

#[async_trait]
impl DevicePlugin for Fake {
    fn options(&self) -> PluginOptions {
        self.options
    }

    async fn prefer(
        &self,
        available: &BTreeSet<String>,
        _: &BTreeSet<String>,
        _: usize,
    ) -> Result<Vec<String>, PluginError> {
        // Another pod may be given devices meanwhile.
        tokio::task::yield_now().await;
        Ok(available.iter().rev().cloned().collect())
    }

    async fn allocate(&self, ids: &BTreeSet<String>) -> Result<ContainerDevices, PluginError> {
        tokio::task::yield_now().await;
        if let Some(hangs) = &self.hangs {
            hangs.notified().await;
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(PluginError("rpc error: code = Unknown desc = no".to_owned()));
        }
        self.allocated.fetch_add(1, Ordering::Relaxed);
        let env = ids.iter().map(|id| (format!("GPU_{id}"), "1".to_owned())).collect();
        Ok(ContainerDevices { env, ..ContainerDevices::default() })
    }

    async fn pre_start(&self, _: &BTreeSet<String>) -> Result<(), PluginError> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            return Err(PluginError("no".to_owned()));
        }
        Ok(())
    }
}

fn uid(name: &str) -> PodUid {
    PodUid::try_from(name.to_owned()).expect("a UID")
}

fn container(name: &str, count: usize) -> Value {
    json!({"name": name, "resources": {"limits": {RESOURCE: count.to_string()}}})
}

fn pod(init: &[Value], main: &[Value]) -> Pod {
    let spec = json!({"initContainers": init, "containers": main});
    serde_json::from_value(json!({"spec": spec})).expect("a pod")
}

fn list(ids: &str) -> BTreeMap<String, bool> {
    ids.split_whitespace().map(|id| (id.to_owned(), true)).collect()
}

fn open(dir: &Path, present: &[&str]) -> Devices {
    Devices::open(dir, &present.iter().map(|it| uid(it)).collect()).expect("opens")
}

async fn register(devices: &Devices, plugin: Fake, ids: &str) -> (PluginRegistration, Arc<Fake>) {
    let plugin = Arc::new(plugin);
    let registration = devices.register(RESOURCE, plugin.clone()).expect("there is room");
    assert!(devices.list(&registration, list(ids)).await);
    (registration, plugin)
}

/// The ids that a container has.
fn ids(devices: &Devices, pod: &str, container: &str) -> String {
    let state = devices.lock();
    let grants = state.allocations.of(&uid(pod), container);
    let ids = grants.and_then(|it| it.get(RESOURCE)).map(|it| it.ids.iter().cloned());
    ids.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn main_of(pod: &Pod) -> &Container {
    &pod.spec.as_ref().expect("a spec").containers[0]
}

#[tokio::test]
async fn a_pods_containers_get_devices_and_keep_them_over_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let devices = open(dir.path(), &[]);
    let options = PluginOptions { pre_start: true, prefers: false };
    let (_, plugin) = register(&devices, Fake { options, ..Fake::default() }, "0 1 2 3").await;
    let mut sidecar = container("side", 1);
    sidecar["restartPolicy"] = json!("Always");
    let web = pod(&[container("init", 3), sidecar], &[container("a", 2), container("b", 1)]);
    devices.assign(&uid("u"), &web, false).await.expect("enough");
    devices.assign(&uid("u"), &web, true).await.expect("it has them");
    assert_eq!(plugin.allocated.load(Ordering::Relaxed), 4, "each container once");
    // The sidecar keeps one of the init container's.
    let of = |devices: &Devices, name| ids(devices, "u", name);
    assert_eq!(["init", "side", "a", "b"].map(|it| of(&devices, it)), ["0 1 2", "0", "1 2", "3"]);
    let given = devices.prepare(&uid("u"), main_of(&web)).await.expect("given");
    assert_eq!(given.env.into_keys().collect::<Vec<_>>(), ["GPU_1", "GPU_2"]);
    assert_eq!(plugin.prepared.load(Ordering::Relaxed), 1);

    let again = open(dir.path(), &["u"]);
    assert_eq!(of(&again, "a"), "1 2");
    let stated = |it: &Devices| it.stated().iter().map(|it| it.capacity).collect::<Vec<_>>();
    assert_eq!(stated(&again), [0], "the node has had some");
    let wait = again.prepare(&uid("u"), main_of(&web)).await.expect_err("no plugin yet");
    assert_eq!(wait.message, "no device plugin serves e.com/gpu on this node");
    again.assign(&uid("u"), &web, true).await.expect("it has them");
    register(&again, Fake::default(), "0 1 2 3 4").await;
    again.prepare(&uid("u"), main_of(&web)).await.expect("as before");
    let other = pod(&[], &[container("a", 2)]);
    let error = again.assign(&uid("v"), &other, false).await.expect_err("one is left");
    let words = "Allocate failed due to requested number of devices unavailable for e.com/gpu. \
                 Requested: 2, Available: 1, which is unexpected";
    assert_eq!(error.to_string(), words);
    again.release(&uid("u")).await;
    again.assign(&uid("v"), &other, false).await.expect("enough");
    // Its pod is gone: so is its allocation.
    assert_eq!(ids(&open(dir.path(), &[]), "v", "a"), "");
}

#[tokio::test]
async fn a_plugin_that_hangs_or_fails_keeps_no_device_and_no_other_pod() {
    let dir = tempfile::tempdir().expect("a folder");
    let devices = open(dir.path(), &[]);
    let one = pod(&[], &[container("a", 1)]);
    let unknown = devices.assign(&uid("u"), &one, false).await.expect_err("no plugin");
    assert!(matches!(unknown, AssignError::Unknown(_)), "{unknown}");
    let hangs = Fake { hangs: Some(tokio::sync::Notify::new()), ..Fake::default() };
    let (first, hanging) = register(&devices, hangs, "0 1").await;
    let waiting = {
        let (devices, one) = (devices.clone(), one.clone());
        tokio::spawn(async move { devices.assign(&uid("u"), &one, false).await })
    };
    while devices.lock().reserved.is_empty() {
        tokio::task::yield_now().await;
    }
    // Another plugin takes over. The device for which the first one was asked is not given twice.
    let (second, plugin) = register(&devices, Fake::default(), "0 1").await;
    first.replaced().await;
    devices.assign(&uid("v"), &one, false).await.expect("one is free");
    assert_eq!(ids(&devices, "v", "a"), "1");
    let error = devices.assign(&uid("w"), &one, false).await.expect_err("none is free");
    assert!(matches!(error, AssignError::Failed(_)), "{error}");
    hanging.fails.store(true, Ordering::Relaxed);
    hanging.hangs.as_ref().expect("it hangs").notify_one();
    let error = waiting.await.expect("it ends").expect_err("the plugin failed");
    let words = "Allocate failed due to rpc error: code = Unknown desc = no, which is unexpected";
    assert_eq!(error.to_string(), words);
    devices.assign(&uid("w"), &one, false).await.expect("it is free again");
    // The first one is not heard any more, and the end of the second one is.
    devices.lose(&first);
    assert!(!devices.list(&first, list("7")).await);
    assert_eq!(devices.stated()[0].allocatable, 2);
    devices.lose(&second);
    let error = devices.assign(&uid("x"), &one, false).await.expect_err("nothing works");
    assert!(error.to_string().contains("no healthy devices present"), "{error}");
    plugin.fails.store(true, Ordering::Relaxed);
    devices.prepare(&uid("w"), main_of(&one)).await.expect("what was given stays given");
}

#[tokio::test]
async fn a_damaged_file_is_moved_aside_and_what_may_be_in_use_is_given_to_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join(FILE);
    let twice = r#"{"version": 1, "resources": [], "pods": {
        "u": {"a": {"e.com/gpu": {"ids": ["0"], "gives": {}}}},
        "v": {"a": {"e.com/gpu": {"ids": ["0"], "gives": {}}}}}}"#;
    for (number, text) in
        (1..).zip(["torn", r#"{"version": 2, "resources": [], "pods": {}}"#, twice])
    {
        std::fs::write(&file, text).expect("written");
        let devices = open(dir.path(), &["old", "plain"]);
        let aside = dir.path().join(format!("devices.json.damaged-{number}"));
        assert_eq!(std::fs::read_to_string(aside).expect("moved"), text);
        register(&devices, Fake::default(), "0 1").await;
        let one = pod(&[], &[container("a", 1)]);
        let waits = |error: AssignError| matches!(error, AssignError::Unknown(_));
        assert!(waits(devices.assign(&uid("new"), &one, false).await.expect_err("unknown")));
        // Its containers run with devices that are not known.
        assert!(waits(devices.assign(&uid("old"), &one, true).await.expect_err("unknown")));
        devices.assign(&uid("plain"), &pod(&[], &[]), true).await.expect("it has none");
        assert!(waits(devices.assign(&uid("new"), &one, false).await.expect_err("unknown")));
        // They have ended: it starts anew.
        devices.assign(&uid("old"), &one, false).await.expect("enough");
        devices.assign(&uid("new"), &one, false).await.expect("enough");
        assert_eq!(
            (ids(&devices, "old", "a"), ids(&devices, "new", "a")),
            ("0".into(), "1".into())
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Assign(Vec<(usize, usize, usize)>),
    Release(usize),
    List(BTreeMap<usize, bool>),
    Lose,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    // Pods that come at the same time: an init container's count, and that of a container.
    let pods = prop::collection::vec((0_usize..6, 0_usize..3, 1_usize..4), 1..4);
    let devices = prop::collection::btree_map(0_usize..8, any::<bool>(), 0..8);
    prop_oneof![
        4 => pods.prop_map(Step::Assign),
        2 => (0_usize..6).prop_map(Step::Release),
        2 => devices.prop_map(Step::List),
        1 => Just(Step::Lose),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_device_has_two_pods_and_every_pod_has_what_it_asked_for(
        steps in prop::collection::vec(step(), 1..30),
        prefers in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let dir = tempfile::tempdir().expect("a folder");
            let options = PluginOptions { pre_start: false, prefers };
            let new = || Fake { options, ..Fake::default() };
            let mut devices = open(dir.path(), &[]);
            let (mut registration, _) = register(&devices, new(), "0 1 2 3 4 5 6 7").await;
            let mut living: BTreeMap<usize, BTreeMap<String, Ids>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Assign(pods) => {
                        let assigned = pods.iter().map(|(number, init, main)| {
                            let given = pod(&[container("init", *init)], &[container("a", *main)]);
                            let devices = devices.clone();
                            async move {
                                let name = format!("u{number}");
                                devices.assign(&uid(&name), &given, false).await.is_ok()
                            }
                        });
                        let mut seen = BTreeSet::new();
                        // A pod has one worker.
                        let firsts = pods.iter().zip(assigned).filter(|((pod, ..), _)| seen.insert(*pod));
                        let (pods, assigned): (Vec<_>, Vec<_>) = firsts.unzip();
                        let results = futures::future::join_all(assigned).await;
                        for ((number, init, main), is_ok) in pods.into_iter().zip(results) {
                            if !is_ok || living.contains_key(&number) {
                                continue;
                            }
                            let of = |name| ids(&devices, &format!("u{number}"), name);
                            let split = |text: String| text.split_whitespace().map(str::to_owned).collect::<Ids>();
                            let (of_init, of_main) = (split(of("init")), split(of("a")));
                            assert_eq!((of_init.len(), of_main.len()), (init, main));
                            let own = [("init".to_owned(), of_init), ("a".to_owned(), of_main)];
                            living.insert(number, own.into());
                        }
                    }
                    Step::Release(number) => {
                        devices.release(&uid(&format!("u{number}"))).await;
                        living.remove(&number);
                    }
                    Step::List(all) => {
                        let all = all.into_iter().map(|(id, works)| (id.to_string(), works));
                        devices.list(&registration, all.collect()).await;
                    }
                    Step::Lose => devices.lose(&registration),
                    Step::Restart => {
                        let names: Vec<String> = living.keys().map(|it| format!("u{it}")).collect();
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        devices = open(dir.path(), &names);
                        (registration, _) = register(&devices, new(), "0 1 2 3 4 5 6 7").await;
                    }
                }
                let mut owners: BTreeMap<String, usize> = BTreeMap::new();
                for (number, containers) in &living {
                    for (name, wanted) in containers {
                        let found = ids(&devices, &format!("u{number}"), name);
                        assert_eq!(found.split_whitespace().count(), wanted.len());
                        for id in found.split_whitespace() {
                            assert!(wanted.contains(id), "it changed");
                            let owner = owners.entry(id.to_owned()).or_insert(*number);
                            assert_eq!(owner, number, "device {id}");
                        }
                    }
                }
                assert!(devices.lock().reserved.is_empty());
            }
        });
    }
}
