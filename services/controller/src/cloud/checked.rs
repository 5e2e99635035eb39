//! A cloud behind the check of each request.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_event::{
    AnswerBody, EntryKey, NodeName, NodeRequest, RequestError, ResourceKey, StreamId,
};
use headwater_event::{Assignment, RequestVerb};
use headwater_object::node_request::{check_spec, names};
use headwater_object::references::REFERRING_TYPES;
use headwater_store::{Engine, EngineError, Read};
use headwater_telemetry::error_chain;
use headwater_view::{Selection, StreamReader};
use tokio::sync::watch;

use super::Cloud;
use super::rules::{NodeObjects, check};
use crate::publisher::Progress;

/// Objects that are read at a time.
const CHUNK: usize = 64;

/// Passes a request to a cloud if what is published allows it to the node, and this controller is the
/// writer of the log.
pub struct CheckedCloud {
    pub(crate) cloud: Arc<dyn Cloud>,
    /// The fold of the downstream log.
    pub(crate) published: Arc<dyn Engine>,
    pub(crate) progress: watch::Receiver<Progress>,
}

/// The published objects of a node.
struct PublishedObjects<'r> {
    from: &'r dyn Read,
    node: &'r NodeName,
}

#[async_trait]
impl Cloud for CheckedCloud {
    async fn respond(&self, request: NodeRequest) -> Result<AnswerBody, RequestError> {
        if self.progress.borrow().is_standby {
            let why = "this controller is a standby: its hubs move to the writer of the log";
            return Err(RequestError::Unavailable(why.to_owned()));
        }
        let (node, verb, key) = (request.node.clone(), request.verb, request.key.clone());
        let request = {
            let snapshot = self.published.snapshot();
            let objects = PublishedObjects { from: &*snapshot, node: &node };
            check(request, &objects)
                .map_err(|error| RequestError::Unavailable(error_chain(&error)))??
        };
        let answer = self.cloud.respond(request).await?;
        if verb == RequestVerb::Get {
            check_spec(&node, &key, &answer)?;
        }
        Ok(answer)
    }
}

impl NodeObjects for PublishedObjects<'_> {
    type Error = EngineError;

    fn object(&self, key: &ResourceKey) -> Result<Option<Bytes>, EngineError> {
        let key = EntryKey::from(key.clone());
        let entry = StreamReader::new(self.from).entry(&StreamId::node(self.node), &key)?;
        Ok(entry.map(|entry| entry.object))
    }

    fn is_named(&self, key: &ResourceKey) -> Result<bool, EngineError> {
        let (reader, stream) = (StreamReader::new(self.from), StreamId::node(self.node));
        for kind in REFERRING_TYPES {
            for holder in reader.all_entries(&stream, Selection::Kind(kind), CHUNK) {
                let (holder, entry) = holder?;
                if holder.resource().is_some_and(|holder| names(holder, &entry.object, key)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn has_shared(&self) -> Result<bool, EngineError> {
        let stream = StreamId::node(self.node);
        let entry = StreamReader::new(self.from).entry(&stream, &EntryKey::Streams)?;
        let assignment = entry.and_then(|entry| Assignment::decode(self.node, &entry.object).ok());
        Ok(assignment.is_some_and(|streams| streams.contains(&StreamId::Cluster)))
    }
}
