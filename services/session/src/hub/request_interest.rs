//! What a node may request, as far as a key decides that: the objects of its private stream, and those to
//! which its pods refer. The log may not hold the latter yet.

use std::collections::BTreeSet;

use headwater_event::{Checkpoint, GetRule, NodeName, ResourceKey, StreamId};

use crate::message::{Request, RequestError, RequestVerb};
use crate::source::{FoldStatus, Readiness, SourceError, StreamSource};

/// The references of the node's pods as of a position. A request for an object that the stream does
/// not hold needs them, and reading every pod costs far more than such a request: a node causes one
/// reading for each position of its stream at most.
#[derive(Debug, Default)]
pub(super) struct RequestInterest {
    references: Option<(Checkpoint, BTreeSet<ResourceKey>)>,
}

impl RequestInterest {
    /// Why `node` may not request this; `None`: its key does not forbid it. The body of the request, and
    /// the spec of an object, are not looked at here. `is_shared`: the node has the shared stream.
    pub(super) fn refusal(
        &mut self,
        source: &dyn StreamSource,
        node: &NodeName,
        request: &Request,
        is_shared: bool,
    ) -> Result<Option<RequestError>, SourceError> {
        let forbidden = |why: &str| Ok(Some(RequestError::Forbidden(why.to_owned())));
        let invalid = |want: &str| {
            Ok(Some(RequestError::Invalid(format!("{}: want the key of a {want}", request.key))))
        };
        let rule = match (request.verb.unwrap_or(RequestVerb::Get), request.key.kind()) {
            (RequestVerb::Get, _) => GetRule::of(node, &request.key),
            (RequestVerb::Token, "serviceaccount") => GetRule::Named,
            (RequestVerb::Token, _) => return invalid("serviceaccount"),
            (RequestVerb::Csr, "certificatesigningrequest") => GetRule::Allowed,
            (RequestVerb::Csr, _) => return invalid("certificatesigningrequest"),
        };
        match rule {
            GetRule::Allowed | GetRule::OfSpec => Ok(None),
            GetRule::Shared if is_shared => Ok(None),
            GetRule::Named | GetRule::Shared => self.unnamed(source, node, &request.key),
            GetRule::Forbidden(why) => forbidden(why),
        }
    }

    /// Why `node` may not request `key`; `None`: its stream has `key`, or one of its pods names it.
    fn unnamed(
        &mut self,
        source: &dyn StreamSource,
        node: &NodeName,
        key: &ResourceKey,
    ) -> Result<Option<RequestError>, SourceError> {
        if source.has_object(node, key)? {
            return Ok(None);
        }
        let not_read =
            || Ok(Some(RequestError::Unavailable(RequestError::LOG_NOT_READ.to_owned())));
        if source.log_id().is_none() {
            return not_read();
        }
        let FoldStatus { checkpoint, readiness, .. } = source.status(&StreamId::node(node))?;
        if readiness == Readiness::Folding {
            return not_read();
        }
        let references = self.references_at(checkpoint, || source.references(node))?;
        let is_named = references.contains(key);
        Ok((!is_named).then(|| RequestError::Forbidden(RequestError::NOT_NAMED.to_owned())))
    }

    /// The references as of `position`: those that are known, or those that `read` returns.
    fn references_at(
        &mut self,
        position: Checkpoint,
        read: impl FnOnce() -> Result<BTreeSet<ResourceKey>, SourceError>,
    ) -> Result<&BTreeSet<ResourceKey>, SourceError> {
        let known = self.references.take().filter(|(known, _)| *known == position);
        let references = match known {
            Some((_, references)) => references,
            None => read()?,
        };
        Ok(&self.references.insert((position, references)).1)
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{LogId, Seq, WriterEpoch};

    use super::*;

    fn at(seq: u64) -> Checkpoint {
        let log_id = LogId { number: 1, uuid: uuid::Uuid::from_u128(1) };
        Checkpoint { log_id, epoch: WriterEpoch(1), seq: Seq(seq) }
    }

    #[test]
    fn pods_are_read_once_for_each_position() {
        let mut interest = RequestInterest::default();
        let mut reads = 0;
        for (tail, name) in [(1, "a"), (1, "b"), (1, "b"), (2, "b"), (2, "a"), (5, "c")] {
            let keys = BTreeSet::from([format!("ns/configmap/{name}").parse().expect("a key")]);
            let read = || {
                reads += 1;
                Ok(keys)
            };
            interest.references_at(at(tail), read).expect("readable");
        }
        assert_eq!(reads, 3);
    }

    #[test]
    fn references_that_cannot_be_read_are_read_again() {
        let mut interest = RequestInterest::default();
        let error = SourceError { reason: "a damaged disk".to_owned() };
        assert_eq!(interest.references_at(at(1), || Err(error.clone())), Err(error));
        assert_eq!(interest.references_at(at(1), || Ok(BTreeSet::new())), Ok(&BTreeSet::new()));
    }
}
