//! The comparison of state hashes: stored, recomputed from the stored objects, folded from the log.

use std::collections::HashMap;
use std::sync::Arc;

use headwater_event::{NodeName, ObjectHash, Seq, StateHash, StreamId};
use headwater_log::history::Until;
use headwater_proto::operator::{Verdict, VerifyRequest, VerifyResponse};
use headwater_store::{Engine, EngineError};
use headwater_view::{Selection, StreamReader};
use tonic::Status;

use super::{OperatorDependencies, internal, some_of, stream_history};

/// The entries of one read.
const CHUNK_ENTRIES: usize = 256;

/// The advice for a node's replica that differs from the fold.
const NODE_ADVICE: &str = "start the node again: it then receives them again from its hub";

/// The advice for the fold of a hub or a controller.
const FOLD_ADVICE: &str =
    "stop the process, remove its database and start it again: it then folds the log again";

/// Compares every stream of the requested nodes, at an edge or `up`. A hub and a controller compare
/// their own folds.
pub(super) async fn verify(
    dependencies: &OperatorDependencies,
    request: &VerifyRequest,
) -> Result<VerifyResponse, Status> {
    let mut verdicts = Vec::new();
    let mut folds =
        Folds { logs: dependencies.logs.is_some(), dependencies, hashes: HashMap::new() };
    let own = (dependencies.hub.as_ref().map(|hub| hub.store()))
        .or_else(|| dependencies.cloud.as_ref().map(|cloud| cloud.published.clone()));
    match own {
        Some(store) if dependencies.nodes.is_empty() => {
            let only = match request.node.as_str() {
                "" => None,
                node => Some(StreamId::node(&dependencies.named(node)?)),
            };
            verify_store(&store, String::new(), only.as_ref(), &mut folds, &mut verdicts).await?;
        }
        _ => {
            let nodes: Vec<NodeName> = match request.node.as_str() {
                "" => dependencies.nodes.keys().cloned().collect(),
                node => vec![dependencies.node(node)?.0],
            };
            for node in nodes {
                let view = dependencies.node(node.as_str())?.1;
                match view.replica() {
                    Some(state) => {
                        let node = node.to_string();
                        verify_store(&state, node, None, &mut folds, &mut verdicts).await?;
                    }
                    None => verdicts.push(Verdict {
                        node: node.to_string(),
                        finding: view.failure().map_or_else(
                            || "the edge does not run".to_owned(),
                            |failure| failure.reason,
                        ),
                        ..Verdict::default()
                    }),
                }
            }
        }
    }
    Ok(VerifyResponse { verdicts })
}

/// Compares all streams in a store, or `only` one; without a node the store is a fold of the log.
async fn verify_store(
    store: &Arc<dyn Engine>,
    node: String,
    only: Option<&StreamId>,
    folds: &mut Folds<'_>,
    verdicts: &mut Vec<Verdict>,
) -> Result<(), Status> {
    let advice = if node.is_empty() { FOLD_ADVICE } else { NODE_ADVICE };
    let positions = StreamReader::new(&**store).streams().map_err(|error| internal(&error))?;
    let streams = positions.into_iter().map(|position| position.stream);
    for stream in streams.filter(|stream| only.is_none_or(|only| only == stream)) {
        // Reading a whole stream blocks on disk.
        let read = {
            let (store, stream) = (store.clone(), stream.clone());
            tokio::task::spawn_blocking(move || {
                StreamReader::new(&*store.snapshot()).verify(&stream)
            })
        };
        let verified = read.await.map_err(|error| internal(&error))?;
        let Some(verified) = verified.map_err(|error| internal(&error))? else { continue };
        let seq: Seq = verified.checkpoint.seq;
        let folded = folds.hash(&stream, seq).await;
        let finding = if !verified.agrees() {
            let (store, stream) = (store.clone(), stream.clone());
            let damaged = tokio::task::spawn_blocking(move || damaged(&*store, &stream, advice));
            damaged.await.map_err(|error| internal(&error))?.map_err(|error| internal(&error))?
        } else {
            match &folded {
                Ok(Some(folded)) if *folded != verified.kept && node.is_empty() => {
                    format!("the fold of the log has another state: {FOLD_ADVICE}")
                }
                Ok(Some(folded)) if *folded != verified.kept => {
                    "the log folds to another state: the node gets a snapshot as soon as its hub \
                     speaks to it (`headwater link restore` if it was cut)"
                        .to_owned()
                }
                Ok(_) => String::new(),
                Err(status) => status.message().to_owned(),
            }
        };
        let folded = folded.ok().flatten();
        verdicts.push(Verdict {
            node: node.clone(),
            stream: stream.to_string(),
            seq: seq.0,
            kept: verified.kept.to_string(),
            recomputed: verified.recomputed.to_string(),
            folded: folded.map_or_else(String::new, |hash| hash.to_string()),
            agrees: finding.is_empty(),
            finding,
        });
    }
    Ok(())
}

/// State hashes folded from the log. Many nodes share a stream and are at the same seq of it.
struct Folds<'a> {
    /// Whether there is a log: an edge has none.
    logs: bool,
    dependencies: &'a OperatorDependencies,
    hashes: HashMap<(StreamId, Seq), StateHash>,
}

impl Folds<'_> {
    async fn hash(&mut self, stream: &StreamId, seq: Seq) -> Result<Option<StateHash>, Status> {
        if !self.logs {
            return Ok(None);
        }
        let at = (stream.clone(), seq);
        if let Some(hash) = self.hashes.get(&at) {
            return Ok(Some(*hash));
        }
        let hash = stream_history::fold(self.dependencies, stream, Until::Seq(seq)).await?.hash;
        self.hashes.insert(at, hash);
        Ok(Some(hash))
    }
}

/// Describes a stream whose objects do not match its hash, with advice.
fn damaged(state: &dyn Engine, stream: &StreamId, advice: &str) -> Result<String, EngineError> {
    let snapshot = state.snapshot();
    let reader = StreamReader::new(&*snapshot);
    let mut damaged = Vec::new();
    for entry in reader.all_entries(stream, Selection::All, CHUNK_ENTRIES) {
        let (key, entry) = entry?;
        if ObjectHash::of(&entry.object) != entry.object_hash {
            damaged.push(key.as_str().to_owned());
        }
    }
    let which = match damaged.as_slice() {
        [] => "the stored objects differ from the folded ones".to_owned(),
        some => format!("changed on disk: {}", some_of(some.iter().map(String::as_str))),
    };
    Ok(format!("{which}: {advice}"))
}
