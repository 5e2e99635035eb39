//! What a node would make of pods, without running any: the same reading, resolving and planning
//! that a worker does, for whoever wants to know before. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use headwater_proto::local::{self, WatchEvent, watch_event::Kind};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use tokio::time::Instant;

use crate::container::downward_api::FieldSource;
use crate::container::volume::Volume;
use crate::container::volume_content;
use crate::container::{LaunchSpec, WaitReason};
use crate::desired::{DesiredPod, DesiredState};
use crate::error_chain::error_chain;
use crate::pod::{self, PodRecord};
use crate::worker::plan::{Containers, Fate, FinalStep, Plan, plan};
use crate::worker::status::{self, StatusFacts};

/// What a node would make of one pod that it sees for the first time.
#[derive(Debug)]
pub struct Preview {
    /// Which pod.
    pub pod: PodRecord,
    /// What its volumes would hold, or what has to be there first.
    pub volumes: Result<Vec<Volume>, WaitReason>,
    /// How each container would be started, or what has to be there first.
    pub launches: BTreeMap<String, Result<LaunchSpec, WaitReason>>,
    /// The first steps.
    pub first: Plan,
    /// The first steps if it were to end at once.
    pub last: Plan,
    /// What would be reported of it.
    pub status: PodStatus,
}

/// What `node` would make of `objects`; and of those that it cannot read, why.
pub fn preview(node: &NodeName, objects: &[(ResourceKey, Bytes)]) -> (Vec<Preview>, Vec<String>) {
    let mut desired = DesiredState::new(node.clone());
    let mut refused = Vec::new();
    for (key, object) in objects {
        let object = local::Object {
            key: key.to_string(),
            object: object.clone(),
            ..local::Object::default()
        };
        let kind = Kind::Apply.into();
        let event = WatchEvent { kind, object: Some(object), ..WatchEvent::default() };
        if let Err(error) = desired.apply(event) {
            refused.push(error_chain(&error));
        }
    }
    let now = (Instant::now(), Timestamp::now());
    let pods = desired.pods().iter().map(|(key, seen)| of_pod(node, key, seen, &desired, now));
    (pods.collect(), refused)
}

fn of_pod(
    node: &NodeName,
    key: &ResourceKey,
    seen: &DesiredPod,
    desired: &DesiredState,
    (now, time): (Instant, Timestamp),
) -> Preview {
    let spec = &seen.pod.decode();
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let fields = FieldSource { pod: spec, node: node.as_str(), node_address: address };
    let launches: BTreeMap<_, _> = pod::all_containers(spec)
        .map(|container| {
            let base = BTreeMap::new();
            let objects = desired.objects();
            let launch = crate::container::environment::launch(container, &base, &fields, objects);
            (container.name.clone(), launch)
        })
        .collect();
    let containers = Containers::new();
    let first = plan(spec, Fate::Run, None, &containers, now);
    let end = Fate::End { deadline: now + pod::grace(spec), then: FinalStep::AskDelete };
    let facts = StatusFacts {
        pod: spec,
        uid: &seen.uid,
        containers: &containers,
        runs: &BTreeMap::new(),
        ready: &BTreeSet::new(),
        waiting: &first.waiting,
        ended: None,
        start_time: time,
        address,
        before: None,
    };
    Preview {
        pod: PodRecord::of(key, &seen.uid, spec, time),
        volumes: volume_content::resolve(&fields, desired.objects()),
        launches,
        last: plan(spec, end, None, &containers, now),
        status: status::derive(&facts, time),
        first,
    }
}
