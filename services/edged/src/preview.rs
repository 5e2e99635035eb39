//! What a node would do with pods, without running any: the same decoding, resolving and planning as
//! a worker. Pure.
//!
//! | module | job |
//! |---|---|
//! | [`pull`] | the logins for an image |
//! | [`checkpoint`] | the files with the processors and devices of containers |

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use headwater_proto::local::{self, WatchEvent, watch_event::Kind};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use tokio::time::Instant;

use crate::container::downward_api::FieldSource;
use crate::container::environment::{self, VariableSources};
use crate::container::requests::Amounts;
use crate::container::token::TokenFile;
use crate::container::volume::Volume;
use crate::container::volume_content;
use crate::container::{LaunchSpec, WaitReason};
use crate::desired::{DesiredPod, DesiredState};
use crate::pod::{self, PodRecord};
use crate::pod_fields::Column;
use crate::runtime::PodState;
use crate::worker::plan::{Containers, Fate, FinalStep, Plan, PodFacts, Sandbox, plan};
use crate::worker::status::{self, ResourceFacts, StatusFacts};
use headwater_telemetry::error_chain;

pub mod checkpoint;
pub mod pull;

/// What a node would do with one pod that it sees for the first time.
#[derive(Debug)]
pub struct Preview {
    /// The pod.
    pub pod: PodRecord,
    /// The content of its volumes without tokens, or what is missing for it.
    pub volumes: Result<Vec<Volume>, WaitReason>,
    /// How each container would be started, or what is missing for it.
    pub launches: BTreeMap<String, Result<LaunchSpec, WaitReason>>,
    /// The first steps.
    pub first: Plan,
    /// The first steps of its end.
    pub last: Plan,
    /// The first status.
    pub status: PodStatus,
}

/// Previews `objects` on `node`. Also returns why objects cannot be decoded.
pub fn preview(node: &NodeName, objects: &[(ResourceKey, Bytes)]) -> (Vec<Preview>, Vec<String>) {
    let mut desired = DesiredState::new(node.clone(), Column::Process);
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
    let fields = FieldSource {
        pod: spec,
        node: node.as_str(),
        node_address: address,
        pod_addresses: vec![address],
        allocatable: Amounts::default(),
    };
    let launches: BTreeMap<_, _> = pod::all_containers(spec)
        .map(|container| {
            let base = BTreeMap::new();
            let objects = desired.objects();
            let sources = VariableSources { fields: &fields, objects, files: None };
            let launch = environment::launch(container, &base, sources);
            (container.name.clone(), launch)
        })
        .collect();
    let containers = Containers::new();
    let plan_for = |fate| {
        let sandbox = Sandbox::Unneeded;
        plan(&PodFacts {
            pod: spec,
            fate,
            ended: None,
            sandbox,
            containers: &containers,
            is_discarded: false,
            is_final: false,
            resize_at: None,
            now,
        })
    };
    let first = plan_for(Fate::Run);
    let end = Fate::End { deadline: now + pod::grace(spec), then: FinalStep::AskDelete };
    let facts = StatusFacts {
        pod: spec,
        uid: &seen.uid,
        containers: &containers,
        state: &PodState::default(),
        ready: &BTreeSet::new(),
        waiting: &first.waiting,
        failing_probes: &[],
        ended: None,
        fail_reason: None,
        rejection: None,
        notes: seen.findings.notes(),
        resources: ResourceFacts::default(),
        start_time: time,
        node_address: address,
        before: None,
    };
    Preview {
        pod: PodRecord::of(key, &seen.uid, spec, time),
        volumes: volume_content::resolve(&fields, desired.objects(), &|_| Ok(TokenFile::Absent)),
        launches,
        last: plan_for(end),
        status: status::derive(&facts, time),
        first,
    }
}
