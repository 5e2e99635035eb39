//! The static CPU policy on a real containerd: a container's own processors, read in the container.

use std::fs;

use headwater_edged::CpuPolicy;
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, uid, until};
use crate::cgroups::{CgroupRoot, CgroupValue};
use crate::life::{gone, start};

/// A pod that notes again and again on which processors it may run.
fn noting(bench: &Bench, name: &str) -> Value {
    let script = format!(
        "trap 'exit 0' TERM; while :; do grep Cpus_allowed_list /proc/self/status > /notes/{name}.new; \
         mv /notes/{name}.new /notes/{name}.cpus; sleep 0.1; done"
    );
    bench.pod(name, &script)
}

/// Waits until the pod may run on exactly these processors.
async fn runs_on(bench: &Bench, name: &str, cpus: &str) {
    let file = bench.notes().join(format!("{name}.cpus"));
    let noted = || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.split_whitespace().last().unwrap_or_default().to_owned()
    };
    let is_so = || async { (noted() == cpus).then_some(()) };
    assert!(until(is_so).await.is_some(), "{name} runs on {}, and not on {cpus}", noted());
}

fn list(first: usize, last: usize) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guaranteed_pod_has_its_processors_for_itself_over_every_restart() {
    let cpus = std::thread::available_parallelism().expect("a machine").get();
    let Some(containerd) = start().filter(|_| cpus > 1) else { return };
    let mut bench = Bench::new(containerd.socket());
    let root = CgroupRoot::claim();
    bench.cgroup_root.clone_from(&root.0);
    bench.settings.cpu_policy = CpuPolicy::Static;
    bench.settings.reserved.cpu_milli = 500;
    let edged = bench.edged().await;
    let (all, last) = (list(0, cpus - 1), cpus - 1);
    let shares = noting(&bench, "shares");
    bench.edge.apply(&shares);
    runs_on(&bench, "shares", &all).await;
    // All but the reserved one.
    let mut own = noting(&bench, "own");
    let count = if cpus == 2 { 1 } else { cpus - 2 };
    own["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": count.to_string(), "memory": "64Mi"}});
    bench.edge.apply(&own);
    bench.status("own", "a running pod", is_running).await;
    let file = bench.edged_dir().join("cpus.json");
    let allocations = || -> Value {
        serde_json::from_slice(&fs::read(&file).expect("it is there")).expect("JSON")
    };
    let given = allocations()["pods"][uid("own")]["own"].as_str().expect("given").to_owned();
    runs_on(&bench, "own", &given).await;
    let rest = if cpus == 2 { "0".to_owned() } else { format!("0,{last}") };
    if given == list(1, count) {
        runs_on(&bench, "shares", &rest).await;
    }
    let quota = root.read(CgroupValue::CpuQuota, &format!("pod{}", uid("own")));
    assert!(quota == "none" || quota.contains("No such file"), "{quota}");

    // The pod worker starts again, and then finds its file damaged.
    edged.stop().await;
    let edged = bench.edged().await;
    bench.status("own", "the adopted pod", is_running).await;
    assert_eq!(allocations()["pods"][uid("own")]["own"], given.as_str());
    edged.stop().await;
    fs::write(&file, "torn").expect("written");
    let edged = bench.edged().await;
    let again = || async {
        let text = fs::read_to_string(&file).ok()?;
        text.contains(&uid("own")).then_some(())
    };
    assert!(until(again).await.is_some(), "the pod has no processors again");
    let aside = bench.edged_dir().join("cpus.json.damaged-1");
    assert_eq!(fs::read_to_string(aside).expect("moved aside"), "torn");
    assert_eq!(allocations()["pods"][uid("own")]["own"], given.as_str());
    // One that starts now starts on the rest.
    let joins = noting(&bench, "joins");
    bench.edge.apply(&joins);
    if given == list(1, count) {
        runs_on(&bench, "joins", &rest).await;
        runs_on(&bench, "shares", &rest).await;
    }
    runs_on(&bench, "own", &given).await;
    assert_eq!((bench.starts("own"), bench.starts("shares")), (1, 1));

    // What a pod leaves is shared again.
    bench.delete(&own).await;
    for name in ["shares", "joins"] {
        runs_on(&bench, name, &all).await;
    }
    edged.stop().await;
    // So it is where the policy is off.
    bench.settings.cpu_policy = CpuPolicy::None;
    let edged = bench.edged().await;
    let forgotten = || async { (!file.exists()).then_some(()) };
    assert!(until(forgotten).await.is_some(), "the file of the policy stays");
    for pod in [&shares, &joins] {
        bench.delete(pod).await;
    }
    gone(&containerd, &["shares", "own", "joins"]).await;
    edged.stop().await;
}
