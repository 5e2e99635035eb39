//! Kubernetes' own tests of a node, on an edge that runs containers.
//!
//! `node_cases/cases.yaml` lists every case with the mark `[NodeConformance]` of these files. Some run in every
//! check, all of them with `cargo xtask survive node-conformance --rounds 1`, and a part of them with
//! `HEADWATER_NODE_CONFORMANCE_CASES=WORDS` before it. Control plane, program, suite and
//! containers share network, mounts and processes, as on a machine with a kubelet.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use headwater_cluster::{ControlPlaneSettings, ImagePrograms, Program, SuiteCase, SuiteRun};
use headwater_cri_lab::{Containerd, ContainerdSettings, Image, Registry, blob_digest};
use headwater_e2e::pressure::NO_DISK_PRESSURE;
use headwater_e2e::running::Running;
use serde_json::json;

use crate::case_list::{CaseList, failures};
use crate::world::{
    USER, create, deployed, free_port, kubectl, kubelet_table, node, without_controllers,
};

/// See [`CaseList`].
const LIST: &str = include_str!("node_cases/cases.yaml");

/// The mark of a case that every node passes.
const NODE_CONFORMANCE: &str = "[NodeConformance]";

const NODE: &str = "gw-1";

/// Cases at once. Most of them wait most of their time.
const AT_ONCE: NonZeroUsize = NonZeroUsize::new(12).expect("not zero");

/// The time limit of the cases of every check, and of all cases.
const CHECK_WITHIN: Duration = Duration::from_mins(6);
const ROUND_WITHIN: Duration = Duration::from_mins(90);

/// The variable with the number of rounds of all cases.
const ROUNDS: &str = "HEADWATER_NODE_CONFORMANCE_ROUNDS";

/// The variable with words that the names of a round's cases have in common: a part of all cases.
const CASES: &str = "HEADWATER_NODE_CONFORMANCE_CASES";

/// The variable with the socket of containerd, for the test that runs inside.
const SOCKET: &str = "HEADWATER_LAB_SOCKET";

/// The images of the suite, at the versions that it names.
const AGNHOST: [&str; 2] = ["agnhost:2.63.0", "agnhost:2.55"];
const BUSYBOX: [&str; 3] = ["busybox:1.37.0-1", "glibc-dns-testing:2.0.0", "nginx:1.15-4"];
const NON_ROOT: &str = "nonroot:1.5";
const NO_NEW_PRIVILEGES: &str = "nonewprivs:1.4";
const REGISTRY: &str = "registry.k8s.io";
const REPOSITORY: &str = "e2e-test-images";
const PAUSE: &str = "registry.k8s.io/pause:3.10.2";

/// The port of the registry in the network of containerd.
const REGISTRY_PORT: u16 = 5050;

/// The folder of the image that the suite's own registry serves.
const SERVED: &str = "var/registry/pause";

/// The users of the suite's program.
const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n";
const GROUP: &str = "root:x:0:\nuser-defined-in-image:x:1000:\n\
                     group-defined-in-image:x:50000:user-defined-in-image\n";

/// The cases call curl with flags and an address, and read what comes.
const CURL: &str = "#!/bin/sh\nfor last; do :; done\nexec wget -q -O - \"$last\"\n";

/// The cases give a shell plain scripts.
const BASH: &str = "#!/bin/sh\nexec /bin/sh \"$@\"\n";

#[test]
fn the_list_has_every_case_of_a_node() {
    let program = Program::prepare().expect("the suite");
    let suite = SuiteCase::all(&program).expect("its cases");
    assert_eq!(CaseList::parse(LIST).differences(&suite, NODE_CONFORMANCE), [""; 0]);
}

/// The program is started once more in the namespaces of containerd: the edge mounts volumes that containerd sees.
#[test]
fn cases_of_a_node_pass_on_an_edge_with_containers() {
    if !Containerd::is_possible() {
        return;
    }
    let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    containerd.import(&images()).expect("the images of the suite");
    // A case of the round pulls an image that the others find on the node.
    let _registry = std::env::var_os(ROUNDS).map(|_| registry(&containerd));
    let program = std::env::current_exe().expect("this program");
    let mut command = containerd.machine().command(program.to_str().expect("a path"));
    command.args(["--exact", "node_cases::inside", "--nocapture"]);
    let status = command.env(SOCKET, containerd.socket()).status().expect("it starts");
    assert!(status.success(), "{status}");
}

/// A registry with the suite's own program, of which containerd asks for the images of Kubernetes.
fn registry(containerd: &Containerd) -> Registry {
    let registry = containerd.registry(REGISTRY_PORT, None).expect("a registry");
    let image = agnhost(Image::busybox().expect("busybox"));
    let repository = format!("{REPOSITORY}/{}", AGNHOST[0]);
    containerd.push(&registry, &image, &repository).expect("the image is sent");
    containerd.mirror(REGISTRY, &registry).expect("the registry is named to containerd");
    registry
}

#[test]
fn inside() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        cases_pass(Path::new(&socket));
    }
}

/// Images as those of the suite, of which the pods use a shell, small programs, and the suite's own program.
fn images() -> Vec<Image> {
    let busybox = Image::busybox().expect("busybox").command(["sh"]);
    let pause = Image::pause().expect("pause").named(PAUSE);
    let agnhost = agnhost(busybox.clone());
    let named =
        AGNHOST.map(|name| agnhost.clone().named(format!("{REGISTRY}/{REPOSITORY}/{name}")));
    let shells =
        BUSYBOX.map(|name| busybox.clone().named(format!("{REGISTRY}/{REPOSITORY}/{name}")));
    let non_root = busybox.named(format!("{REGISTRY}/{REPOSITORY}/{NON_ROOT}")).user("1234");
    let non_root = non_root.entrypoint(["/bin/id", "-u"]).command([]);
    let of_rounds = std::env::var_os(ROUNDS).map(|_| effective_user());
    named.into_iter().chain(shells).chain([pause, non_root]).chain(of_rounds).collect()
}

