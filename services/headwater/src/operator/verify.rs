//! State hashes, compared: as kept, as recomputed from the stored objects, as folded from the log.

use headwater_event::{NodeName, Seq, StreamId};
use headwater_log::history::Until;
use headwater_proto::operator::{Verdict, VerifyRequest, VerifyResponse};
use headwater_view::StreamReader;
use tonic::Status;

use super::{Sight, internal, past};

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
            let (folded, finding) = match past::fold(sight, &stream, Until::Seq(seq)).await {
                Ok(past) if past.hash != verified.kept => {
                    (past.hash.to_string(), "the log folds to another state".to_owned())
                }
                Ok(past) => (past.hash.to_string(), String::new()),
                Err(status) => (String::new(), status.message().to_owned()),
            };
            let finding = if verified.agrees() {
                finding
            } else {
                "the stored objects are not those that were folded".to_owned()
            };
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
