//! A scripted edge: what it reports, and whether it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater_controller::PresenceLink;
use headwater_event::presence::{ConnectedNode, DisconnectedNode, NodeState};
use headwater_event::upstream::encode_report;
use headwater_event::{
    Incarnation, NodeName, PresenceUpdate, Report, ReportBody, ReportId, ResourceKey, StreamId,
};
use headwater_log::{Append, Log as _, MemoryLog, Record};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{Running, World};

/// How often its hub sends a beat.
const BEAT: Duration = Duration::from_secs(2);

/// Records of one append.
const APPENDED_MAX: usize = 500;

/// See the module.
pub(super) struct Edge {
    pub(super) name: NodeName,
    log: MemoryLog,
    boot: AtomicU64,
    seq: AtomicU64,
    link: Arc<PresenceLink>,
    beats: JoinHandle<()>,
}

impl Edge {
    /// An edge that is connected, and has reported its Node.
    pub(super) async fn connect(world: &World, running: &Running, name: &str) -> Self {
        let edge = Self::unreported(world, running, name);
        edge.report_node(&edge.node_object()).await;
        edge
    }

    /// An edge that is connected, and has reported nothing.
    pub(super) fn unreported(world: &World, running: &Running, name: &str) -> Self {
        let node: NodeName = name.parse().expect("a name");
        let link = Arc::new(running.controller.presence().connect(&format!("hub-of-{name}")));
        link.receive(PresenceUpdate::Connected(vec![connected(&node)]));
        link.receive(PresenceUpdate::Complete);
        let beating = link.clone();
        let beats = tokio::spawn(async move {
            loop {
                tokio::time::sleep(BEAT).await;
                beating.receive(PresenceUpdate::Beat);
            }
        });
        let (boot, seq) = (AtomicU64::new(1), AtomicU64::new(0));
        Self { name: node, log: world.upstream.clone(), boot, seq, link, beats }
    }

    /// The link to its hub breaks.
    pub(super) fn leave(&self) {
        let gone = DisconnectedNode { node: self.name.clone(), silent_for: Duration::ZERO };
        self.link.receive(PresenceUpdate::Disconnected(vec![gone]));
    }

    /// It connects again.
    pub(super) fn come_back(&self) {
        self.link.receive(PresenceUpdate::Connected(vec![connected(&self.name)]));
    }

    /// It starts again, and reports its Node.
    pub(super) async fn restart(&self) {
        self.boot.fetch_add(1, Ordering::SeqCst);
        self.report_node(&self.node_object()).await;
    }

