//! An edge whose disk something else has filled: its reserve keeps room for what it has to report.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use headwater_e2e::small_disk::SmallDisk;
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::process::Process;
use crate::{NODE, PODS, edge_on, node, wait_for_link};

/// The size of the disk: the reserve of 16 MiB and twice as much.
const DISK_MIB: u64 = 64;

/// The size of one change, of which a few fill the last of the room.
const CHANGE_BYTES: usize = 200_000;

/// A pod that is ready while the file `flag` exists, and a ConfigMap at its node with a large entry
/// that does not compress.
fn manifests(flag: &Path, round: u64) -> String {
    let mut state = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut noise = String::with_capacity(CHANGE_BYTES);
    while noise.len() < CHANGE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.push_str(&format!("{state:016x}"));
    }
    let words = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
        "data": {"word": "w", "noise": noise},
    });
    let probe = json!({
        "exec": {"command": ["test", "-e", flag]}, "periodSeconds": 1, "failureThreshold": 1,
    });
    let word = json!({"configMapKeyRef": {"name": "words", "key": "word"}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probed"},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "command": ["sleep", "86400"], "readinessProbe": probe,
                "env": [{"name": "WORD", "valueFrom": word}],
            }],
        },
    });
    format!("{words}\n---\n{pod}\n")
}

fn is_ready(edge: &Process) -> Option<bool> {
    let pods = edge.json(&["get", "pods", "-o", "json"])?;
    let conditions = pods["items"].get(0)?["status"]["conditions"].as_array()?.clone();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready")?;
    Some(ready["status"] == "True")
}

fn disk_of(edge: &Process) -> Option<Value> {
    Some(node(edge)?["disk"]["state"].clone())
}

#[test]
fn an_edge_reports_on_a_full_disk_from_its_reserve() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (data, flag) = (folder.path().join("data"), folder.path().join("flag"));
    let Some(disk) = SmallDisk::mount(&data, DISK_MIB) else { return };
    fs::write(&flag, "").expect("written");
    let cloud = Cloud::start(&manifests(&flag, 0));
    let edge = edge_on(&data, &cloud, &PODS);
    edge.wait_for("the pod", || is_ready(&edge)?.then_some(()));
    let reserve = data.join("nodes").join(NODE).join("reserve");
    edge.wait_for("the reserve", || reserve.exists().then_some(()));

    disk.fill(0);
    let round = Cell::new(0);
    // The status names a full disk before a write fails; the first write that fails takes the reserve.
    edge.wait_for("the reserve's release", || {
        round.set(round.get() + 1);
        cloud.write(&manifests(&flag, round.get()));
        (!reserve.exists()).then_some(())
    });
    edge.wait_for("a full disk", || (disk_of(&edge)? == "full").then_some(()));
    fs::remove_file(&flag).expect("removed");
    edge.wait_for("a report on the full disk", || {
        let is_reported = !is_ready(&edge)? && node(&edge)?["outbox_depth"] == 0;
        is_reported.then_some(())
    });
    assert_eq!(disk_of(&edge), Some("full".into()), "there is no room beside the reserve");
    wait_for_link(&edge, true);

    disk.make_room();
    edge.wait_for("the reserve's return", || {
        (disk_of(&edge)? == "ok" && reserve.exists()).then_some(())
    });
}
