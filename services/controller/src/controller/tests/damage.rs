//! Databases whose rows were damaged: the controller on them goes on, heals, or says why not.

use headwater_store::damage::{apply_damage, damage};
use proptest::prelude::*;

use super::*;

fn status(n: u64) -> ReportBody {
    ReportBody::PodStatus {
        pod: format!("d/pod/p{}", n % 3).parse().expect("a key"),
        uid: format!("u-p{}", n % 3),
        status: json!({"phase": "Running", "n": n}).to_string().into(),
    }
}

/// Starts on damaged disks, receives the objects again, and reads the picture.
async fn goes_on(world: &World) {
    let (source, script) = script();
    let (log, clock) = (world.downstream.handle(), world.downstream.clone());
    let dependencies = ControllerDependencies {
        downstream: Arc::new(log),
        upstream: Arc::new(world.upstream.handle()),
        published: world.published.clone(),
        picture: world.picture.clone(),
        sources: vec![script],
        sink: Box::new(PodRemoval),
        nodes: Vec::new(),
        address: None,
        wall_clock: Arc::new(move || clock.now_ms()),
        timings: world.timings,
        group_events: GROUP_EVENTS,
        sole_writer: true,
        shares_objects: true,
        cluster_stream: ClusterStream::Always,
        metrics: ControllerMetrics::new(&Registry::new()).expect("a fresh registry"),
    };
    let Ok(controller) = Controller::start(dependencies).await else { return };
    for event in [SourceEvent::Init, SourceEvent::InitApply(object(pod_value("p0", "c")))] {
        source.send(event).await.expect("listened to");
    }
    source.send(SourceEvent::InitDone).await.expect("listened to");
    // It may say of itself that it cannot go on; it has time for that, and for a few reports.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let _ = controller.picture().objects(&Filter::default(), 0);
    drop(controller.stop);
    for mut task in controller.tasks {
        match timeout(Duration::from_secs(3), &mut task).await {
            Ok(ended) => ended.expect("it does not panic"),
            Err(_) => task.abort(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_controller_on_damaged_disks_continues_or_names_the_reason(
        published in damage(), picture in damage(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let world = World::new();
            let running = world.start().await;
            running.list([object(pod_value("p0", "c")), object(pod_value("p1", "c"))]).await;
            for n in 1..6 {
                world.report("a", n, status(n)).await;
            }
            running.controller.stop().await;
            apply_damage(&*world.published, &published).expect("memory takes it");
            apply_damage(&*world.picture, &picture).expect("memory takes it");
            world.report("a", 6, status(6)).await;
            // Each of its tasks has 3 s to end.
            timeout(4 * SOON, goes_on(&world)).await.expect("it does not hang");
        });
    }
}
