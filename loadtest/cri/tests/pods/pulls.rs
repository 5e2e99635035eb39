//! Pulls of images: from registries that refuse, hang, drip or break off, and by many pods at once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headwater_cri_lab::{Containerd, Fault, Image, Login, Machine, PullOutcome};
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, start_twin, until};
use crate::fake_edge::statuses;
use crate::life::{FOREVER, gone, start};

/// Ports of loopback in the lab's own network.
const OPEN: u16 = 5000;
const CLOSED: u16 = 5001;
const BROKEN: u16 = 5009;

/// The pods of one image.
const MANY: usize = 100;

/// A registry that answers no pull as it should. How, is in the name of the repository.
struct BrokenRegistry {
    /// Requests for repositories that hang, and for one that drips.
    hanging: Arc<AtomicUsize>,
    dripping: Arc<AtomicUsize>,
}

impl BrokenRegistry {
    /// Listens until the process ends.
    fn start(machine: &Machine) -> Self {
        let of_machine = machine.pid();
        let (hanging, dripping) = (Arc::default(), Arc::default());
        let registry = Self { hanging: Arc::clone(&hanging), dripping: Arc::clone(&dripping) };
        let network = std::fs::File::open(format!("/proc/{of_machine}/ns/net")).expect("a network");
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entered");
            let listener = TcpListener::bind(("127.0.0.1", BROKEN)).expect("it listens");
            ready.send(()).expect("awaited");
            for stream in listener.incoming().flatten() {
                let (hanging, dripping) = (Arc::clone(&hanging), Arc::clone(&dripping));
                std::thread::spawn(move || answer(stream, &hanging, &dripping));
            }
        });
        is_ready.recv().expect("it listens");
        registry
    }
}

