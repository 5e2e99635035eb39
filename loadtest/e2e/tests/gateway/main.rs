//! A gateway as an operator installs it: systemd, containerd with its driver of control groups, the units and settings
//! of `ops/deploy`, on a kernel with version 2 of control groups. It is an emulated machine, whose power is cut; the
//! cloud runs outside of it.
//!
//! The long form alone runs it, `cargo xtask survive gateway`.

mod kit;

use std::env;

use headwater_e2e::authority::Authority;
use headwater_e2e::fleet::Fleet;
use headwater_emulator::{Boot, EmulatedMachine, FirstProcess, OUTSIDE};
use serde_json::Value;

use kit::Kit;

/// The long form sets it.
const EMULATOR: &str = "HEADWATER_EMULATOR";

/// The node of the settings that are shipped.
const NODE: &str = "gateway-1";

const HUB: &str = "hub";
const CONTROLLER: &str = "controller";

/// A pod of each quality of service. Each notes its starts durably.
const PODS: [(&str, &str); 3] = [
    ("guaranteed", "{limits: {cpu: 200m, memory: 64Mi}}"),
    ("burstable", "{requests: {cpu: 100m, memory: 32Mi}}"),
    ("besteffort", "{}"),
];

/// The slice of each pod below that of all pods, and what the kernel shows of it.
const SLICES: [(&str, [&str; 2]); 3] = [
    ("headwater-pod*.slice", ["cpu.max=20000 100000", "memory.max=67108864"]),
    (
        "headwater-burstable.slice/headwater-burstable-pod*.slice",
        ["cpu.max=max 100000", "memory.max=max"],
    ),
    (
        "headwater-besteffort.slice/headwater-besteffort-pod*.slice",
        ["cpu.weight=1", "memory.max=max"],
    ),
];

fn manifest() -> String {
    let pod = |(name, resources): (&str, &str)| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop}}
spec:
  nodeName: {NODE}
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/headwater/busybox:1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'echo start >> /notes/{name}; sync /notes/{name}; trap \"exit 0\" TERM; sleep 100000 & wait']
    resources: {resources}
    volumeMounts: [{{name: notes, mountPath: /notes}}]
  volumes: [{{name: notes, hostPath: {{path: /var/lib/headwater/notes, type: DirectoryOrCreate}}}}]
"
        )
    };
    PODS.map(pod).join("---\n")
}

/// Says how far the test has come, which takes minutes.
fn step(what: &str) {
    eprintln!("== {what}");
}

fn run(machine: &mut EmulatedMachine, script: &str) -> String {
    let ended = machine.run(script).expect("the machine runs it");
    assert_eq!(ended.code, 0, "{script}\n{}", ended.output);
    ended.output
}

/// Waits in the machine until a condition of the shell holds.
fn wait(machine: &mut EmulatedMachine, what: &str, condition: &str) {
    let script = format!(
        "for second in $(seq 90); do if {condition}; then exit 0; fi; sleep 1; done
         ls -d /sys/fs/cgroup/headwater.slice/*.slice /sys/fs/cgroup/headwater.slice/*/*.slice
         ctr --namespace k8s.io containers list
         systemctl --no-pager status 'headwater-*' containerd
         journalctl --no-pager --lines 30 --unit 'headwater-*'
         exit 1"
    );
    let ended = machine.run(&script).expect("the machine runs it");
    assert_eq!(ended.code, 0, "waited for {what}\n{}", ended.output);
}

/// The condition that every pod has noted so many starts.
fn has_started(times: usize) -> String {
    let of = |(name, _): (&str, &str)| {
        format!("[ \"$(grep -c start /var/lib/headwater/notes/{name} 2>&1)\" = {times} ]")
    };
    PODS.map(of).join(" && ")
}

/// The statuses of the pods in the cloud, once all of them are as wanted.
fn wait_for_statuses(fleet: &Fleet, what: &str, wanted: impl Fn(&Value) -> bool) {
    fleet.wait_for(what, |fleet| {
        let pods = fleet.part(CONTROLLER).json(&["get", "pods", "-n", "shop", "-o", "json"])?;
        let pods = pods["items"].as_array()?.clone();
        (pods.len() == PODS.len() && pods.iter().all(|pod| wanted(&pod["status"]))).then_some(())
    });
}

fn is_running(status: &Value, restarts: u64) -> bool {
    let container = &status["containerStatuses"][0];
    status["phase"] == "Running"
        && container["ready"] == true
        && container["restartCount"] == restarts
}

#[test]
fn pods_run_in_slices_and_come_back_after_power_cuts_with_and_without_a_network() {
    if env::var_os(EMULATOR).is_none() {
        eprintln!("NOT RUN: it takes minutes: cargo xtask survive gateway");
        return;
    }
    let (authority, mut fleet) = (Authority::new(), Fleet::on_one_broker(1));
    fleet.add_controller(CONTROLLER);
    let identity = authority.issue_at("hub", HUB, &OUTSIDE.to_string());
    fleet.add_hub_with(HUB, &identity.iter().map(String::as_str).collect::<Vec<_>>());
    fleet.write("pods.yaml", &manifest());
    let hub = (OUTSIDE, fleet.hub_address(HUB).port()).into();
    let kit = Kit::make(&authority, NODE, hub);

    let boot = |network| Boot { first: FirstProcess::Systemd, network };
    step("the gateway is installed");
    let mut machine = EmulatedMachine::start(None, boot(true)).expect("a machine");
    run(&mut machine, &kit.installation());
    wait(&mut machine, "the first starts", &has_started(1));
    wait_for_statuses(&fleet, "running pods", |status| is_running(status, 0));
    for (slice, values) in SLICES {
        let place = format!("/sys/fs/cgroup/headwater.slice/{slice}");
        for value in values {
            let (file, expected) = value.split_once('=').expect("a value");
            let shown = run(&mut machine, &format!("cat {place}/{file}"));
            assert_eq!(shown.trim(), expected, "{file} of {slice}");
        }
        let processes = run(&mut machine, &format!("cat {place}/cri-containerd-*/cgroup.procs"));
        assert!(processes.lines().count() >= 2, "processes in {slice}: {processes:?}");
    }

    step("a power cut; there is no network afterwards");
    machine.cut_power(boot(false)).expect("it starts again");
    wait(&mut machine, "the starts after a power cut", &has_started(2));
    step("a power cut; the network is there again");
    machine.cut_power(boot(true)).expect("it starts again");
    wait(&mut machine, "the starts after the second power cut", &has_started(3));
    wait_for_statuses(&fleet, "pods with two restarts", |status| is_running(status, 2));

    step("the pods are deleted");
    // A folder that describes nothing any more removes nothing.
    fleet.write(
        "pods.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rest, namespace: shop}\n",
    );
    let left = "ls -d /sys/fs/cgroup/headwater.slice/*pod*.slice \
                /sys/fs/cgroup/headwater.slice/*/*pod*.slice 2>/dev/null; \
                ctr --namespace k8s.io containers list --quiet";
    wait(&mut machine, "the end of the pods", &format!("[ -z \"$({left})\" ]"));
}
