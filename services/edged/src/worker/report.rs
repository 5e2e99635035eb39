//! Reports a pod's status: to the edge, and to the pod worker's own files.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::Worker;
use super::plan::{self, Fate, Outcome, Plan};
use super::status::{self, StatusFacts};
use crate::desired::compressed_object::CompressedObject;
use crate::event::status_change;
use crate::pod::PodRecord;
use crate::runtime::PodState;
use headwater_telemetry::error_chain;

impl Worker {
    /// Reports the pod's status to the edge if it changed.
    pub(super) async fn report(&mut self, pod: &Pod, state: &PodState, fate: Fate, plan: &Plan) {
        if !self.assignment.is_desired || self.assignment.shutdown.is_some() {
            return;
        }
        let containers = self.container_facts(pod, state, Instant::now());
        let stopped = || plan::stopped(pod, &containers);
        let ended = self.ended.or_else(|| match (fate, self.failing) {
            (Fate::Run, _) => None,
            // Its containers may have ended well.
            (_, Some(_)) => stopped().map(|_| Outcome::Failed),
            (Fate::End { .. } | Fate::Fail { .. }, None) => stopped(),
        });
        let failing = self.failing.filter(|_| ended.is_some()).map(|(reason, _)| reason);
        let ready = self.containers.iter().filter(|(_, tracker)| tracker.is_ready());
        let ready = ready.map(|(name, _)| name.as_str()).collect();
        let trackers = self.containers.iter();
        let failing_probes = trackers.flat_map(|(name, tracker)| {
            tracker.failing_probes().iter().map(|failure| failure.line(name))
        });
        let failing_probes: Vec<String> = failing_probes.collect();
        let before = self.reported.as_ref().map(CompressedObject::decode);
        let facts = StatusFacts {
            pod,
            uid: &self.record.uid,
            state,
            containers: &containers,
            ready: &ready,
            waiting: &plan.waiting,
            failing_probes: &failing_probes,
            ended,
            fail_reason: self.fail_reason.or(failing),
            rejection: self.rejection.as_deref(),
            notes: self.assignment.findings.notes(),
            resources: self.resource_facts(pod),
            start_time: self.record.seen_at,
            node_address: self.shared.address,
            before: before.as_ref(),
        };
        let status = match &before {
            Some(before) if self.is_final => before.clone(),
            _ => status::derive(&facts, Timestamp::now()),
        };
        let compressed = match CompressedObject::encode(&status) {
            Ok(compressed) => compressed,
            Err(error) => {
                // The files of a run state a time that no clock shows.
                tracing::warn!(pod = %self.record.key, %error, "a status cannot be encoded");
                return;
            }
        };
        let is_new = self.reported.as_ref() != Some(&compressed);
        if !is_new && self.has_reported {
            return;
        }
        if is_new {
            let PodRecord { key, uid, .. } = &self.record;
            let happened = status_change::occurrences(key, uid, before.as_ref(), &status);
            happened.into_iter().for_each(|occurrence| self.record_occurrence(occurrence));
        }
        let is_admitted = self.assignment.failure.is_none() && self.fail_reason.is_none();
        let Self { record, shared, .. } = self;
        let trace = self.trace.clone();
        let reporting = shared.reporter.status(record, compressed.clone(), trace);
        let writing = async {
            // A pod that is not admitted has no record yet. Its end is final: the next pod worker
            // reads it.
            if !is_admitted {
                shared.store.insert(record).await?;
            }
            shared.store.write_status(&record.uid, &status).await
        };
        let written = match (is_new, is_admitted) {
            (false, _) => {
                reporting.await;
                Ok(())
            }
            (true, true) => {
                reporting.await;
                writing.await
            }
            // What is final is durable before it is reported.
            (true, false) => {
                let written = writing.await;
                reporting.await;
                written
            }
        };
        if let Err(error) = written {
            let message = error_chain(&error);
            tracing::warn!(pod = %record.key, message, "a status cannot be written to the disk");
        }
        self.has_reported = true;
        self.count.phase(status.phase.as_deref());
        self.reported = Some(compressed);
    }
}
