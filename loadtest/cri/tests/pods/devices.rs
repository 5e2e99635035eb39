//! Device plugins on a real containerd: what a container sees of its device.

use std::fs;

use headwater_devices::proto::{ContainerAllocateResponse, DeviceSpec, Mount};
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, until};
use crate::fake_plugin::{Conduct, FakePlugin};
use crate::life::{gone, start};

const RESOURCE: &str = "example.com/full";

/// A pod that notes what it sees of its device, and ends when it is asked to: once for each start.
fn noting(bench: &Bench, name: &str, count: usize) -> Value {
    let script = format!(
        "{{ echo env $GPU; echo file $(cat /gpu/text); touch /gpu/new 2> /dev/null && echo written; \
         head -c 1 /dev/gpu > /dev/null && echo read; \
         echo x 2> /dev/null > /dev/gpu || echo full; }} > /notes/{name}.new; \
         mv /notes/{name}.new /notes/{name}.$(wc -l < /notes/{name}); \
         while [ ! -e /notes/{name}.end ]; do sleep 0.1; done; rm /notes/{name}.end; exit 1"
    );
    let mut pod = bench.pod(name, &script);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {RESOURCE: count.to_string()}});
    pod
}

/// Waits until the pod has noted what it sees at this start.
async fn sees_its_device(bench: &Bench, name: &str, start: usize) {
    let file = bench.notes().join(format!("{name}.{start}"));
    let noted = || async { fs::read_to_string(&file).ok() };
    let noted = until(noted).await.unwrap_or_else(|| panic!("{name} has no start {start}"));
    // `/dev/full` reads zeros and takes nothing.
    assert_eq!(noted, "env full0\nfile of the plugin\nread\nfull\n", "start {start}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_its_device_over_restarts_of_itself_and_of_the_pod_worker() {
    let Some(containerd) = start() else { return };
    let mut bench = Bench::new(containerd.socket());
    let dir = bench.dir.path().join("device-plugins");
    bench.device_plugin_dir = Some(dir.clone());
    let edged = bench.edged().await;
    let files = bench.dir.path().join("gpu");
    fs::create_dir(&files).expect("a folder");
    fs::write(files.join("text"), "of the plugin").expect("written");
    let gives = || ContainerAllocateResponse {
        envs: [("GPU".to_owned(), "full0".to_owned())].into(),
        mounts: vec![Mount {
            container_path: "/gpu".to_owned(),
            host_path: files.to_string_lossy().into_owned(),
            read_only: true,
        }],
        devices: vec![DeviceSpec {
            container_path: "/dev/gpu".to_owned(),
            host_path: "/dev/full".to_owned(),
            permissions: "rw".to_owned(),
        }],
        ..ContainerAllocateResponse::default()
    };
    let plugin = |gives| {
        let conduct = Conduct { gives, ..Conduct::default() };
        FakePlugin::start(&dir, "full.sock", "full0 -full1", conduct)
    };
    let first = plugin(gives());
    first.register(RESOURCE).await.expect("registered");
    let own = noting(&bench, "own", 1);
    bench.edge.apply(&own);
    sees_its_device(&bench, "own", 1).await;
    assert_eq!(first.calls(), ["allocate full0"]);

    // The pod worker starts again without the plugin: the pod runs on.
    edged.stop().await;
    drop(first);
    let edged = bench.edged().await;
    bench.status("own", "the adopted pod", is_running).await;
    let end = bench.notes().join("own.end");
    fs::write(&end, "").expect("written");
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().is_some_and(|words| words.contains("no device plugin serves"))
    };
    bench.status("own", "a container that waits for the plugin", waits).await;
    // The plugin is back, and would give something else: what was given stays.
    let second = plugin(ContainerAllocateResponse::default());
    second.register(RESOURCE).await.expect("registered");
    sees_its_device(&bench, "own", 2).await;
    assert_eq!(second.calls(), [""; 0]);
    // Its device is given to no other pod, until it has ended.
    let other = noting(&bench, "other", 1);
    bench.edge.apply(&other);
    let failed = |status: &Value| status["phase"] == "Failed";
    let status = bench.status("other", "a pod that fails", failed).await;
    assert_eq!(status["reason"], "UnexpectedAdmissionError", "{status}");
    bench.delete(&own).await;
    let more = bench.pod("more", "sleep 100000");
    let mut more = more;
    more["spec"]["containers"][0]["resources"] = json!({"limits": {RESOURCE: "1"}});
    bench.edge.apply(&more);
    bench.status("more", "a pod with the device", is_running).await;
    for pod in [&other, &more] {
        bench.delete(pod).await;
    }
    gone(&containerd, &["own", "other", "more"]).await;
    edged.stop().await;
}
