//! Pods on the twin, whose calls and events fail by a seed.

use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, Fault, FaultRates, Restart, Twin};

use crate::bench::{Bench, is_running, until};

const SEEDS: std::ops::Range<u64> = 0..4;

fn twin(dir: &std::path::Path) -> Twin {
    let twin = Twin::start(&dir.join("cri.sock")).expect("a twin");
    twin.add_image(BUSYBOX_IMAGE);
    twin
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_starts_nothing_twice() {
    if !Containerd::is_possible() {
        return;
    }
    for method in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        let scratch = tempfile::tempdir().expect("a folder");
        let twin = twin(scratch.path());
        let bench = Bench::new(twin.socket());
        let edged = bench.edged().await;
        twin.fail_next(method, Fault::LostAnswer);
        let pod = bench.pod("web", "");
        bench.edge.apply(&pod);
        let status = bench.status("web", method, is_running).await;
        assert_eq!(twin.starts("web"), 1, "{method}: {status}");
        bench.delete(&pod).await;
        edged.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_once_whatever_fails() {
    if !Containerd::is_possible() {
        return;
    }
    for seed in SEEDS {
        eprintln!("seed {seed}");
        let scratch = tempfile::tempdir().expect("a folder");
        let mut twin = twin(scratch.path());
        let bench = Bench::new(twin.socket());
        let edged = bench.edged().await;
        twin.set_faults(
            seed,
            FaultRates {
                lost_answers: 80,
                refused: 80,
                slow: 20,
                lost_events: 200,
                doubled_events: 200,
                late_events: 200,
            },
        );
        let names = ["a", "b", "c", "d"];
        let pods = names.map(|name| bench.pod(name, ""));
        pods.iter().for_each(|pod| bench.edge.apply(pod));
        for name in names {
            bench.status(name, "a running pod", is_running).await;
        }
        // An end while nothing listens has no event: edged looks when it is connected again.
        twin.stop().await;
        twin.end("a", 3).await;
        twin.restart(Restart::Kept).await.expect("it serves again");
        let again = || async { (twin.starts("a") > 1).then_some(()) };
        assert!(until(again).await.is_some(), "seed {seed}: the end of a container is not noticed");
        let starts = names.map(|name| twin.starts(name));
        assert_eq!(starts, [2, 1, 1, 1], "seed {seed}");
        for pod in &pods {
            bench.delete(pod).await;
        }
        edged.stop().await;
    }
}
