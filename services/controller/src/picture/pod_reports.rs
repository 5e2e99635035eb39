//! The reports of nodes on pods, for the sources.

use std::collections::BTreeSet;
use std::future::pending;
use std::ops::Bound;

use async_trait::async_trait;
use headwater_event::{NodeName, ResourceKey};
use headwater_follow::WallClock;
use headwater_store::EngineError;
use headwater_telemetry::error_chain;
use headwater_view::PodStatusFold;
use serde_json::Value;

use super::departed_pods::DepartedPods;
use super::{ChangeSubscription, Picture, PictureChange};
use crate::source::identity::is_same_object;
use crate::source::{PodReport, PodReports, ReportChanges};

/// Reads the reports from the picture.
pub(crate) struct PictureReports {
    picture: Picture,
    departed: DepartedPods,
    clock: WallClock,
}

/// The pods and nodes among the changes of the picture.
struct PodChanges(ChangeSubscription);

impl PictureReports {
    pub(crate) fn new(picture: Picture, departed: DepartedPods, clock: WallClock) -> Self {
        Self { picture, departed, clock }
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

    /// See [`PodReports::reported`]. A pod has left from when its removal reached the interest, and is there until then.
    fn still_reported(
        &self,
        prefix: &str,
        selects: &dyn Fn(&ResourceKey, &NodeName) -> bool,
    ) -> Result<BTreeSet<ResourceKey>, EngineError> {
        let mut pods = self.bound(prefix, selects);
        let departed = self.departed.of(prefix).into_iter();
        pods.extend(departed.filter(|(key, node, _)| selects(key, node)));
        let from = self.picture.engine.snapshot();
        let mut reported = BTreeSet::new();
        for (key, node, uid) in pods {
            let status = PodStatusFold::status(&*from, &node, &key)?;
            if status.is_some_and(|status| status.uid == uid) {
                reported.insert(key);
            }
        }
        Ok(reported)
    }

    /// The pods of the sources whose keys begin with `prefix`, with their nodes and UIDs.
    fn bound(
        &self,
        prefix: &str,
        selects: &dyn Fn(&ResourceKey, &NodeName) -> bool,
    ) -> Vec<(ResourceKey, NodeName, String)> {
        let interest = self.picture.interest.read();
        let keys = interest.keys_from(Bound::Included(prefix));
        let keys = keys.take_while(|key| key.as_str().starts_with(prefix));
        keys.filter_map(|key| {
            let head = &interest.packed(key)?.head;
            let node = head.node().filter(|node| selects(key, node))?;
            Some((key.clone(), node.clone(), head.uid().to_owned()))
        })
        .collect()
    }
}

impl PodReports for PictureReports {
    fn report(&self, key: &ResourceKey, pod: &Value) -> Option<PodReport> {
        self.read(key, pod).unwrap_or_else(|error| {
            tracing::warn!(%key, error = %error_chain(&error), "a pod status cannot be read");
            None
        })
    }

    fn reported(
        &self,
        namespace: &str,
        workload: &str,
        selects: &dyn Fn(&ResourceKey, &NodeName) -> bool,
    ) -> BTreeSet<ResourceKey> {
        let prefix = format!("{namespace}/pod/{workload}-");
        self.still_reported(&prefix, selects).unwrap_or_else(|error| {
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
