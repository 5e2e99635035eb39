//! State hashes, compared: as kept, as recomputed from the stored objects, as folded from the log.

use std::collections::HashMap;

use headwater_event::{NodeName, ObjectHash, Seq, StateHash, StreamId};
use headwater_log::history::Until;
use headwater_proto::operator::{Verdict, VerifyRequest, VerifyResponse};
use headwater_store::{Engine, EngineError};
use headwater_view::{Selection, StreamReader};
use tonic::Status;

use super::{Sight, internal, past, some_of};

/// Entries read at once.
const CHUNK_ENTRIES: usize = 256;

/// Compares every stream of the nodes asked for.
pub(super) async fn verify(
    sight: &Sight,
    request: &VerifyRequest,
) -> Result<VerifyResponse, Status> {
    let nodes: Vec<NodeName> = if request.node.is_empty() {
        sight.nodes.keys().cloned().collect()
    } else {
        vec![sight.node(&request.node)?.0]
    };
    let mut verdicts = Vec::new();
    let mut folds = Folds::new(sight);
    for node in nodes {
        let view = sight.node(node.as_str())?.1;
        let Some(state) = view.state() else {
            verdicts.push(Verdict {
                node: node.to_string(),
                finding: view.trouble().unwrap_or_else(|| "the edge does not run".to_owned()),
                ..Verdict::default()
            });
            continue;
        };
        let streams: Vec<StreamId> = StreamReader::new(&*state)
            .streams()
            .map_err(|error| internal(&error))?
            .into_iter()
            .map(|position| position.stream)
            .collect();
        for stream in streams {
            // Reading a whole stream blocks on disk.
            let read = {
                let (state, stream) = (state.clone(), stream.clone());
                tokio::task::spawn_blocking(move || {
                    StreamReader::new(&*state.snapshot()).verify(&stream)
                })
            };
            let verified = read.await.map_err(|error| internal(&error))?;
            let Some(verified) = verified.map_err(|error| internal(&error))? else { continue };
            let seq: Seq = verified.checkpoint.seq;
            let folded = folds.hash(&stream, seq).await;
            let finding = if !verified.agrees() {
                let state = state.clone();
                let damaged = tokio::task::spawn_blocking({
                    let stream = stream.clone();
                    move || damaged(&*state, &stream)
                });
                damaged
                    .await
                    .map_err(|error| internal(&error))?
                    .map_err(|error| internal(&error))?
            } else {
                match &folded {
                    Ok(folded) if *folded == verified.kept => String::new(),
                    Ok(_) => "the log folds to another state: the node gets a snapshot as soon as \
                              its hub speaks to it (`headwater link restore` if it was cut)"
                        .to_owned(),
                    Err(status) => status.message().to_owned(),
                }
            };
            let folded = folded.map_or_else(|_| String::new(), |hash| hash.to_string());
            verdicts.push(Verdict {
                node: node.to_string(),
                stream: stream.to_string(),
                seq: seq.0,
                kept: verified.kept.to_string(),
                recomputed: verified.recomputed.to_string(),
                folded,
                agrees: finding.is_empty(),
                finding,
            });
        }
    }
    Ok(VerifyResponse { verdicts })
}

/// State hashes folded from the log. Many nodes share a stream, and stand at the same seq of it.
struct Folds<'a> {
    sight: &'a Sight,
    hashes: HashMap<(StreamId, Seq), StateHash>,
}

impl<'a> Folds<'a> {
    fn new(sight: &'a Sight) -> Self {
        Self { sight, hashes: HashMap::new() }
    }

    async fn hash(&mut self, stream: &StreamId, seq: Seq) -> Result<StateHash, Status> {
        let at = (stream.clone(), seq);
        if let Some(hash) = self.hashes.get(&at) {
            return Ok(*hash);
        }
        let hash = past::fold(self.sight, stream, Until::Seq(seq)).await?.hash;
        self.hashes.insert(at, hash);
        Ok(hash)
    }
}

/// What is wrong with a stream whose objects do not add up to its hash, and what to do.
fn damaged(state: &dyn Engine, stream: &StreamId) -> Result<String, EngineError> {
    let snapshot = state.snapshot();
    let reader = StreamReader::new(&*snapshot);
    let (mut damaged, mut after) = (Vec::new(), None);
    loop {
        let chunk = reader.entries(stream, Selection::All, after.as_ref(), CHUNK_ENTRIES)?;
        let differs =
            chunk.iter().filter(|(_, one)| ObjectHash::of(&one.object) != one.object_hash);
        damaged.extend(differs.map(|(key, _)| key.as_str().to_owned()));
        if chunk.len() < CHUNK_ENTRIES {
            break;
        }
        after = chunk.last().map(|(key, _)| key.clone());
    }
    let which = match damaged.as_slice() {
        [] => "the stored objects are not those that were folded".to_owned(),
        some => format!("changed on disk: {}", some_of(some.iter().map(String::as_str))),
    };
    Ok(format!("{which}: started again, the node gets them anew from its hub"))
}
