//! The network of pods: one whose plugin fails, and ports of the machine.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use headwater_cri_lab::Containerd;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bench::{Bench, is_running, until};
use crate::life::{FOREVER, gone, start};

/// The network's file, and the folders in which plugins and runtime keep what a sandbox has.
const NETWORK: &str = "cni/10-headwater.conflist";
const ADDRESSES: &str = "/var/lib/cni/networks/headwater";
const NAMESPACES: &str = "/run/netns";

/// A network with one address for pods beside the bridge's own.
const RANGE: &str = "10.244.0.0/24";
const NARROW_RANGE: &str = "10.244.9.0/30";
const ONLY_ADDRESS: &str = "10.244.9.2";

/// Attempts that fail before an address is free.
const FAILED_ATTEMPTS: usize = 3;

/// The time limit of an answer of a program that listens.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A pod with a network of its own.
fn pod(bench: &Bench, name: &str, script: &str) -> Value {
    let mut pod = bench.pod(name, script);
    pod["spec"]["hostNetwork"] = json!(false);
    pod
}

/// The names in a folder of the machine.
fn names(containerd: &Containerd, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(containerd.machine().path(folder)).into_iter().flatten();
    entries.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned()).collect()
}

/// The addresses that are taken. The folder has other files, too.
fn addresses(containerd: &Containerd) -> Vec<String> {
    let mut names = names(containerd, ADDRESSES);
    names.retain(|name| name.parse::<Ipv4Addr>().is_ok());
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_network_fails_says_why_leaves_nothing_and_starts_once_it_can() {
    let Some(mut containerd) = start() else { return };
    let file = containerd.data().join(NETWORK);
    let network = fs::read_to_string(&file).expect("the network's file");
    assert!(network.contains(RANGE), "{network}");
    fs::write(&file, network.replace(RANGE, NARROW_RANGE)).expect("written");
    containerd.server().kill().expect("it can be killed");
    containerd.server().start().expect("it starts with the other network");
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let (first, second) = (pod(&bench, "first", FOREVER), pod(&bench, "second", FOREVER));
    bench.edge.apply(&first);
    let status = bench.status("first", "a pod with the address", is_running).await;
    assert_eq!(status["podIP"], ONLY_ADDRESS);

    bench.edge.apply(&second);
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "CreatePodSandboxError"
            && waiting["message"]
                .as_str()
                .is_some_and(|why| why.contains("no IP addresses available"))
    };
    let status = bench.status("second", "the reason of the failure", waits).await;
    assert_eq!(status["phase"], "Pending");
    let failures = || bench.pod_events("second");
    let failed = |event: &&String| {
        event.starts_with("FailedCreatePodSandBox: ") && event.contains("no IP addresses available")
    };
    let enough =
        || async { (failures().iter().filter(failed).count() >= FAILED_ATTEMPTS).then_some(()) };
    assert!(until(enough).await.is_some(), "Events: {:?}", failures());
    let one = || async {
        let (addresses, namespaces) = (addresses(&containerd), names(&containerd, NAMESPACES));
        (addresses == [ONLY_ADDRESS] && namespaces.len() == 1).then_some(())
    };
    assert!(until(one).await.is_some(), "the failed attempts left something");

    bench.delete(&first).await;
    let status = bench.status("second", "the pod with the free address", is_running).await;
    assert_eq!(status["podIP"], ONLY_ADDRESS);
    bench.delete(&second).await;
    gone(&containerd, &["first", "second"]).await;
    let none = || async {
        let is_empty =
            addresses(&containerd).is_empty() && names(&containerd, NAMESPACES).is_empty();
        is_empty.then_some(())
    };
    let left = || (addresses(&containerd), names(&containerd, NAMESPACES));
    assert!(until(none).await.is_some(), "left: {:?}", left());
    edged.stop().await;
}

#[test]
fn a_host_port_leads_to_the_container() {
    let test = || {
        let Some(containerd) = start() else { return };
        // The threads of the runtime, too: the port is one of this network.
        containerd.machine().enter_network().expect("the network is there");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(leads_to_the_container(&containerd));
    };
    if let Err(panic) = thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

async fn leads_to_the_container(containerd: &Containerd) {
    /// The port of the machine, and that of the container.
    const PORTS: [u16; 2] = [18_080, 8_080];
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let [host, container] = PORTS;
    let serve = format!("while :; do echo served | nc -l -p {container}; done");
    let mut web = pod(&bench, "web", &serve);
    web["spec"]["containers"][0]["ports"] = json!([{"containerPort": container, "hostPort": host}]);
    bench.edge.apply(&web);
    let status = bench.status("web", "a pod", is_running).await;
    let address: Ipv4Addr = status["podIP"].as_str().expect("an address").parse().expect("IPv4");
    // The bridge's address is one of the machine's, and the first of the range.
    let [a, b, c, _] = address.octets();
    let machine = SocketAddr::from((Ipv4Addr::new(a, b, c, 1), host));
    let answer = || async {
        let mut answer = String::new();
        let asked = async {
            TcpStream::connect(machine).await.ok()?.read_to_string(&mut answer).await.ok()
        };
        timeout(ANSWER_WITHIN, asked).await.ok()??;
        (answer == "served\n").then_some(())
    };
    assert!(until(answer).await.is_some(), "no answer at the port of the machine");
    bench.delete(&web).await;
    gone(containerd, &["web"]).await;
    edged.stop().await;
}