/// The image whose program sets the user. No case of every check runs it.
fn effective_user() -> Image {
    let program = ImagePrograms::prepare().expect("the programs of images").effective_user();
    let program = fs::read(program).expect("the program of an image");
    let image = Image::busybox().expect("busybox").file("bin/nnp", 0o6755, program);
    image.command(["/bin/nnp"]).named(format!("{REGISTRY}/{REPOSITORY}/{NO_NEW_PRIVILEGES}"))
}

fn agnhost(busybox: Image) -> Image {
    let program = Program::prepare().expect("the suite").agnhost();
    let program = fs::read(program).expect("the program of an image");
    let server =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let image = busybox
        .folder("uploads", 0o755)
        .file("bin/curl", 0o755, CURL)
        .file("bin/bash", 0o755, BASH)
        .file("etc/passwd", 0o644, PASSWD)
        .file("etc/group", 0o644, GROUP)
        .file("localhost.crt", 0o644, server.cert.pem())
        .file("localhost.key", 0o644, server.signing_key.serialize_pem())
        .file("agnhost", 0o755, program)
        .link("agnhost-2", "/agnhost")
        .entrypoint(["/agnhost"])
        .command(["pause"]);
    with_served_image(image)
}

/// Adds the image that the suite's own registry serves from its files.
fn with_served_image(image: Image) -> Image {
    let blobs = Image::pause().expect("pause").blobs().expect("the parts of an image");
    let path = |kind: &str, digest: &str| {
        let digits = digest.trim_start_matches("sha256:");
        format!("{SERVED}/{kind}/sha256/{}/{digits}/data", &digits[..2])
    };
    let manifest = blob_digest(&blobs.manifest);
    let of_blob = |blob: &[u8]| path("blobs", &blob_digest(blob));
    let tag = format!("{SERVED}/manifests/testing");
    image
        .file(&of_blob(&blobs.layer), 0o644, blobs.layer)
        .file(&of_blob(&blobs.config), 0o644, blobs.config)
        .file(&path("manifests", &manifest), 0o644, blobs.manifest)
        .file(&tag, 0o644, manifest)
}

fn cases_pass(runtime: &Path) {
    let list = CaseList::parse(LIST);
    let rounds: Option<u64> =
        std::env::var(ROUNDS).ok().map(|text| text.parse().expect("a number"));
    let scratch = tempfile::tempdir().expect("a folder");
    let data = scratch.path().join("cluster");
    let settings =
        ControlPlaneSettings { data: Some(data.clone()), ..ControlPlaneSettings::default() };
    let (cluster, kubeconfig) = deployed(settings);
    without_controllers(&cluster);
    // By default the controller changes tolerations of pods, and their generation with it. A case counts them.
    let mut node = node(NODE);
    node["metadata"]["annotations"] = json!({"headwater/offline": "evict"});
    create(&cluster, &node);
    let config = scratch.path().join("up.toml");
    fs::write(&config, settings_of(&data.join("certificates"))).expect("written");
    let (config, kubeconfig) = (config.display().to_string(), kubeconfig.display().to_string());
    let runtime = runtime.display().to_string();
    let of_cluster = ["--config", &config, "--kubeconfig", &kubeconfig, "--nodes", NODE];
    let of_runtime = ["--runtime", "cri", "--cri-endpoint", &runtime];
    let running = Running::start(&[&of_cluster[..], &of_runtime].concat());
    running.wait_for("the node to be ready", |_| {
        let ready = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        (kubectl(&cluster, &["get", "nodes", "-o", ready]).trim() == "True").then_some(())
    });
    let words = std::env::var(CASES).unwrap_or_default();
    let cases = list.selected(rounds.is_some(), &words);
    let within = if rounds.is_some() { ROUND_WITHIN } else { CHECK_WITHIN };
    for round in 0..rounds.unwrap_or(1) {
        let folder = running.folder().join(format!("suite-{round}"));
        let run = SuiteRun { cases: &cases, at_once: AT_ONCE, within, folder: &folder };
        let results = run.run(&cluster).expect("the suite runs");
        let failures = failures(&cases, &results);
        println!("of {} cases failed {}", cases.len(), failures.len());
        assert!(failures.is_empty(), "{failures:#?}\n{}", running.output());
    }
    let log = cluster.audit_log().expect("an audit log");
    // The server's rules for nodes know a new pod a moment later: its token is requested again.
    let is_lasting = |request: &String| !request.contains("/token");
    let refused: Vec<String> = log.refused(USER).into_iter().filter(is_lasting).collect();
    assert_eq!(refused, [""; 0], "the roles refuse what the controller does");
}

/// The kubelet's server of the hub, by which the API server reaches the containers; and no pressure of the disk of a
/// machine that runs tests.
fn settings_of(certificates: &Path) -> String {
    let port = free_port();
    let table = kubelet_table(certificates, port);
    let address = format!("kubelet_address = \"127.0.0.1:{port}\"");
    format!("{table}[kubernetes]\n{address}\nevents = \"all\"\n{NO_DISK_PRESSURE}")
}
