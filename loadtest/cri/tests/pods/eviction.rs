//! Evictions on a real containerd: in a memory cgroup, and on a small disk.

use std::fs;
use std::time::Duration;

use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings, PAUSE_IMAGE};
use headwater_edged::PressureSettings;
use headwater_edged::runtime::FileSystemUsage;
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, on_a_twin_with, uid, until};
use crate::cgroups::CgroupRoot;
use crate::collection::{images, large, on_a_small_disk, reasons};
use crate::life::{FOREVER, gone, start};

/// The interval between two measurements.
const PERIOD: Duration = Duration::from_millis(100);

/// The memory that all pods of the first test have, in bytes.
const MEMORY: u64 = 128 << 20;

/// No threshold is met, whatever the machine has.
fn without_thresholds() -> PressureSettings {
    PressureSettings { check: PERIOD, ..PressureSettings::without_thresholds() }
}

/// A pod that takes so many mebibytes of memory, each in its own time.
fn taker(bench: &Bench, name: &str, mebibytes: u64) -> Value {
    let script = format!("head -c {} /dev/zero > /dev/shm/taken; {FOREVER}", mebibytes << 20);
    bench.pod(name, &script)
}

fn is_evicted(status: &Value) -> bool {
    status["phase"] == "Failed" && status["reason"] == "Evicted"
}