    /// Its Node.
    pub(super) fn node_object(&self) -> Value {
        let name = self.name.as_str();
        let labels = json!({
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "node-role.kubernetes.io/edge": "", "node-role.kubernetes.io/agent": "",
        });
        let resources = json!({"cpu": "4", "memory": "8388608Ki", "pods": "110"});
        let time = "2026-01-01T00:00:00.123456Z";
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "Edged", "message": "by edged",
                "lastHeartbeatTime": time, "lastTransitionTime": time,
            })
        };
        json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {
                "capacity": resources, "allocatable": resources,
                "addresses": [
                    {"type": "InternalIP", "address": "10.1.0.7"},
                    {"type": "Hostname", "address": name},
                ],
                "conditions": [
                    condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                    condition("PIDPressure", "False"), condition("Ready", "True"),
                ],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "hollow://1",
                    "kernelVersion": "6", "kubeletVersion": "v1.33.0-headwater", "machineID": "m",
                    "operatingSystem": "linux", "osImage": "Linux", "systemUUID": "m",
                    "kubeProxyVersion": "",
                },
            },
        })
    }

    pub(super) async fn report_node(&self, object: &Value) {
        let object = object.to_string().into_bytes().into();
        self.report(ReportBody::Node { object }).await;
    }

    /// Reports the status of a pod in the namespace `default`.
    pub(super) async fn report_status(&self, pod: &str, uid: &str, status: &Value) {
        let status = status.to_string().into_bytes().into();
        self.report(ReportBody::PodStatus { pod: key(pod), uid: uid.to_owned(), status }).await;
    }

    /// Reports that it does not have a pod any more.
    pub(super) async fn report_removal(&self, pod: &str, uid: &str) {
        self.report(ReportBody::PodStatusRemoved { pod: key(pod), uid: uid.to_owned() }).await;
    }

    /// Reports that all containers of a pod under deletion have stopped.
    pub(super) async fn report_end(&self, pod: &str, uid: &str) {
        self.report(ReportBody::PodTerminated { pod: key(pod), uid: uid.to_owned() }).await;
    }

    /// Reports an Event in the namespace `default`.
    pub(super) async fn report_event(&self, name: &str, event: &Value) {
        self.report(self.event(name, event)).await;
    }

    /// Reports many Events at once.
    pub(super) async fn report_events(&self, events: impl Iterator<Item = (String, Value)>) {
        let appends = events.map(|(name, event)| self.append(self.event(&name, &event)));
        let appends: Vec<_> = appends.collect();
        for some in appends.chunks(APPENDED_MAX) {
            self.log.append(some.to_vec()).await.expect("appended");
        }
    }

    /// It is connected, and whether its pod worker runs.
    pub(super) fn set_worker(&self, runs: bool) {
        let node = ConnectedNode {
            state: Some(NodeState { lacks_worker: !runs, has_drained: true }),
            ..connected(&self.name)
        };
        self.link.receive(PresenceUpdate::Connected(vec![node]));
    }

    fn event(&self, name: &str, event: &Value) -> ReportBody {
        let key = format!("default/event/{name}").parse().expect("a key");
        ReportBody::Event { key, object: event.to_string().into_bytes().into() }
    }

    async fn report(&self, body: ReportBody) {
        let append = self.append(body);
        self.log.append(vec![append]).await.expect("appended");
    }

    fn append(&self, body: ReportBody) -> Append {
        let seq = self.seq.fetch_add(1, Ordering::SeqCst) + 1;
        let boot = self.boot.load(Ordering::SeqCst);
        let id = ReportId { incarnation: Incarnation(1), boot, seq };
        let report = Report { id, body, traceparent: None };
        let encoded = encode_report(&self.name, &report).expect("well-formed");
        let record = Record {
            key: encoded.key,
            value: encoded.value,
            header: encoded.header,
            traceparent: None,
        };
        let partition = StreamId::node(&self.name).partition(2);
        Append { partition, record }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

fn key(pod: &str) -> ResourceKey {
    format!("default/pod/{pod}").parse().expect("a key")
}

/// A warning about a pod in the namespace `default`, which happened `count` times.
pub(super) fn warning(pod: &str, uid: &str, count: u32) -> Value {
    json!({
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod, "uid": uid},
        "reason": "BackOff", "message": "Back-off restarting failed container main",
        "type": "Warning", "count": count,
        "firstTimestamp": "2026-01-01T00:00:01Z", "lastTimestamp": "2026-01-01T00:00:09Z",
    })
}

/// The status of a running pod with one container.
pub(super) fn running_status(ip: &str) -> Value {
    let time = "2026-01-01T00:00:01.987654Z";
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
    json!({
        "phase": "Running", "qosClass": "BestEffort", "startTime": time,
        "hostIP": "10.1.0.7", "hostIPs": [{"ip": "10.1.0.7"}],
        "podIP": ip, "podIPs": [{ "ip": ip }],
        "conditions": [
            condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
            condition("ContainersReady"), condition("PodScheduled"),
        ],
        "containerStatuses": [{
            "name": "main", "image": "example.invalid/main", "imageID": "",
            "containerID": "headwater://u/main/0", "ready": true, "started": true,
            "restartCount": 0, "lastState": {}, "state": {"running": {"startedAt": time}},
        }],
    })
}

/// A node whose worker runs and whose outbox is empty.
fn connected(node: &NodeName) -> ConnectedNode {
    let state = NodeState { lacks_worker: false, has_drained: true };
    ConnectedNode { node: node.clone(), state: Some(state) }
}
