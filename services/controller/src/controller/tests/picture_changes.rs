//! A subscriber that reads only the objects in its notifications has the whole picture.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tokio::time::timeout;

use super::*;
use crate::picture::changes::{ChangeSubscription, PictureChange};

const NOW_MS: i64 = 2_000;

#[derive(Clone, Debug)]
enum Step {
    Set {
        pod: u8,
        node: &'static str,
        config: u8,
    },
    Delete {
        pod: u8,
    },
    List {
        pods: Vec<u8>,
    },
    Status {
        pod: u8,
        node: &'static str,
        text: u8,
    },
    NoStatus {
        pod: u8,
        node: &'static str,
    },
    /// A snapshot that names no pod.
    Close {
        node: &'static str,
    },
    Node {
        node: &'static str,
        label: u8,
    },
    Stands {
        node: &'static str,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (pod, node) = (0..4_u8, prop_oneof![Just("a"), Just("b")]);
    let step = prop_oneof![
        3 => (pod.clone(), node.clone(), 0..3_u8)
            .prop_map(|(pod, node, config)| Step::Set { pod, node, config }),
        2 => pod.clone().prop_map(|pod| Step::Delete { pod }),
        1 => proptest::collection::vec(pod.clone(), 0..4).prop_map(|pods| Step::List { pods }),
        3 => (pod.clone(), node.clone(), any::<u8>())
            .prop_map(|(pod, node, text)| Step::Status { pod, node, text }),
        1 => (pod, node.clone()).prop_map(|(pod, node)| Step::NoStatus { pod, node }),
        1 => node.clone().prop_map(|node| Step::Close { node }),
        1 => (node.clone(), any::<u8>()).prop_map(|(node, label)| Step::Node { node, label }),
        1 => node.prop_map(|node| Step::Stands { node }),
    ];
    proptest::collection::vec(step, 1..24)
}

fn a_pod(number: u8, node: &str, config: u8) -> Object {
    let mut pod = pod_value(&format!("p{number}"), &format!("c{config}"));
    pod["spec"]["nodeName"] = node.into();
    object(pod)
}

fn key_of(pod: u8) -> ResourceKey {
    format!("d/pod/p{pod}").parse().expect("a key")
}

async fn take(step: &Step, seq: u64, world: &World, running: &Running) {
    let report = async |node: &str, body| world.report(node, seq, body).await;
    match step {
        Step::Set { pod, node, config } => running.set(a_pod(*pod, node, *config)).await,
        Step::Delete { pod } => {
            running.delete(&key_of(*pod).to_string(), &format!("u-p{pod}")).await
        }
        Step::List { pods } => running.list(pods.iter().map(|pod| a_pod(*pod, "a", 0))).await,
        Step::Status { pod, node, text } => {
            let status = json!({"phase": "Running", "message": text}).to_string().into();
            let (pod, uid) = (key_of(*pod), format!("u-p{pod}"));
            report(node, ReportBody::PodStatus { pod, uid, status }).await;
        }
        Step::NoStatus { pod, node } => {
            let (pod, uid) = (key_of(*pod), format!("u-p{pod}"));
            report(node, ReportBody::PodStatusRemoved { pod, uid }).await;
        }
        Step::Close { node } => {
            let hash = PodStatusSnapshot::new(&node.parse().expect("a name")).hash();
            let first = ReportId { incarnation: Incarnation(1), boot: 1, seq };
            let closed = SnapshotClosed { hash, pods: 0, full: true, first };
            report(node, ReportBody::SnapshotClosed(closed)).await;
        }
        Step::Node { node, label } => {
            let labels = json!({"l": label.to_string()});
            let object = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels},
            });
            report(node, ReportBody::Node { object: object.to_string().into() }).await;
        }
        Step::Stands { node } => {
            let node: NodeName = node.parse().expect("a name");
            world.append_upstream(&node, position(&node, Vec::new())).await;
        }
    }
}

/// Looks at what changes until all that was seen is the picture.
async fn keep_up(
    seen: &mut BTreeMap<ResourceKey, Value>,
    changes: &mut ChangeSubscription,
    running: &Running,
) -> Result<(), TestCaseError> {
    let picture = running.controller.picture();
    let all = || picture.objects(&Filter::default(), NOW_MS).expect("readable");
    loop {
        let now = all();
        if *seen == now {
            return Ok(());
        }
        let notified = timeout(SOON, changes.next()).await;
        let Ok(notified) = notified else {
            return Err(TestCaseError::fail(format!("not notified: {seen:?} is {now:?}")));
        };
        match notified.expect("the controller runs") {
            PictureChange::Everything => *seen = all(),
            PictureChange::Keys(keys) => {
                for key in keys {
                    match picture.merged_object(&key, NOW_MS).expect("readable") {
                        Some(object) => seen.insert(key, object),
                        None => seen.remove(&key),
                    };
                }
            }
        }
    }
}

async fn follow(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let world = World::new();
    let running = world.start().await;
    running.list([a_pod(0, "a", 0)]).await;
    let mut changes = running.controller.picture().changes();
    let mut seen = BTreeMap::new();
    // The first look is at everything.
    seen.extend(
        running.controller.picture().objects(&Filter::default(), NOW_MS).expect("readable"),
    );
    for (step, seq) in steps.iter().zip(1..) {
        take(step, seq, &world, &running).await;
        keep_up(&mut seen, &mut changes, &running).await?;
    }
    // Once these are there, so is all that came before them.
    running.set(a_pod(9, "b", 0)).await;
    for node in ["a", "b"] {
        let last = Step::Node { node, label: 255 };
        take(&last, steps.len() as u64 + 1, &world, &running).await;
    }
    let picture = running.controller.picture().clone();
    until_true("the last", async || {
        let labelled = |node: &str| {
            let key = format!("null/node/{node}").parse().expect("a key");
            let node = picture.merged_object(&key, NOW_MS).expect("readable").unwrap_or_default();
            node["metadata"]["labels"]["l"] == "255"
        };
        labelled("a") && labelled("b") && picture.object(&key_of(9)).is_some()
    })
    .await;
    keep_up(&mut seen, &mut changes, &running).await?;
    running.controller.stop().await;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_reader_of_changed_keys_misses_no_change(steps in steps()) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(follow(steps))?;
    }
}
