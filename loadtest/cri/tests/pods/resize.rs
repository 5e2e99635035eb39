//! Other resources for containers that run (KEP-1287), read back from the kernel.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::bench::{Bench, is_running, uid, until};
use crate::cgroups::{CgroupRoot, CgroupValue};
use crate::life::{FOREVER, gone, start};

/// A container that runs with resources, of a pod with two of them.
fn container(pod: &Value, name: &str, resources: Value, policy: Value) -> Value {
    let mut container = pod["spec"]["containers"][0].clone();
    container["name"] = json!(name);
    container["resources"] = resources;
    container["resizePolicy"] = policy;
    container
}

/// The values of the containers of a pod.
fn of_containers(root: &CgroupRoot, pod: &str, value: CgroupValue) -> BTreeSet<String> {
    let place = root.place(value.controller(), pod);
    let entries = place.read_dir().into_iter().flatten().flatten();
    let places = entries.filter(|entry| entry.path().is_dir());
    places.map(|entry| value.read(&entry.path())).collect()
}

fn has_condition(status: &Value, kind: &str) -> bool {
    status["conditions"].as_array().is_some_and(|all| all.iter().any(|it| it["type"] == kind))
}

fn restarts(status: &Value) -> Vec<&Value> {
    let containers = status["containerStatuses"].as_array().expect("containers");
    containers.iter().map(|it| &it["restartCount"]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_run_get_more_and_less_and_their_pod_with_them() {
    let Some(containerd) = start() else { return };
    let mut bench = Bench::new(containerd.socket());
    let root = CgroupRoot::claim();
    bench.cgroup_root.clone_from(&root.0);
    let edged = bench.edged().await;
    let (none, restarts_for_memory) =
        (json!([]), json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]));
    let of = |cpu: &str, memory: &str| json!({"limits": {"cpu": cpu, "memory": memory}, "requests": {"cpu": cpu, "memory": memory}});
    let mut pod = bench.pod("web", FOREVER);
    let set = |pod: &mut Value, first: Value, second: Value| {
        let first = container(pod, "first", first, none.clone());
        let second = container(pod, "second", second, restarts_for_memory.clone());
        pod["spec"]["containers"] = json!([first, second]);
    };
    set(&mut pod, of("100m", "32Mi"), of("100m", "32Mi"));
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    let place = format!("pod{}", uid("web"));

    // The steps: more of both, less of both, more memory for the container that restarts for it.
    let steps = [
        (of("300m", "64Mi"), of("200m", "32Mi"), "500m", 96, [0, 0]),
        (of("50m", "16Mi"), of("150m", "32Mi"), "200m", 48, [0, 0]),
        (of("50m", "16Mi"), of("150m", "48Mi"), "200m", 64, [0, 1]),
    ];
    for (first, second, cpu, memory_mib, expected) in steps {
        set(&mut pod, first.clone(), second.clone());
        bench.edge.apply(&pod);
        let has = |status: &Value| {
            let wanted = [&first, &second];
            let all = status["containerStatuses"].as_array();
            let stated = all.is_some_and(|all| {
                all.iter().zip(wanted).all(|(it, wanted)| {
                    it["resources"] == *wanted && it["allocatedResources"] == wanted["requests"]
                })
            });
            stated && is_running(status) && !has_condition(status, "PodResizeInProgress")
        };
        let status = bench.status("web", "the new resources", has).await;
        assert_eq!(restarts(&status), expected.map(Value::from).iter().collect::<Vec<_>>());
        let milli = |text: &str| text.trim_end_matches('m').parse::<u64>().expect("thousandths");
        let quota = |text: &str| (milli(text) * 100).to_string();
        let bytes = |mib: u64| (mib << 20).to_string();
        assert_eq!(root.read(CgroupValue::CpuQuota, &place), quota(cpu));
        assert_eq!(root.read(CgroupValue::MemoryLimit, &place), bytes(memory_mib));
        for of in [&first, &second] {
            let cpu = quota(of["limits"]["cpu"].as_str().expect("a limit"));
            let memory = of["limits"]["memory"].as_str().expect("a limit");
            let memory = bytes(memory.trim_end_matches("Mi").parse().expect("a number"));
            let quotas = of_containers(&root, &place, CgroupValue::CpuQuota);
            assert!(quotas.contains(&cpu), "{cpu} in {quotas:?}");
            let limits = of_containers(&root, &place, CgroupValue::MemoryLimit);
            assert!(limits.contains(&memory), "{memory} in {limits:?}");
        }
    }

    // Less than the container uses: it runs on with what it has, and the status says why.
    set(&mut pod, of("50m", "4Ki"), of("150m", "48Mi"));
    bench.edge.apply(&pod);
    let refused = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut own = conditions.filter(|it| it["type"] == "PodResizeInProgress");
        own.any(|it| {
            it["message"]
                .as_str()
                .is_some_and(|text| text.contains("memory limit (4096) below current usage"))
        })
    };
    let status = bench.status("web", "a refusal", refused).await;
    assert_eq!(status["containerStatuses"][0]["resources"]["limits"]["memory"], "16777216");
    assert!(is_running(&status));
    bench.delete(&pod).await;
    gone(&containerd, &["web"]).await;
    edged.stop().await;
    let is_gone =
        || async { root.read(CgroupValue::MemoryLimit, &place).contains("No such").then_some(()) };
    assert!(until(is_gone).await.is_some());
}
