//! The reports of nodes on pods, for the sources.

use std::collections::BTreeSet;
use std::future::pending;

use async_trait::async_trait;
use headwater_event::ResourceKey;
use headwater_follow::WallClock;
use headwater_store::EngineError;
use headwater_telemetry::error_chain;
use headwater_view::PodStatusFold;
use serde_json::Value;

use super::{ChangeSubscription, Picture, PictureChange};
use crate::source::identity::is_same_object;
use crate::source::{PodReport, PodReports, ReportChanges};

/// Statuses of one read.
const CHUNK_STATUSES: usize = 256;

/// Reads the reports from the picture.
pub(crate) struct PictureReports {
    picture: Picture,
    clock: WallClock,
}

/// The pods and nodes among the changes of the picture.
struct PodChanges(ChangeSubscription);

impl PictureReports {
    pub(crate) fn new(picture: Picture, clock: WallClock) -> Self {
        Self { picture, clock }
    }

    fn read(&self, key: &ResourceKey, pod: &Value) -> Result<Option<PodReport>, EngineError> {
        let Some(published) = self.picture.object(key) else { return Ok(None) };
        let value = published.value();
        // After a takeover the published pod has another UID than its source gave it.
        let is_meant =
            pod["metadata"]["uid"] == published.uid() || is_same_object(key, pod, &value);
        let Some(node) = published.node().filter(|_| is_meant).cloned() else { return Ok(None) };
        let from = self.picture.engine.snapshot();
        let reported = PodStatusFold::status(&*from, &node, key)?;
        let Some(reported) = reported.filter(|reported| reported.uid == published.uid()) else {
            return Ok(None);
        };
        let status = serde_json::from_slice(&reported.status).unwrap_or_default();
        Ok(Some(PodReport {
            status,
            is_node_reachable: self.picture.is_reachable(&node, (self.clock)())?,
        }))
    }

    fn all_reported(&self, namespace: &str) -> Result<BTreeSet<ResourceKey>, EngineError> {
        let from = self.picture.engine.snapshot();
        let mut reported = BTreeSet::new();
        for node in self.picture.nodes() {
            let mut after = None;
            loop {
                let chunk = PodStatusFold::statuses(&*from, &node, after.as_ref(), CHUNK_STATUSES)?;
                let is_last = chunk.len() < CHUNK_STATUSES;
                after = chunk.last().map(|(key, _)| key.clone());
                let keys = chunk.into_iter().map(|(key, _)| key);
                reported.extend(keys.filter(|key| key.namespace() == Some(namespace)));
                if is_last {
                    break;
                }
            }
        }
        Ok(reported)
    }
}

impl PodReports for PictureReports {
    fn report(&self, key: &ResourceKey, pod: &Value) -> Option<PodReport> {
        self.read(key, pod).unwrap_or_else(|error| {
            tracing::warn!(%key, error = %error_chain(&error), "a pod status cannot be read");
            None
        })
    }

    fn reported(&self, namespace: &str) -> BTreeSet<ResourceKey> {
        self.all_reported(namespace).unwrap_or_else(|error| {
            tracing::warn!(error = %error_chain(&error), "pod statuses cannot be read");
            BTreeSet::new()
        })
    }

    fn subscribe(&self) -> Box<dyn ReportChanges> {
        // It reads published objects too, so it needs their changes.
        Box::new(PodChanges(self.picture.changes()))
    }
}

#[async_trait]
impl ReportChanges for PodChanges {
    async fn next(&mut self) -> Option<BTreeSet<ResourceKey>> {
        match self.0.next().await {
            Some(PictureChange::Everything) => None,
            Some(PictureChange::Keys(keys)) => Some(keys),
            // The controller stops.
            None => pending().await,
        }
    }
}
