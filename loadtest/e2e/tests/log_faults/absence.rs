//! An edge is away for longer than the log keeps the events that it misses.

use headwater_broker::ClusterSettings;
use serde_json::Value;

use crate::scene::{DOWNSTREAM, HUB, NODES, Pod, Scene};

/// The replay window: tombstones stay for twice as long, segments are closed four times within.
const WINDOW: &str = "topic.replay.window=2s";

#[test]
fn what_was_compacted_away_while_an_edge_slept_reaches_it_all_the_same() {
    let mut scene = Scene::begin(ClusterSettings::default(), &[WINDOW]);
    // The cleaner waits for nothing but the window.
    let eager = [["min.cleanable.dirty.ratio", "0.01"]];
    scene.fleet.kafka.set(DOWNSTREAM, &eager).expect("Kafka takes it");
    let [sleeper, _] = NODES;
    for is_hub_lost in [false, true] {
        let (leaves, comes) = (Pod::of(sleeper, "leaves"), Pod::of(sleeper, "comes"));
        scene.put(&leaves, 0);
        scene.wait_until_settled();
        scene.kill(sleeper);
        if is_hub_lost {
            scene.kill(HUB);
            scene.lose_disk(HUB);
        }
        scene.remove(&leaves);
        scene.put(&comes, 0);
        // Changes close segments, and are what the cleaner is to take.
        let load = scene.begin_load();
        if !is_hub_lost {
            scene.wait_for("the removal's end", |fleet| {
                let events = fleet.part(HUB).history(&format!("node/{sleeper}"))?;
                let is_of_it =
                    |event: &Value| event["key"].as_str().is_some_and(|key| key.contains("leaves"));
                (!events.iter().any(is_of_it)).then_some(())
            });
        }
        scene.end_load(load);
        if is_hub_lost {
            scene.start(HUB);
        }
        scene.start(sleeper);
        scene.check();
        scene.remove(&comes);
    }
}