/// Whether the Node's latest report has the condition.
fn node_has(bench: &Bench, kind: &str) -> bool {
    let operations = bench.edge.operations();
    let node = operations.iter().rfind(|it| it.resource == "null/node/gw-1");
    let node = node.map(|it| serde_json::from_slice::<Value>(&it.content).expect("JSON"));
    let conditions = node.and_then(|node| node["status"]["conditions"].as_array().cloned());
    conditions.into_iter().flatten().any(|it| it["type"] == kind && it["status"] == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn where_memory_is_short_the_pod_furthest_above_its_requests_goes_and_no_other() {
    let Some(containerd) = start() else { return };
    let mut bench = Bench::new(containerd.socket());
    let root = CgroupRoot::claim();
    bench.cgroup_root.clone_from(&root.0);
    let machine = headwater_edged::memory_bytes().expect("a machine");
    // All pods together have little, and the machine has what it has.
    bench.settings.reserved.memory_bytes = machine - MEMORY;
    bench.settings.pressure =
        PressureSettings { memory_available_bytes: 32 << 20, ..without_thresholds() };
    bench.settings.node_check = PERIOD;
    let edged = bench.edged().await;
    let mut requests = taker(&bench, "requests", 40);
    requests["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "60Mi"}});
    let mut important = taker(&bench, "important", 20);
    important["spec"]["priority"] = json!(1000);
    bench.edge.apply(&requests);
    bench.edge.apply(&important);
    for name in ["requests", "important"] {
        bench.status(name, "a running pod", is_running).await;
    }
    assert!(!node_has(&bench, "MemoryPressure"));
    let large = taker(&bench, "large", 48);
    bench.edge.apply(&large);
    let status = bench.status("large", "its eviction", is_evicted).await;
    let message = status["message"].as_str().expect("words");
    let words = "The node was low on resource: memory. Threshold quantity: 32Mi, available: ";
    assert!(message.starts_with(words), "{message}");
    assert!(message.contains("Container large was using "), "{message}");
    let conditions = status["conditions"].as_array().expect("conditions");
    let target = conditions.iter().find(|it| it["type"] == "DisruptionTarget").expect("named");
    assert_eq!(
        (&target["status"], &target["reason"]),
        (&json!("True"), &json!("TerminationByKubelet"))
    );
    let pressed = || async { node_has(&bench, "MemoryPressure").then_some(()) };
    assert!(until(pressed).await.is_some(), "the condition stays");
    assert!(reasons(&bench).contains("EvictionThresholdMet"), "{:?}", reasons(&bench));
    // Under pressure a pod that requests nothing does not come in.
    bench.edge.apply(&bench.pod("pressed", FOREVER));
    let status = bench.status("pressed", "its rejection", is_evicted).await;
    let message = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(status["message"], message);
    assert_eq!(bench.starts("pressed"), 0);

    // An evicted pod leaves nothing but its status, and does not come back.
    let logs = bench.edged_dir().join(format!("logs/shop_large_{}", uid("large")));
    let none = || async { (!logs.exists()).then_some(()) };
    assert!(until(none).await.is_some(), "its logs stay");
    edged.stop().await;
    let before = crate::fake_edge::statuses(&bench.edge.operations(), "large").len();
    let edged = bench.edged().await;
    let again = || async {
        crate::fake_edge::statuses(&bench.edge.operations(), "large").get(before).cloned()
    };
    let status = until(again).await.expect("the status again");
    assert!(is_evicted(&status), "{status}");
    assert!(!status["containerStatuses"][0]["state"]["terminated"].is_null(), "{status}");
    for name in ["requests", "important"] {
        let status = bench.status(name, "a running pod", is_running).await;
        assert_eq!(status["containerStatuses"][0]["restartCount"], 0, "{status}");
        assert_eq!(bench.starts(name), 1);
    }
    assert_eq!(bench.starts("large"), 1);
    for name in ["requests", "important", "large", "pressed"] {
        let pod = bench.pod(name, FOREVER);
        bench.delete(&pod).await;
    }
    gone(&containerd, &["requests", "important", "large", "pressed"]).await;
    edged.stop().await;
}

#[test]
fn a_full_disk_gets_room_from_images_first_and_then_from_the_pod_that_fills_it() {
    if !Containerd::is_possible() {
        return;
    }
    on_a_small_disk(|disk| async move {
        let settings = ContainerdSettings { data: Some(disk.clone()), ..Default::default() };
        let containerd = Containerd::start(settings).expect("containerd");
        containerd.import(&[large("unused")]).expect("imported");
        fs::remove_dir_all(disk.join("images")).expect("removed");
        let mut bench = Bench::new(containerd.socket());
        bench.settings.image_collection.age_min = Duration::ZERO;
        bench.settings.pressure =
            PressureSettings { images_available_percent: 50, ..without_thresholds() };
        let available = || {
            let usage = FileSystemUsage::of(&disk).expect("measured");
            usage.available.bytes * 100 / usage.capacity.bytes
        };
        let capacity = FileSystemUsage::of(&disk).expect("measured").capacity.bytes;
        assert!(available() > 60, "{} % left", available());
        let edged = bench.edged().await;
        let beside = bench.pod("beside", FOREVER);
        bench.edge.apply(&beside);
        bench.status("beside", "a running pod", is_running).await;
        // It waits for a sign, then takes what is above 48 % of the disk, in its own layer: the image of 12 MiB is enough.
        let fills = format!(
            "until [ -e /notes/sign ]; do sleep 0.1; done; head -c $(cat /notes/sign) \
                             /dev/zero > /filler; {FOREVER}"
        );
        let filler = bench.pod("filler", &fills);
        bench.edge.apply(&filler);
        bench.status("filler", "a running pod", is_running).await;
        let take = |percent: u64| {
            let usage = FileSystemUsage::of(&disk).expect("measured");
            let bytes = usage.available.bytes.saturating_sub(capacity * percent / 100);
            let (new, sign) = (bench.notes().join("new"), bench.notes().join("sign"));
            fs::write(&new, bytes.to_string()).expect("written");
            fs::rename(&new, &sign).expect("renamed");
        };
        take(47);
        let has_gone = || async { (images(&containerd).len() == 2).then_some(()) };
        assert!(until(has_gone).await.is_some(), "{:?}", images(&containerd));
        let needed = [PAUSE_IMAGE, BUSYBOX_IMAGE].map(str::to_owned);
        assert_eq!(images(&containerd), needed.into());
        let enough = || async { (available() >= 50).then_some(()) };
        assert!(until(enough).await.is_some(), "{} % left", available());
        for name in ["beside", "filler"] {
            bench.status(name, "a running pod", is_running).await;
        }
        // No image can go any more: the one that fills the disk has to.
        let free = FileSystemUsage::of(&disk).expect("measured").available.bytes;
        let ballast = usize::try_from(free - capacity * 40 / 100).expect("a size");
        fs::write(disk.join("ballast"), vec![1; ballast]).expect("written");
        let status = bench.status("filler", "its eviction", is_evicted).await;
        let message = status["message"].as_str().expect("words");
        let words = "The node was low on resource: ephemeral-storage. Threshold quantity: 48Mi, ";
        assert!(message.starts_with(words), "{message}");
        assert!(message.contains("Container filler was using "), "{message}");
        assert!(until(enough).await.is_some(), "its layer stays: {} % left", available());
        let status = bench.status("beside", "a running pod", is_running).await;
        assert_eq!((bench.starts("beside"), &status["phase"]), (1, &json!("Running")));
        for pod in [&beside, &filler] {
            bench.delete(pod).await;
        }
        gone(&containerd, &["beside", "filler"]).await;
        edged.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_takes_more_of_the_disk_than_its_limits_allow_is_evicted_and_no_other() {
    let Some(containerd) = start() else { return };
    let mut bench = Bench::new(containerd.socket());
    bench.settings.pressure = without_thresholds();
    let edged = bench.edged().await;
    let writer = |name: &str, file: &str, size: &str, limit: Value| {
        let script = format!("head -c 3145728 /dev/zero > {file}; {FOREVER}");
        let mut pod = bench.pod(name, &script);
        let own = json!({"name": "own", "emptyDir": {"sizeLimit": size}});
        pod["spec"]["volumes"].as_array_mut().expect("volumes").push(own);
        let container = &mut pod["spec"]["containers"][0];
        let mounts = container["volumeMounts"].as_array_mut().expect("mounts");
        mounts.push(json!({"name": "own", "mountPath": "/own"}));
        container["resources"] = json!({"limits": {"ephemeral-storage": limit}});
        pod
    };
    let mut of_one = writer("of-one", "/filler", "8Mi", json!("2Mi"));
    // The limit of another container leaves room for the pod, and none for this container.
    let mut other = of_one["spec"]["containers"][0].clone();
    (other["name"], other["command"][2]) = (json!("other"), json!(FOREVER));
    other["resources"] = json!({"limits": {"ephemeral-storage": "32Mi"}});
    of_one["spec"]["containers"].as_array_mut().expect("containers").push(other);
    let pods = [
        (
            writer("volume", "/own/file", "2Mi", json!("32Mi")),
            Some("Usage of EmptyDir volume \"own\" exceeds the limit \"2Mi\". "),
        ),
        (
            writer("all", "/own/file", "8Mi", json!("2Mi")),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "),
        ),
        (of_one, Some("Container of-one exceeded its local ephemeral storage limit \"2Mi\". ")),
        (writer("roomy", "/own/file", "8Mi", json!("32Mi")), None),
    ];
    pods.iter().for_each(|(pod, _)| bench.edge.apply(pod));
    for (pod, message) in &pods {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let Some(message) = message else { continue };
        let status = bench.status(name, "its eviction", is_evicted).await;
        assert_eq!(status["message"], *message);
    }
    let status = bench.status("roomy", "a running pod", is_running).await;
    assert_eq!(status["reason"], Value::Null, "{status}");
    bench.until_starts("roomy", 1).await;
    for (pod, _) in &pods {
        bench.delete(pod).await;
    }
    gone(&containerd, &["volume", "all", "of-one", "roomy"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_for_its_next_run_is_evicted_for_what_it_left_on_the_disk() {
    /// Longer than the test.
    const BACK_OFF: Duration = Duration::from_hours(1);
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin_with(|settings| {
        settings.pressure = without_thresholds();
        (settings.backoff_base, settings.backoff_cap) = (BACK_OFF, BACK_OFF);
    })
    .await;
    let mut pod = bench.pod("web", "");
    let own = json!({"name": "own", "emptyDir": {"sizeLimit": "2Mi"}});
    pod["spec"]["volumes"].as_array_mut().expect("volumes").push(own);
    bench.edge.apply(&pod);
    // The first failure has no wait.
    for restarts in 0..2 {
        let runs = |status: &Value| {
            is_running(status) && status["containerStatuses"][0]["restartCount"] == restarts
        };
        bench.status("web", "a running pod", runs).await;
        twin.end("web", 3).await;
    }
    let waits = |status: &Value| {
        status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    bench.status("web", "the wait for its next run", waits).await;
    let volume = bench.edged_dir().join("pods").join(uid("web")).join("volumes/own");
    fs::write(volume.join("file"), vec![7; 3 << 20]).expect("written");
    let status = bench.status("web", "its eviction", is_evicted).await;
    let message = "Usage of EmptyDir volume \"own\" exceeds the limit \"2Mi\". ";
    assert_eq!((&status["message"], twin.starts("web")), (&json!(message), 2));
    bench.delete(&pod).await;
    edged.stop().await;
}