fn answer(mut stream: TcpStream, hanging: &AtomicUsize, dripping: &AtomicUsize) {
    let mut request = String::new();
    let read = BufReader::new(&stream).read_line(&mut request);
    if read.is_err() || request.contains("breaks") {
        return;
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\
                Content-Type: application/vnd.oci.image.index.v1+json\r\n\r\n{";
    if request.contains("drips") {
        dripping.fetch_add(1, Ordering::Relaxed);
        let mut written = stream.write_all(head.as_bytes());
        while written.is_ok() {
            std::thread::sleep(Duration::from_millis(500));
            written = stream.write_all(b" ");
        }
        return;
    }
    hanging.fetch_add(1, Ordering::Relaxed);
    // Until containerd closes the connection.
    let _ = BufReader::new(&stream).read_line(&mut request);
    while BufReader::new(&stream).read_line(&mut request).is_ok_and(|read| read > 0) {}
}

/// A pod of this image.
fn pod_of(bench: &Bench, name: &str, image: &str) -> Value {
    let mut pod = bench.pod(name, FOREVER);
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod
}

fn waiting(status: &Value) -> (&str, &str) {
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    let text = |key: &str| waiting[key].as_str().unwrap_or_default();
    (text("reason"), text("message"))
}

fn secret(password: &str) -> Value {
    let login = json!({"username": "edge", "password": password});
    let config = json!({"auths": {format!("127.0.0.1:{CLOSED}"): login}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull", "namespace": "shop"},
        "stringData": {".dockerconfigjson": config.to_string()},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_hangs_drips_or_breaks_off_delays_no_other_pod() {
    let Some(containerd) = start() else { return };
    let broken = BrokenRegistry::start(containerd.machine());
    containerd.without_tls(&format!("127.0.0.1:{BROKEN}")).expect("written");
    let open = containerd.registry(OPEN, None).expect("a registry");
    let image = Image::busybox().expect("an image");
    let good = containerd.push(&open, &image, "team/web:1").expect("it is sent");
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let names = ["hangs-a", "hangs-b", "hangs-c", "hangs-d", "drips", "breaks"];
    let mut pods: Vec<Value> = names
        .iter()
        .map(|name| pod_of(&bench, name, &format!("127.0.0.1:{BROKEN}/team/{name}:1")))
        .collect();
    pods.iter().for_each(|pod| bench.edge.apply(pod));
    // All places for this registry are taken.
    let busy = || async {
        let requests = [&broken.hanging, &broken.dripping].map(|it| it.load(Ordering::Relaxed));
        (requests.iter().sum::<usize>() >= 3).then_some(())
    };
    assert!(until(busy).await.is_some(), "containerd asks the registry");
    let web = pod_of(&bench, "web", &good);
    bench.edge.apply(&web);
    bench.status("web", "a pod of another registry", is_running).await;
    // Its places are free again: what comes later has its turn, and its failure is reported.
    let status = bench.status("breaks", "a pull that breaks off", |status| {
        waiting(status).0 == "ImagePullBackOff"
    });
    let (status, image) = (status.await, format!("127.0.0.1:{BROKEN}/team/breaks:1"));
    let message = waiting(&status).1;
    let head = format!("Back-off pulling image {image:?}: ErrImagePull: ");
    assert!(message.starts_with(&head), "{message}");
    // Each failure has this reason for a tenth of a second. A status may be superseded before it is sent.
    let sent = || statuses(&bench.edge.operations(), "breaks");
    let names_failure = |status: &Value| waiting(status).0 == "ErrImagePull";
    let is_sent = || async { sent().iter().any(names_failure).then_some(()) };
    assert!(until(is_sent).await.is_some(), "{:#?}", sent());
    let hanging = crate::fake_edge::latest_status(&bench.edge.operations(), "hangs-a");
    assert_eq!(waiting(&hanging.expect("a status")).0, "ContainerCreating");
    pods.push(web);
    for pod in &pods {
        bench.delete(pod).await;
    }
    gone(&containerd, &["web", "hangs-a", "drips", "breaks"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_with_a_password_refuses_until_the_secret_has_the_right_one() {
    let Some(containerd) = start() else { return };
    let login = Login { user: "edge".to_owned(), password: "s3cret".to_owned() };
    let closed = containerd.registry(CLOSED, Some(login)).expect("a registry");
    let image = Image::busybox().expect("an image");
    let image = containerd.push(&closed, &image, "team/web:1").expect("it is sent");
    let mut bench = Bench::new(containerd.socket());
    // Only news of the Secret ends the second wait in the time of the test.
    bench.settings.backoff_base = Duration::from_secs(2);
    bench.settings.backoff_cap = Duration::from_secs(600);
    let edged = bench.edged().await;
    let mut pod = pod_of(&bench, "web", &image);
    pod["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    bench.edge.apply(&pod);
    let told = |status: &Value| waiting(status).0 == "ErrImagePull";
    let status = bench.status("web", "a refused pull", told).await;
    // containerd 1.6 and 2.
    let words = ["401 Unauthorized", "authorization failed"];
    assert!(words.iter().any(|words| waiting(&status).1.contains(words)), "{status}");
    let backs_off = |status: &Value| waiting(status).0 == "ImagePullBackOff";
    let status = bench.status("web", "a wait for the next pull", backs_off).await;
    let head = format!("Back-off pulling image {image:?}: ErrImagePull: ");
    assert!(waiting(&status).1.starts_with(&head), "{status}");
    for password in ["wrong", "s3cret"] {
        let before = statuses(&bench.edge.operations(), "web").len();
        bench.edge.apply(&secret(password));
        let next = || async {
            let told = statuses(&bench.edge.operations(), "web");
            let is_next = |status: &&Value| {
                if password == "wrong" {
                    waiting(status).0 == "ErrImagePull"
                } else {
                    is_running(status)
                }
            };
            told[before..].iter().find(is_next).cloned()
        };
        assert!(until(next).await.is_some(), "the password {password}");
    }
    bench.delete(&pod).await;
    gone(&containerd, &["web"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_names_no_image_and_an_image_that_is_not_to_be_pulled_are_told() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin) = start_twin();
    let bench = Bench::new(twin.socket());
    let edged = bench.edged().await;
    let named = pod_of(&bench, "named", "localhost/Web:1");
    let mut never = pod_of(&bench, "never", "localhost/absent:1");
    never["spec"]["containers"][0]["imagePullPolicy"] = json!("Never");
    for (pod, reason, message) in [
        (
            &named,
            "InvalidImageName",
            "Failed to apply default image tag \"localhost/Web:1\": couldn't parse image name \
             \"localhost/Web:1\": invalid reference format: repository name (Web) must be lowercase",
        ),
        (
            &never,
            "ErrImageNeverPull",
            "Container image \"localhost/absent:1\" is not present with pull policy of Never",
        ),
    ] {
        bench.edge.apply(pod);
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let told = |status: &Value| waiting(status).0 == reason;
        let status = bench.status(name, reason, told).await;
        assert_eq!(waiting(&status).1, message);
    }
    assert_eq!(twin.calls("PullImage"), 0);
    for pod in [&named, &never] {
        bench.delete(pod).await;
    }
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_pods_of_one_image_make_one_pull() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin) = start_twin();
    let image = "localhost/web:1";
    twin.set_pull(image, PullOutcome::Pulled);
    twin.fail_next("PullImage", Fault::Slow(Duration::from_secs(1)));
    let bench = Bench::new(twin.socket());
    let edged = bench.edged().await;
    let names: Vec<String> = (0..MANY).map(|number| format!("web-{number}")).collect();
    for name in &names {
        bench.edge.apply(&pod_of(&bench, name, image));
    }
    for name in &names {
        bench.status(name, "a running pod", is_running).await;
    }
    assert_eq!(twin.calls("PullImage"), 1);
    edged.stop().await;
}
